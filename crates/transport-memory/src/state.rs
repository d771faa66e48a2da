//! The broker itself: who is subscribed to what, and what each of them waits for. No I/O, no
//! task; the time is passed in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Message, Name, QoS, Quantity, Subscription, Timestamp, Topic, TopicFilter};

use crate::Options;
use crate::backlog::{Backlog, Consumer, NativeDeadLetter, Standing, Swept, Taken, Ticket};

/// Who reads a subscription: one client, or whoever of a share group comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reader {
    Client(Name),
    Group(String),
}

/// Names a subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) stream: String,
    pub(crate) reader: Reader,
}

impl Key {
    /// The key of `stream` as `client` asks for it; `group` says it again for a shared one.
    pub(crate) fn new(client: &Name, stream: &TopicFilter, group: Option<&str>) -> Self {
        let reader = match group.or(stream.share_group()) {
            Some(group) => Reader::Group(group.to_owned()),
            None => Reader::Client(client.clone()),
        };
        Self {
            stream: stream.pattern().to_owned(),
            reader,
        }
    }
}

#[derive(Debug)]
struct Stream {
    filter: TopicFilter,
    qos: QoS,
    no_local: bool,
    backlog: Backlog,
}

#[derive(Debug)]
struct Attached {
    client: Name,
    keys: Vec<Key>,
    in_flight: u64,
}

#[derive(Debug)]
struct Retained {
    message: Arc<Message>,
    received: Timestamp,
}

/// The instants of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Duration,
}

/// What came of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Each of so many subscriptions has it.
    To(usize),
    /// There is no room at one of the subscriptions, or among the retained messages: none has it.
    NoRoom,
}

/// What a source does next.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver {
        key: Key,
        number: u64,
        ticket: Ticket,
        qos: QoS,
        taken: Taken,
    },
    /// Nothing now; the time may bring something then.
    Wait(Option<Duration>),
    /// The source is closed, or another took its place.
    Closed,
}

#[derive(Debug)]
pub(crate) struct State {
    options: Options,
    streams: BTreeMap<Key, Stream>,
    attached: BTreeMap<Consumer, Attached>,
    retained: BTreeMap<Topic, Retained>,
    retained_bytes: u64,
    not_retained: u64,
    next: u64,
}

