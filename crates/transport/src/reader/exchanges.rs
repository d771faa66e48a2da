//! What a broker has sent with QoS 1 and 2, by packet id: what it is owed for, and what of it is
//! recognised when it sends it again. Decisions only; the lock and the wire are
//! [`Acks`](super::acks::Acks)'s.
//!
//! A broker that resumes a session sends again, with DUP and under the same packet id, what has
//! not been acknowledged (MQTT 5 §4.4). What is still in our hands, or has settled meanwhile, need
//! not be handed out a second time: the acknowledgement that was too late for the old connection
//! is what the new one is owed. Such a packet id cannot mean another message, as the broker must
//! not use it again before it is acknowledged (§2.2.1).
//!
//! ```text
//!               settled              due, in its turn
//!     Open ──────────────▶ (given) ──────────────────▶ Acknowledged
//!      │ ▲                                              │
//!      │ └──────── redelivered: owed on this one ───────┤ only while older ones
//!      ▼  connection ends                               ▼ are still awaited
//!     Open, Settled, Left                         (was it read?)
//! ```
//!
//! An acknowledgement that was sent may not have been read; then too the message comes again. But
//! the packet id was free from then on, for the broker to give to another message with the same
//! content (§4.3.2). Two things tell them apart. A new message follows everything that we have
//! received, as all of it came in one stream and comes again in its order (§4.6): so it is none
//! while older ones that were not acknowledged are still awaited. No order is promised by a shared
//! subscription, though, so that is not enough. And it does not have that id where the broker
//! takes ids in turns, and the turn of more others comes first than can be under way. Only where
//! both hold is such a redelivery recognised.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use bridge_core::QoS;

/// How many ids ahead of the newest may be those of messages that were sent and never came: under
/// a flood of a broker that sends more than it may, many fit into what lies between two programs.
const NEAR: u16 = 4096;

/// A message of QoS 1 or 2 as it comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming {
    pub(super) packet_id: u16,
    pub(super) qos: QoS,
    /// The broker says that it has sent it before.
    pub(super) dup: bool,
    /// A digest of everything that makes two messages the same.
    pub(super) content: u64,
}

/// What to do with a message that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Hand it out.
    New(Ticket),
    /// It has been handed out, and not been left: the broker is owed an acknowledgement for it
    /// here, by the ticket that is out or at once.
    Recognised,
    /// The broker has sent it on this connection before and is still owed for it. It must not do
    /// that (MQTT 5 §4.4), and one acknowledgement is all that it may get.
    Repeated,
}

/// Names one message that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    packet_id: u16,
    number: u64,
}

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// It has settled.
    Settled,
    /// It is left with the broker.
    Left,
}

/// Whether the connection that stands is owed for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// It is.
    Here,
    /// It came on an earlier one, and has not come again.
    Nowhere,
}

/// All of them, over the connections of one reader.
///
/// At most one entry for each packet id, of which there are 65,535.
#[derive(Debug)]
pub(super) struct Exchanges {
    known: HashMap<u16, Known>,
    /// What this connection is owed for, in order of arrival.
    queue: VecDeque<Slot>,
    /// The number of the slot at the front. Numbers go on over all connections.
    front: u64,
    /// The number of the first slot of this connection.
    began: u64,
    /// How many messages of earlier connections that were not acknowledged have not come again.
    awaited: usize,
    /// Nothing has come on this connection that we had not received on an earlier one.
    catching_up: bool,
    /// The latest first arrival of those that came again.
    latest: u64,
    ids: Ids,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    content: u64,
    /// Its number when it first came: that of its ticket.
    first: u64,
    /// Its number when it last came.
    last: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Settled,
    Left,
    Acknowledged,
}

#[derive(Debug)]
struct Slot {
    packet_id: u16,
    qos: QoS,
    given: Option<Given>,
}

/// How the broker chooses packet ids.
#[derive(Debug)]
struct Ids {
    /// The one of the newest message.
    newest: u16,
    /// For how many messages they have been rising, so how many different ones have been taken in
    /// turns; at most as many as surely differ.
    risen: u16,
    /// How many a broker may have taken since, while nothing of that has come.
    under_way: u16,
}

