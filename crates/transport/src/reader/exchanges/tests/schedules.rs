//! Random schedules against a simple broker that knows what is what: messages have numbers of
//! their own, and nearly all of them look alike.

use std::collections::{HashMap, HashSet, VecDeque};

use bridge_core::QoS;

use super::{Arrival, Concern, Given, Incoming, Side, Ticket, UNDER_WAY, WINDOW};

/// How a broker chooses packet ids, and how many messages it keeps open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ways {
    /// The lowest free id, with a window that is kept to.
    LowestFree,
    /// One after the other, with a window that is overrun: Mosquitto under flood.
    Around,
    /// One after the other, of only a few.
    AroundFew,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    number: usize,
    content: u64,
    qos: QoS,
}

#[derive(Debug)]
struct Flight {
    id: u16,
    message: Message,
    released: bool,
}

enum ToClient {
    Publish(u16, bool, Message),
    Release(u16),
}

enum ToBroker {
    /// PUBACK or PUBREC.
    Ack(u16),
    Complete(u16),
}

struct Broker {
    ways: Ways,
    /// Whether it sends again in the order in which it has sent.
    ordered: bool,
    latest: u16,
    queue: VecDeque<Message>,
    flights: Vec<Flight>,
    outgoing: VecDeque<ToClient>,
    incoming: VecDeque<ToBroker>,
    published: usize,
}

impl Broker {
    fn limit(&self) -> usize {
        match self.ways {
            Ways::Around => 40,
            Ways::AroundFew if self.ordered => 8,
            // More under way than may be would be another message's turn.
            Ways::LowestFree | Ways::AroundFew => usize::from(WINDOW),
        }
    }

    fn take_id(&mut self) -> u16 {
        let in_use = |id: u16| self.flights.iter().any(|flight| flight.id == id);
        let most = match self.ways {
            Ways::LowestFree => return (1..=u16::MAX).find(|&id| !in_use(id)).unwrap(),
            Ways::Around => u16::MAX,
            Ways::AroundFew => 12,
        };
        let mut id = self.latest;
        loop {
            id = if id >= most { 1 } else { id + 1 };
            if !in_use(id) {
                self.latest = id;
                return id;
            }
        }
    }

    fn send(&mut self) {
        if self.flights.len() < self.limit()
            && let Some(message) = self.queue.pop_front()
        {
            let id = self.take_id();
            self.flights.push(Flight {
                id,
                message,
                released: false,
            });
            let publish = ToClient::Publish(id, false, message);
            self.outgoing.push_back(publish);
        }
    }

    /// MQTT 5 §4.4.
    fn resume(&mut self) {
        let again = self.flights.iter().map(|flight| {
            if flight.released {
                ToClient::Release(flight.id)
            } else {
                ToClient::Publish(flight.id, true, flight.message)
            }
        });
        self.outgoing = again.collect();
    }
}

/// What has become of a message at the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    InHand,
    Settled,
    Acknowledged,
    Left,
}

struct Play {
    chance: u64,
    broker: Broker,
    side: Side,
    fates: HashMap<usize, Fate>,
    /// What each packet id last stood for.
    ids: HashMap<u16, Message>,
    in_hand: Vec<(Ticket, usize)>,
    /// What the broker itself has given up.
    given_up: HashSet<usize>,
    releasing: HashSet<u16>,
    connected: bool,
    /// Of those whose acknowledgement was sent and not read.
    doubled: usize,
    recognised: usize,
}

impl Play {
    fn new(seed: u64, ways: Ways, ordered: bool) -> Self {
        Self {
            chance: seed,
            broker: Broker {
                ways,
                ordered,
                // So that ids begin anew in the middle of it.
                latest: if ways == Ways::Around { 65_300 } else { 0 },
                queue: VecDeque::new(),
                flights: Vec::new(),
                outgoing: VecDeque::new(),
                incoming: VecDeque::new(),
                published: 0,
            },
            side: Side::new(),
            fates: HashMap::new(),
            ids: HashMap::new(),
            in_hand: Vec::new(),
            given_up: HashSet::new(),
            releasing: HashSet::new(),
            connected: true,
            doubled: 0,
            recognised: 0,
        }
    }

