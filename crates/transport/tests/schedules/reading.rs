//! A schedule of the other direction: a broker that keeps a session, and a reader whose messages
//! are settled in any order and left now and then. Whatever breaks, a message is acknowledged only
//! after it was settled, in the order of arrival, and each is acknowledged in the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_core::{QoS, Source, Subscription, SystemClock, TopicFilter};
use bridge_testkit::{
    AckKind, BrokerConnection, ConnAck, Packet, Property, Publish, ScriptedBroker, wait_until,
};
use bridge_transport::{Reader, ReaderTuning, SessionConfig};
use tokio::time::timeout;

use crate::chance::Chance;
use crate::play::{DEADLINE, session};

/// What the broker knows, and what the test has settled.
#[derive(Debug)]
struct Session {
    chance: Chance,
    mischief: u64,
    /// How many messages there are; each has its number plus one as packet identifier.
    count: u16,
    known: bool,
    /// The next message that was never sent.
    next: u16,
    /// Sent and not acknowledged.
    open: BTreeSet<u16>,
    /// Of QoS 2, received by the client and not released.
    released: BTreeSet<u16>,
    done: BTreeSet<u16>,
    settled: BTreeSet<u16>,
}

impl Session {
    const fn qos(number: u16) -> u8 {
        if number.is_multiple_of(3) { 2 } else { 1 }
    }

    /// The next message that was never sent, if there is one and the client has room for it.
    fn send_next(&mut self, window: usize) -> Option<u16> {
        let open = self.open.len() + self.released.len();
        if open >= window || self.next == self.count {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number);
        Some(number)
    }

    fn publish(number: u16, again: bool) -> Publish {
        let mut publish = Publish::new("t", number.to_be_bytes().to_vec());
        publish.qos = Self::qos(number);
        publish.id = number + 1;
        publish.dup = again;
        publish
    }
}

/// Plays the schedule of that seed.
pub(crate) async fn play(seed: u64) {
    let mut chance = Chance::new(seed);
    let session = Arc::new(Mutex::new(Session {
        chance: chance.branch(1),
        mischief: chance.between(0, 6),
        count: u16::try_from(chance.between(5, 60)).unwrap(),
        known: false,
        next: 0,
        open: BTreeSet::new(),
        released: BTreeSet::new(),
        done: BTreeSet::new(),
        settled: BTreeSet::new(),
    }));
    let broker = ScriptedBroker::start({
        let session = Arc::clone(&session);
        move |connection| serve(connection, Arc::clone(&session))
    })
    .await;
    let config = SessionConfig {
        receive_maximum: u16::try_from(chance.between(1, 20))
            .unwrap()
            .try_into()
            .unwrap(),
        ..self::session(broker.port(), "r")
    };
    let subscription = Subscription {
        filter: TopicFilter::parse("t").unwrap(),
        qos: QoS::ExactlyOnce,
        no_local: false,
    };
    let tuning = ReaderTuning {
        leave_pacing: Duration::from_millis(5),
        ..ReaderTuning::default()
    };
    let clock = Arc::new(SystemClock::new());
    let reader = Reader::start_tuned(config, vec![subscription], clock, tuning);
    let taken = timeout(DEADLINE, take_all(&reader, &session, &mut chance)).await;
    assert!(taken.is_ok(), "not all is acknowledged: {session:?}");
    if chance.percent(60) {
        timeout(DEADLINE, reader.close()).await.expect("it closes");
    }
    drop(reader);
    wait_until("every connection has ended", DEADLINE, || {
        broker.open_connections() == 0
    })
    .await;
}

/// Takes what comes and settles it, in any order, until the broker has every acknowledgement.
async fn take_all(reader: &Reader, session: &Mutex<Session>, chance: &mut Chance) {
    let mut held = BTreeMap::new();
    let mut key = 0_u64;
    let mut leaves = chance.below(4);
    loop {
        {
            let session = session.lock().unwrap();
            if session.done.len() == usize::from(session.count) {
                return;
            }
        }
        let next = timeout(Duration::from_millis(2), reader.next()).await;
        if let Ok(delivery) = next {
            let delivery = delivery.expect("the reader is open");
            let number = u16::from_be_bytes(delivery.message.payload.as_ref().try_into().unwrap());
            held.insert(key, (number, delivery.acknowledge));
            key += 1;
            if chance.percent(60) {
                continue;
            }
        }
        let Some(&chosen) = held.keys().nth(usize::try_from(chance.below(8)).unwrap()) else {
            // Fewer are held than that: the oldest.
            if let Some((_, (number, acknowledge))) = held.pop_first() {
                session.lock().unwrap().settled.insert(number);
                acknowledge.settled();
            }
            continue;
        };
        let (number, acknowledge) = held.remove(&chosen).unwrap();
        if leaves > 0 && chance.percent(10) {
            leaves -= 1;
            drop(acknowledge);
        } else {
            session.lock().unwrap().settled.insert(number);
            acknowledge.settled();
        }
    }
}