// === impl Exchanges ===

impl Exchanges {
    /// `receive_maximum` is how many messages a broker may have sent and not been acknowledged.
    pub(super) fn new(receive_maximum: u16) -> Self {
        Self {
            known: HashMap::new(),
            queue: VecDeque::new(),
            front: 0,
            began: 0,
            awaited: 0,
            catching_up: false,
            latest: 0,
            ids: Ids {
                newest: 0,
                risen: 0,
                // As many as may be open, and as many that were open and are passed over.
                under_way: receive_maximum.saturating_mul(2),
            },
        }
    }

    /// A connection begins; the one before has ended. `resumed` says that the broker goes on with
    /// the session of the one before: else its packet ids mean nothing any more.
    pub(super) fn begin(&mut self, resumed: bool) {
        self.end();
        if !resumed {
            self.known.clear();
            self.ids.risen = 0;
        }
        let open = |known: &&Known| known.state != State::Acknowledged;
        self.awaited = self.known.values().filter(open).count();
        self.catching_up = true;
        self.latest = 0;
    }

    /// The connection has ended: nothing is owed until another begins.
    pub(super) fn end(&mut self) {
        let next = self.next();
        if !std::mem::replace(&mut self.catching_up, true) {
            // It went on to what is new: what it passed over it does not have any more, and may
            // give those ids away.
            self.known.retain(|_, known| known.last >= self.began);
        }
        for slot in self.queue.drain(..) {
            if let Some(known) = self.known.get_mut(&slot.packet_id) {
                known.state = match slot.given {
                    None => State::Open,
                    Some(given) => given.into(),
                };
            }
        }
        (self.front, self.began) = (next, next);
    }

    /// Whether something of an earlier connection was left with the broker, and has not come
    /// again.
    pub(super) fn any_left(&self) -> bool {
        let left = |known: &Known| known.state == State::Left && known.last < self.began;
        self.known.values().any(left)
    }

    /// A message has come.
    pub(super) fn arrived(&mut self, incoming: Incoming) -> Arrival {
        let Incoming {
            packet_id,
            qos,
            dup,
            content,
        } = incoming;
        let number = self.next();
        let mut known_before = false;
        if let Some(known) = self.known.get(&packet_id).copied() {
            let open = known.state != State::Acknowledged;
            if known.last >= self.began {
                if open {
                    return Arrival::Repeated;
                }
            } else {
                let same = dup && known.content == content;
                let given = if same {
                    self.recognise(packet_id, known)
                } else {
                    None
                };
                self.awaited = self.awaited.saturating_sub(usize::from(open));
                if let Some(given) = given {
                    self.latest = known.first;
                    self.known.insert(
                        packet_id,
                        Known {
                            last: number,
                            state: State::Open,
                            ..known
                        },
                    );
                    self.queue.push_back(Slot {
                        packet_id,
                        qos,
                        given: given.already(),
                    });
                    return Arrival::Recognised;
                }
                known_before = same;
            }
        }
        self.catching_up &= known_before;
        if !known_before {
            self.ids.newest(packet_id);
            // So far back that it is near again, and not to be recognised.
            let far = packet_id.wrapping_add(NEAR);
            if let Entry::Occupied(entry) = self.known.entry(far)
                && entry.get().state == State::Acknowledged
            {
                entry.remove();
            }
        }
        self.known.insert(
            packet_id,
            Known {
                content,
                first: number,
                last: number,
                state: State::Open,
            },
        );
        self.queue.push_back(Slot {
            packet_id,
            qos,
            given: None,
        });
        Arrival::New(Ticket { packet_id, number })
    }