    /// `SplitMix64`.
    fn below(&mut self, bound: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ mixed >> 31) % bound as u64).unwrap()
    }

    fn step(&mut self) {
        match self.below(100) {
            0..20 => self.publish(),
            20..42 => self.broker.send(),
            42..65 => self.receive(),
            65..82 => self.give(Given::Settled),
            82..95 => self.read(),
            95..97 => self.give(Given::Left),
            _ if self.connected => self.cut(),
            _ => self.connect(),
        }
    }

    fn publish(&mut self) {
        let qos = [QoS::AtLeastOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        let message = Message {
            number: self.broker.published,
            content: u64::from(self.below(10) == 0),
            qos: qos[self.below(3)],
        };
        self.broker.published += 1;
        self.broker.queue.push_back(message);
    }

    fn receive(&mut self) {
        if !self.connected {
            return;
        }
        match self.broker.outgoing.pop_front() {
            Some(ToClient::Publish(id, dup, message)) => self.receive_publish(id, dup, message),
            Some(ToClient::Release(id)) => {
                self.releasing.remove(&id);
                self.broker.incoming.push_back(ToBroker::Complete(id));
            }
            None => {}
        }
    }

    fn receive_publish(&mut self, id: u16, dup: bool, message: Message) {
        let Message {
            number,
            content,
            qos,
        } = message;
        if qos == QoS::ExactlyOnce && dup && self.releasing.contains(&id) {
            // The library's part.
            self.broker.incoming.push_back(ToBroker::Ack(id));
            return;
        }
        self.ids.insert(id, message);
        let before = self.fates.get(&number).copied();
        let arrival = self.side.exchanges.arrived(Incoming {
            packet_id: id,
            qos,
            dup,
            content,
        });
        match arrival {
            Arrival::New(ticket) => {
                if matches!(before, Some(Fate::InHand | Fate::Settled)) {
                    assert!(
                        !self.broker.ordered,
                        "{number} was known and is handed out again"
                    );
                    self.forget(number);
                }
                self.doubled += usize::from(before == Some(Fate::Acknowledged));
                self.fates.insert(number, Fate::InHand);
                self.in_hand.push((ticket, number));
            }
            Arrival::Recognised => {
                assert!(
                    matches!(before, Some(fate) if fate != Fate::Left),
                    "{number} is not handed out, and nobody has it: {before:?}"
                );
                if before == Some(Fate::Acknowledged) {
                    self.fates.insert(number, Fate::Settled);
                    self.recognised += 1;
                }
            }
            Arrival::Repeated => panic!("{number} came once on this connection"),
        }
        self.send_due();
    }

    /// What it was handed out by before settles, which counts for nothing.
    fn forget(&mut self, number: usize) {
        for (ticket, _) in self.in_hand.extract_if(.., |(_, held)| *held == number) {
            let concern = self.side.exchanges.give(ticket, Given::Settled);
            assert_eq!(concern, Concern::Nowhere, "{number}");
        }
    }

    fn send_due(&mut self) {
        let mut sent = Vec::new();
        self.side.exchanges.send_what_is_due(|id, _| {
            sent.push(id);
            true
        });
        assert!(self.connected || sent.is_empty(), "there is no connection");
        for id in sent {
            let Message { number, qos, .. } = self.ids[&id];
            let fate = self.fates.insert(number, Fate::Acknowledged);
            assert_eq!(fate, Some(Fate::Settled), "{number} is acknowledged");
            if qos == QoS::ExactlyOnce {
                self.releasing.insert(id);
            }
            self.broker.incoming.push_back(ToBroker::Ack(id));
        }
    }

    fn give(&mut self, given: Given) {
        if self.in_hand.is_empty() {
            return;
        }
        let at = self.below(self.in_hand.len().min(3));
        let (ticket, number) = self.in_hand.remove(at);
        let fate = match given {
            Given::Settled => Fate::Settled,
            Given::Left => Fate::Left,
        };
        self.fates.insert(number, fate);
        self.side.exchanges.give(ticket, given);
        self.send_due();
    }

    /// The broker reads an acknowledgement.
    fn read(&mut self) {
        match self.broker.incoming.pop_front() {
            Some(ToBroker::Ack(id)) => {
                let mut flights = self.broker.flights.iter();
                let at = flights.position(|flight| flight.id == id).unwrap();
                let flight = &mut self.broker.flights[at];
                assert_eq!(self.fates[&flight.message.number], Fate::Acknowledged);
                if flight.message.qos == QoS::ExactlyOnce {
                    flight.released = true;
                    self.broker.outgoing.push_back(ToClient::Release(id));
                } else {
                    self.broker.flights.remove(at);
                }
            }
            Some(ToBroker::Complete(id)) => {
                self.broker.flights.retain(|flight| flight.id != id);
            }
            None => {}
        }
    }

    fn cut(&mut self) {
        self.broker.outgoing.clear();
        self.broker.incoming.clear();
        self.side.exchanges.end();
        self.connected = false;
    }

    fn connect(&mut self) {
        let mut resumed = true;
        match self.below(20) {
            0 => {
                self.lose_session();
                resumed = false;
            }
            // Mosquitto does that to what is in flight, though the standard does not say so.
            1 if self.broker.ways == Ways::Around => self.expire(),
            _ => {}
        }
        self.begin(resumed);
        if !resumed {
            // How a new session chooses its ids has to be seen.
            self.pass(usize::from(UNDER_WAY) * 2);
        }
    }

    fn begin(&mut self, resumed: bool) {
        self.connected = true;
        self.side.exchanges.begin(resumed);
        self.broker.resume();
        if !self.broker.ordered {
            for at in (1..self.broker.outgoing.len()).rev() {
                let other = self.below(at + 1);
                self.broker.outgoing.swap(at, other);
            }
        }
    }

    /// So many come and settle, and all of it is read.
    fn pass(&mut self, messages: usize) {
        for _ in 0..messages {
            self.publish();
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.broker.send();
        self.receive();
        self.give(Given::Settled);
        self.read();
    }

    fn lose_session(&mut self) {
        let open = self.broker.flights.drain(..).map(|flight| flight.message);
        let lost = open.chain(self.broker.queue.drain(..));
        self.given_up.extend(lost.map(|message| message.number));
        self.releasing.clear();
    }

    /// Some of what is open will not come again.
    fn expire(&mut self) {
        for flight in std::mem::take(&mut self.broker.flights) {
            if flight.released || self.below(3) > 0 {
                self.broker.flights.push(flight);
            } else {
                self.given_up.insert(flight.message.number);
            }
        }
    }

    /// Everything settles and is read, on as many connections as it takes.
    fn finish(&mut self) {
        for _ in 0..3 {
            if self.connected {
                self.cut();
            }
            self.begin(true);
            for _ in 0..10_000 {
                self.settle();
            }
        }
        let Broker {
            flights, published, ..
        } = &self.broker;
        assert!(flights.is_empty(), "{flights:?} are not acknowledged");
        for number in 0..*published {
            let fate = self.fates.get(&number);
            assert!(
                fate == Some(&Fate::Acknowledged) || self.given_up.contains(&number),
                "{number} is lost: {fate:?}"
            );
        }
    }
}

/// How many acknowledgements that were not read made a message come twice, and how many did not.
fn play(ways: Ways, ordered: bool, seeds: std::ops::Range<u64>) -> (usize, usize) {
    let plays = seeds.map(|seed| {
        let mut play = Play::new(seed, ways, ordered);
        play.pass(150);
        for _ in 0..600 {
            play.step();
        }
        play.finish();
        (play.doubled, play.recognised)
    });
    plays.fold((0, 0), |sum, play| (sum.0 + play.0, sum.1 + play.1))
}

#[test]
fn i07_whatever_happens_nothing_is_lost_nor_acknowledged_before_it_settles() {
    let (doubled, recognised) = play(Ways::Around, true, 0..500);
    assert!(
        recognised > 2 * doubled,
        "of the acknowledgements that were not read {recognised} were recognised and {doubled} not"
    );
    play(Ways::AroundFew, true, 500..750);
    let (_, recognised) = play(Ways::LowestFree, true, 750..1_000);
    assert_eq!(recognised, 0, "that may be another message");
}

#[test]
fn i07_whatever_comes_again_in_whatever_order_nothing_is_lost() {
    play(Ways::Around, false, 1_000..1_100);
    play(Ways::AroundFew, false, 1_100..1_200);
    play(Ways::LowestFree, false, 1_200..1_300);
}