impl State {
    pub(crate) const fn new(options: Options) -> Self {
        Self {
            options,
            streams: BTreeMap::new(),
            attached: BTreeMap::new(),
            retained: BTreeMap::new(),
            retained_bytes: 0,
            not_retained: 0,
            next: 0,
        }
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) const fn not_retained(&self) -> u64 {
        self.not_retained
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives a message to every subscription that wants it, or to none.
    pub(crate) fn publish(&mut self, from: &Name, message: Message, wall: Timestamp) -> Published {
        let size = message.size();
        let mut keep = message.retain && self.options.retained.is_some();
        if keep && !message.payload.is_empty() && !self.has_room_to_retain(&message.topic, size) {
            if message.qos > QoS::AtMostOnce {
                return Published::NoRoom;
            }
            keep = false;
            self.not_retained += 1;
        }
        let targets = self.targets(from, &message.topic);
        let full = |key: &Key| {
            let stream = self.streams.get(key);
            stream.is_some_and(|s| !s.backlog.has_room(size, &self.options))
        };
        if message.qos > QoS::AtMostOnce && targets.iter().any(full) {
            return Published::NoRoom;
        }
        let number = self.number();
        let message = Arc::new(message);
        for key in &targets {
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            if stream.backlog.has_room(size, &self.options) {
                stream.backlog.push(number, message.clone(), wall);
            } else {
                stream.backlog.drop_one();
            }
        }
        if keep {
            self.retain(message, wall);
        }
        Published::To(targets.len())
    }

    /// The subscriptions that get a message: one of each client, and every share group.
    fn targets(&self, from: &Name, topic: &Topic) -> Vec<Key> {
        let mut of_client: BTreeMap<&Name, (&Key, QoS)> = BTreeMap::new();
        let mut targets = Vec::new();
        for (key, stream) in &self.streams {
            if !stream.filter.matches(topic) {
                continue;
            }
            match &key.reader {
                Reader::Group(_) => targets.push(key.clone()),
                Reader::Client(client) if stream.no_local && client == from => {}
                Reader::Client(client) => {
                    let best = of_client.entry(client).or_insert((key, stream.qos));
                    if stream.qos > best.1 {
                        *best = (key, stream.qos);
                    }
                }
            }
        }
        targets.extend(of_client.into_values().map(|(key, _)| key.clone()));
        targets
    }

    fn has_room_to_retain(&self, topic: &Topic, size: u64) -> bool {
        let earlier = self.retained.get(topic).map(|old| old.message.size());
        let kept = Quantity {
            entries: self.retained.len() as u64 - u64::from(earlier.is_some()),
            bytes: self.retained_bytes - earlier.unwrap_or_default(),
        };
        let bounds = self.options.retained;
        bounds.is_some_and(|bounds| bounds.have_room(kept, size))
    }

    fn retain(&mut self, message: Arc<Message>, received: Timestamp) {
        let earlier = if message.payload.is_empty() {
            self.retained.remove(&message.topic)
        } else {
            self.retained_bytes += message.size();
            let topic = message.topic.clone();
            self.retained.insert(topic, Retained { message, received })
        };
        self.retained_bytes -= earlier.map_or(0, |old| old.message.size());
    }

    /// Attaches a source of `client`. One that the client had before is closed; what its
    /// subscriptions hold is still there.
    pub(crate) fn attach(&mut self, client: Name, subscriptions: &[Subscription]) -> Consumer {
        let earlier = self.attached.iter().find(|(_, one)| one.client == client);
        if let Some(earlier) = earlier.map(|(consumer, _)| *consumer) {
            self.detach(earlier);
        }
        let mut keys = Vec::new();
        for asked in subscriptions {
            let key = Key::new(&client, &asked.filter, None);
            // QoS 2 is delivered with 1: an exchange of two steps means nothing in one process.
            let qos = asked.qos.min(QoS::AtLeastOnce);
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.qos = stream.qos.max(qos);
                stream.no_local = asked.no_local;
            } else {
                self.subscribe(key.clone(), asked, qos);
            }
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let consumer = Consumer(self.number());
        let attached = Attached {
            client,
            keys,
            in_flight: 0,
        };
        self.attached.insert(consumer, attached);
        consumer
    }

    fn subscribe(&mut self, key: Key, asked: &Subscription, qos: QoS) {
        let mut backlog = Backlog::default();
        // No retained message for a shared subscription: MQTT 5 §4.8.2.
        if matches!(key.reader, Reader::Client(_)) {
            for (topic, retained) in &self.retained {
                let room = backlog.has_room(retained.message.size(), &self.options);
                if asked.filter.matches(topic) && room {
                    self.next += 1;
                    backlog.push(self.next, retained.message.clone(), retained.received);
                }
            }
        }
        let stream = Stream {
            filter: asked.filter.clone(),
            qos,
            no_local: asked.no_local,
            backlog,
        };
        self.streams.insert(key, stream);
    }

    /// Ends a source: what it has not settled is ready for its next one, or its group.
    pub(crate) fn detach(&mut self, consumer: Consumer) {
        let Some(attached) = self.attached.remove(&consumer) else {
            return;
        };
        for key in &attached.keys {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.backlog.release(consumer);
            }
        }
    }

    /// Ends a source and what it is subscribed to; a share group ends with the last of its sources
    /// that are attached.
    pub(crate) fn end(&mut self, consumer: Consumer) {
        let keys = self.attached.get(&consumer).map(|one| one.keys.clone());
        self.detach(consumer);
        for key in keys.unwrap_or_default() {
            if !self.attached.values().any(|one| one.keys.contains(&key)) {
                self.streams.remove(&key);
            }
        }
    }

    /// Someone else counts for `stream` as `client` reads it. Says whether there is such a
    /// subscription.
    pub(crate) fn own(
        &mut self,
        consumer: Consumer,
        stream: &TopicFilter,
        group: Option<&str>,
    ) -> bool {
        let Some(attached) = self.attached.get(&consumer) else {
            return false;
        };
        let wanted = Key::new(&attached.client, stream, group);
        let mut found = false;
        for key in attached.keys.iter().filter(|k| k.reader == wanted.reader) {
            // A source may have been asked for a wider filter than its owner names, or for the
            // narrower ones that it covers.
            if let Some(mine) = self.streams.get_mut(key)
                && (mine.filter.covers(stream) || stream.covers(&mine.filter))
            {
                mine.backlog.own();
                found = true;
            }
        }
        found
    }