    /// Something has become of a message. What came on an earlier connection and has not come
    /// again is not acknowledged: that would be an answer to something that this broker has not
    /// said.
    pub(super) fn give(&mut self, ticket: Ticket, given: Given) -> Concern {
        let number = if ticket.number >= self.began {
            ticket.number
        } else {
            match self.known.get_mut(&ticket.packet_id) {
                Some(known) if known.first == ticket.number && known.last >= self.began => {
                    known.last
                }
                Some(known) if known.first == ticket.number => {
                    known.state = given.into();
                    return Concern::Nowhere;
                }
                _ => return Concern::Nowhere,
            }
        };
        let index = number.checked_sub(self.front);
        let index = index.and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| self.queue.get_mut(index)) {
            Some(slot) => {
                slot.given = Some(given);
                Concern::Here
            }
            None => Concern::Nowhere,
        }
    }

    /// Sends from the front as far as everything has been given. What was left is passed over:
    /// it will not be acknowledged on this connection, and the order of the others stays. Where
    /// `send` has no room for more, the rest stays due.
    pub(super) fn send_what_is_due(&mut self, mut send: impl FnMut(u16, QoS) -> bool) {
        while let Some(Slot {
            packet_id,
            qos,
            given: Some(given),
        }) = self.queue.front()
        {
            let (packet_id, qos, given) = (*packet_id, *qos, *given);
            if given == Given::Settled && !send(packet_id, qos) {
                return;
            }
            if let Entry::Occupied(mut entry) = self.known.entry(packet_id) {
                match (given, qos) {
                    (Given::Left, _) => entry.get_mut().state = State::Left,
                    // Until its PUBREL it is known by other means.
                    (Given::Settled, QoS::ExactlyOnce) => {
                        entry.remove();
                    }
                    (Given::Settled, _) => entry.get_mut().state = State::Acknowledged,
                }
            }
            self.queue.pop_front();
            self.front += 1;
        }
    }

    /// Whether something that was given still waits for room.
    pub(super) fn is_due(&self) -> bool {
        self.queue.front().is_some_and(|slot| slot.given.is_some())
    }

    /// Whether something that came on this connection is still to be acknowledged.
    pub(super) fn is_owing(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What is known of a message of an earlier connection that came again, if that means that it
    /// need not be handed out.
    fn recognise(&self, packet_id: u16, known: Known) -> Option<Recognised> {
        match known.state {
            State::Open => Some(Recognised::InOurHands),
            State::Settled => Some(Recognised::Settled),
            State::Left => None,
            State::Acknowledged => {
                let before_the_new = self.awaited > 0
                    && self.catching_up
                    && known.first >= self.latest
                    && self.ids.are_past(packet_id);
                before_the_new.then_some(Recognised::Settled)
            }
        }
    }

    /// The number of what comes next.
    fn next(&self) -> u64 {
        self.front + self.queue.len() as u64
    }
}

enum Recognised {
    InOurHands,
    Settled,
}

impl Recognised {
    fn already(self) -> Option<Given> {
        match self {
            Self::InOurHands => None,
            Self::Settled => Some(Given::Settled),
        }
    }
}

impl From<Given> for State {
    fn from(given: Given) -> Self {
        match given {
            Given::Settled => Self::Settled,
            Given::Left => Self::Left,
        }
    }
}

// === impl Ids ===

impl Ids {
    /// A message has come that had not been received before.
    fn newest(&mut self, packet_id: u16) {
        let ahead = packet_id.wrapping_sub(self.newest);
        self.risen = if (1..=NEAR).contains(&ahead) {
            // Where they begin anew they have passed over that many at most.
            self.risen.saturating_add(1).min(u16::MAX - NEAR)
        } else {
            0
        };
        self.newest = packet_id;
    }

    /// Whether no message that follows the newest one can have that id: more others were taken
    /// before it, in turns, than can be under way, and their turn comes first. Who takes the
    /// lowest free id cannot rise for that long.
    fn are_past(&self, packet_id: u16) -> bool {
        let since = self.newest.wrapping_sub(packet_id);
        self.risen.saturating_sub(since) > self.under_way
            && packet_id.wrapping_sub(self.newest) > NEAR
    }
}

#[cfg(test)]
mod tests;
