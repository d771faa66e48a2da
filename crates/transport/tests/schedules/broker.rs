//! The broker of a schedule: it accepts, refuses, dawdles, falls silent and leaves by chance, and
//! writes down what it has said.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_testkit::{
    Ack, AckKind, BrokerConnection, ConnAck, Disconnect, Packet, Property, Protocol, Publish,
    ScriptedBroker,
};

use crate::chance::Chance;

/// The largest number of a message's first four bytes: which attempt to publish it is.
pub(crate) type Attempt = u32;

/// What a broker's scripts share.
#[derive(Debug)]
pub(crate) struct Mood {
    chance: Chance,
    /// Whether it never throws away what a client has written: it then reads every connection to
    /// its end.
    thorough: bool,
    /// How much mischief it may still do.
    mischief: AtomicU64,
    said: Mutex<HashMap<Attempt, u8>>,
    /// How often it has read nothing for a while, so that the client may have ended in the middle
    /// of a message.
    stalls: AtomicUsize,
    leaves: AtomicUsize,
}

/// What becomes of one message.
enum Fate {
    Accept,
    Refuse(u8),
    Silence,
    /// Nothing is read for a while, then one goes on or leaves.
    Stall(Duration, Option<Leave>),
    Leave(Leave),
}

enum Leave {
    /// A FIN, and all is read that the client still sends.
    Finish,
    /// DISCONNECT before it.
    Disconnect(u8),
    /// The socket is closed with what is in it.
    Abrupt,
}

impl Mood {
    pub(crate) fn new(chance: Chance, thorough: bool, mischief: u64) -> Arc<Self> {
        Arc::new(Self {
            chance,
            thorough,
            mischief: AtomicU64::new(mischief),
            said: Mutex::default(),
            stalls: AtomicUsize::new(0),
            leaves: AtomicUsize::new(0),
        })
    }

    /// From now on everything is accepted.
    pub(crate) fn calm_down(&self) {
        self.mischief.store(0, Ordering::SeqCst);
    }

    /// What it has answered to an attempt at last, if anything.
    pub(crate) fn said(&self, attempt: Attempt) -> Option<u8> {
        self.said.lock().unwrap().get(&attempt).copied()
    }

    /// In the middle of how many messages clients may have ended.
    pub(crate) fn stalls(&self) -> usize {
        self.stalls.load(Ordering::SeqCst)
    }

    /// How many connections it has ended of its own accord.
    pub(crate) fn leaves(&self) -> usize {
        self.leaves.load(Ordering::SeqCst)
    }

    fn leave(&self, how: Leave) -> Leave {
        self.leaves.fetch_add(1, Ordering::SeqCst);
        how
    }

    async fn stall(&self, stall: Duration) {
        self.stalls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(stall).await;
    }

    fn says(&self, attempt: Attempt, code: u8) {
        self.said.lock().unwrap().insert(attempt, code);
    }

    /// Whether to do mischief now, which happens so often out of a hundred times.
    fn mischief(&self, chance: &mut Chance, percent: u64) -> bool {
        let spend = |left: u64| left.checked_sub(1);
        chance.percent(percent)
            && self
                .mischief
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend)
                .is_ok()
    }

    fn fate(&self, chance: &mut Chance) -> Fate {
        if !self.mischief(chance, 25) {
            return Fate::Accept;
        }
        match chance.below(12) {
            0..5 => Fate::Refuse(u8::try_from(chance.between(0x80, 0xFF)).unwrap()),
            5 => Fate::Silence,
            6 | 7 => Fate::Leave(Leave::Finish),
            // Any code but that of a takeover, after which a session waits longer and longer.
            8 => match u8::try_from(chance.below(256)).unwrap() {
                0x8E => Fate::Leave(Leave::Finish),
                code => Fate::Leave(Leave::Disconnect(code)),
            },
            9 | 10 => {
                let stall = Duration::from_millis(chance.between(5, 200));
                let leave = chance.percent(50).then_some(Leave::Finish);
                Fate::Stall(stall, leave)
            }
            _ if self.thorough => Fate::Leave(Leave::Finish),
            _ => Fate::Leave(Leave::Abrupt),
        }
    }
}

pub(crate) async fn start(mood: &Arc<Mood>) -> ScriptedBroker {
    let mood = Arc::clone(mood);
    ScriptedBroker::start(move |connection| serve(connection, Arc::clone(&mood))).await
}

pub(crate) fn attempt_of(publish: &Publish) -> Attempt {
    u32::from_be_bytes(
        *publish
            .payload
            .first_chunk()
            .expect("a number of four bytes"),
    )
}