    /// What `consumer` gets next: the oldest message of all its subscriptions.
    pub(crate) fn step(&mut self, consumer: Consumer, now: Now) -> Step {
        let Some(attached) = self.attached.get(&consumer) else {
            return Step::Closed;
        };
        let keys = attached.keys.clone();
        self.sweep_some(&keys, now.monotonic);
        let window = u64::from(self.options.max_in_flight.get());
        let in_flight = self.attached.get(&consumer).map_or(0, |one| one.in_flight);
        let mut oldest: Option<(u64, &Key)> = None;
        for key in keys.iter().filter(|_| in_flight < window) {
            let ready = self.streams.get_mut(key);
            let ready = ready.and_then(|stream| stream.backlog.first_ready(now.wall));
            if let Some(number) = ready
                && oldest.is_none_or(|(first, _)| number < first)
            {
                oldest = Some((number, key));
            }
        }
        let delivered = oldest.and_then(|(number, key)| self.deliver(consumer, number, key, now));
        delivered.unwrap_or_else(|| Step::Wait(self.next_sweep(&keys)))
    }

    fn deliver(&mut self, consumer: Consumer, number: u64, key: &Key, now: Now) -> Option<Step> {
        let ticket = Ticket(self.number());
        let stream = self.streams.get_mut(key)?;
        let (mine, until) = (stream.qos, now.monotonic + self.options.stale_after);
        let qos = stream.backlog.qos_of(number)?.min(mine);
        let taken = stream
            .backlog
            .take(number, qos, (consumer, ticket), until)?;
        if qos > QoS::AtMostOnce
            && let Some(attached) = self.attached.get_mut(&consumer)
        {
            attached.in_flight += 1;
        }
        let key = key.clone();
        Some(Step::Deliver {
            key,
            number,
            ticket,
            qos,
            taken,
        })
    }

    fn next_sweep(&self, keys: &[Key]) -> Option<Duration> {
        let streams = keys.iter().filter_map(|key| self.streams.get(key));
        streams
            .filter_map(|stream| stream.backlog.next_sweep())
            .min()
    }

    pub(crate) fn settle(&mut self, key: &Key, number: u64, ticket: Ticket) {
        let stream = self.streams.get_mut(key);
        let holder = stream.and_then(|stream| stream.backlog.settle(number, ticket));
        self.freed(holder);
    }

    pub(crate) fn leave(&mut self, key: &Key, number: u64, ticket: Ticket, now: Duration) {
        let stream = self.streams.get_mut(key);
        let holder =
            stream.and_then(|stream| stream.backlog.leave(number, ticket, now, &self.options));
        self.freed(holder);
    }

    pub(crate) fn sweep(&mut self, now: Duration) -> Swept {
        let keys: Vec<Key> = self.streams.keys().cloned().collect();
        self.sweep_some(&keys, now)
    }

    fn sweep_some(&mut self, keys: &[Key], now: Duration) -> Swept {
        let mut sum = Swept::default();
        for key in keys {
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let (swept, freed) = stream.backlog.sweep(now, &self.options);
            sum.redelivered += swept.redelivered;
            sum.held += swept.held;
            sum.dead_lettered += swept.dead_lettered;
            self.freed(freed);
        }
        sum
    }

    fn freed(&mut self, holders: impl IntoIterator<Item = Consumer>) {
        for holder in holders {
            if let Some(attached) = self.attached.get_mut(&holder) {
                attached.in_flight = attached.in_flight.saturating_sub(1);
            }
        }
    }

    pub(crate) fn is_attached(&self, consumer: Consumer) -> bool {
        self.attached.contains_key(&consumer)
    }

    pub(crate) fn standing(&self, key: &Key) -> Option<Standing> {
        let stream = self.streams.get(key)?;
        Some(stream.backlog.standing())
    }

    pub(crate) fn dead_letters(&self, key: &Key) -> Vec<NativeDeadLetter> {
        let stream = self.streams.get(key);
        let letters = stream.into_iter().flat_map(|s| s.backlog.dead_letters());
        letters.cloned().collect()
    }
}