async fn serve(mut connection: BrokerConnection, session: Arc<Mutex<Session>>) {
    let Some(Packet::Connect(connect)) = connection.read_packet().await else {
        return;
    };
    let window = connect.property(|property| match property {
        Property::ReceiveMaximum(maximum) => Some(usize::from(*maximum)),
        _ => None,
    });
    let window = window.expect("the client says how much it takes");
    let (present, mut chance, again) = {
        let mut session = session.lock().unwrap();
        let present = std::mem::replace(&mut session.known, true);
        let chance = session.chance.branch(connection.number() as u64);
        let mut again = Vec::new();
        for number in &session.released {
            again.push(Packet::Ack(bridge_testkit::Ack::new(
                AckKind::PubRel,
                number + 1,
                0,
            )));
        }
        for number in &session.open {
            again.push(Packet::Publish(Session::publish(*number, true)));
        }
        (present, chance, again)
    };
    let connack = ConnAck {
        session_present: present,
        ..ConnAck::default()
    };
    connection.send_packet(&Packet::ConnAck(connack)).await;
    // A PUBREC that was sent and not read is repeated by the client as soon as its message comes
    // again, whatever of older ones has not settled yet.
    let mut repeated: BTreeSet<u16> = {
        let settled = &session.lock().unwrap().settled;
        settled.iter().map(|number| number + 1).collect()
    };
    // What is to be acknowledged by PUBACK and by PUBREC, in its order.
    let mut order = [VecDeque::new(), VecDeque::new()];
    for packet in again {
        if let Packet::Publish(publish) = &packet {
            order[usize::from(publish.qos == 2)].push_back(publish.id);
        }
        connection.send_packet(&packet).await;
    }
    let mut subscribed = false;
    loop {
        while let Some(number) = if subscribed {
            session.lock().unwrap().send_next(window)
        } else {
            None
        } {
            order[usize::from(Session::qos(number) == 2)].push_back(number + 1);
            connection.publish(Session::publish(number, false)).await;
        }
        let Some(packet) = connection.read_packet().await else {
            return;
        };
        match packet {
            Packet::Subscribe(subscribe) => {
                connection.suback(subscribe.id, &[2]).await;
                subscribed = true;
            }
            Packet::Ack(ack) => {
                let number = ack.id - 1;
                match ack.kind {
                    AckKind::PubAck | AckKind::PubRec => {
                        // The standard orders PUBACK and PUBREC each among themselves (§4.6).
                        let received = ack.kind == AckKind::PubRec;
                        let order = &mut order[usize::from(received)];
                        let place = order.iter().position(|id| *id == ack.id);
                        let place = place.unwrap_or_else(|| panic!("{} out of order", ack.id));
                        if received && repeated.remove(&ack.id) {
                            order.remove(place);
                        } else {
                            // What was left is passed over, and comes again on another
                            // connection.
                            order.drain(..=place);
                        }
                        let mut session = session.lock().unwrap();
                        let settled = session.settled.contains(&number);
                        assert!(settled, "{number} was acknowledged and not settled");
                        assert!(session.open.remove(&number), "{number} is not open");
                        if ack.kind == AckKind::PubRec {
                            session.released.insert(number);
                        } else {
                            session.done.insert(number);
                        }
                    }
                    AckKind::PubComp => {
                        let mut session = session.lock().unwrap();
                        session.released.remove(&number);
                        session.done.insert(number);
                    }
                    AckKind::PubRel => panic!("no reader sends PUBREL"),
                }
                if ack.kind == AckKind::PubRec {
                    connection.ack(AckKind::PubRel, ack.id, 0).await;
                }
            }
            Packet::PingReq => connection.send_packet(&Packet::PingResp).await,
            Packet::Disconnect(_) => return,
            other => panic!("no reader sends {other:?}"),
        }
        let mischief = {
            let mut session = session.lock().unwrap();
            let mischief = session.mischief > 0 && chance.percent(10);
            session.mischief -= u64::from(mischief);
            mischief
        };
        if mischief {
            match chance.below(4) {
                0 => connection.reset(),
                1 => connection.close(),
                2 => connection.finish().await,
                _ => {
                    connection.disconnect(0x8B).await;
                    connection.finish().await;
                }
            }
            return;
        }
    }
}