async fn serve(mut connection: BrokerConnection, mood: Arc<Mood>) {
    let mut chance = mood.chance.branch(connection.number() as u64);
    let Some(Packet::Connect(_)) = connection.read_packet().await else {
        return;
    };
    if mood.mischief(&mut chance, 20) {
        match chance.below(3) {
            0 => connection.until_closed().await,
            1 => {
                let code = match connection.protocol() {
                    Protocol::V5 => 0x88,
                    Protocol::V311 => 3,
                };
                let connack = ConnAck {
                    code,
                    ..ConnAck::default()
                };
                connection.send_packet(&Packet::ConnAck(connack)).await;
                connection.finish().await;
            }
            _ => connection.finish().await,
        }
        return;
    }
    let receive_maximum = match chance.below(4) {
        0 => 1,
        1 => 3,
        2 => 20,
        _ => u16::MAX,
    };
    connection
        .connack(&[Property::ReceiveMaximum(receive_maximum)])
        .await;
    if let Some(leave) = converse(&mut connection, &mood, &mut chance).await {
        match leave {
            Leave::Finish => connection.finish().await,
            Leave::Disconnect(code) => {
                let properties = vec![Property::ReasonString("by chance".to_owned())];
                connection
                    .disconnect_with(Disconnect { code, properties })
                    .await;
                connection.finish().await;
            }
            Leave::Abrupt => connection.close(),
        }
    }
}

/// Answers until the client has gone, or until it is time to leave.
async fn converse(
    connection: &mut BrokerConnection,
    mood: &Mood,
    chance: &mut Chance,
) -> Option<Leave> {
    // Answers that wait, for a message to come between and for another order.
    let mut waiting: Vec<(Ack, Option<Attempt>)> = Vec::new();
    let mut released: HashMap<u16, Attempt> = HashMap::new();
    loop {
        let dawdled = tokio::time::sleep(Duration::from_millis(2));
        let packet = tokio::select! {
            packet = connection.read_packet() => Some(packet?),
            () = dawdled, if !waiting.is_empty() => None,
        };
        let answer = match packet {
            None => None,
            Some(Packet::Publish(publish)) => {
                let attempt = attempt_of(&publish);
                let (kind, last) = match publish.qos {
                    0 => continue,
                    1 => (AckKind::PubAck, true),
                    _ => (AckKind::PubRec, false),
                };
                let mut fate = mood.fate(chance);
                if let Fate::Stall(stall, leave) = fate {
                    mood.stall(stall).await;
                    fate = leave.map_or(Fate::Accept, Fate::Leave);
                }
                match fate {
                    Fate::Accept | Fate::Stall(..) => {
                        released.insert(publish.id, attempt);
                        Some((Ack::new(kind, publish.id, 0), last.then_some(attempt)))
                    }
                    Fate::Refuse(_) if connection.protocol() == Protocol::V311 => {
                        return Some(mood.leave(Leave::Finish));
                    }
                    Fate::Refuse(code) => Some((Ack::new(kind, publish.id, code), Some(attempt))),
                    Fate::Silence => continue,
                    Fate::Leave(leave) => return Some(mood.leave(leave)),
                }
            }
            Some(Packet::Ack(ack)) if ack.kind == AckKind::PubRel => match mood.fate(chance) {
                Fate::Silence => continue,
                Fate::Leave(leave) => return Some(mood.leave(leave)),
                Fate::Refuse(code) if connection.protocol() == Protocol::V5 => Some((
                    Ack::new(AckKind::PubComp, ack.id, code),
                    released.remove(&ack.id),
                )),
                Fate::Accept | Fate::Refuse(_) | Fate::Stall(..) => Some((
                    Ack::new(AckKind::PubComp, ack.id, 0),
                    released.remove(&ack.id),
                )),
            },
            Some(Packet::PingReq) => {
                connection.send_packet(&Packet::PingResp).await;
                continue;
            }
            Some(Packet::Disconnect(_)) => return Some(Leave::Finish),
            Some(other) => panic!("no writer sends {other:?}"),
        };
        let dawdle = answer.is_some() && chance.percent(30);
        waiting.extend(answer);
        if dawdle {
            continue;
        }
        chance.shuffle(&mut waiting);
        for (ack, last_of) in waiting.drain(..) {
            if let Some(attempt) = last_of {
                mood.says(attempt, ack.code);
            }
            connection.send_packet(&Packet::Ack(ack)).await;
        }
    }
}
