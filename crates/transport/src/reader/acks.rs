//! Acknowledgements of one connection: given in any order, sent in the order of arrival.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::{Acknowledge, QoS};
use rumqttc::mqttbytes::v5::{PubAck, PubRec};
use rumqttc::{AsyncClient, ManualAck};
use tokio::sync::Notify;

use crate::stats::Counters;

/// QoS 2 messages that were acknowledged and that the broker has not released: a repetition of
/// one is no new message. Lives as long as the broker's session does.
#[derive(Debug, Default)]
pub(super) struct Releasing(Mutex<HashSet<u16>>);

impl Releasing {
    pub(super) fn insert(&self, packet_id: u16) {
        self.with(|ids| ids.insert(packet_id));
    }

    pub(super) fn released(&self, packet_id: u16) {
        self.with(|ids| ids.remove(&packet_id));
    }

    pub(super) fn contains(&self, packet_id: u16) -> bool {
        self.with(|ids| ids.contains(&packet_id))
    }

    pub(super) fn clear(&self) {
        self.with(HashSet::clear);
    }

    pub(super) fn all(&self) -> Vec<u16> {
        self.with(|ids| ids.iter().copied().collect())
    }

    fn with<R>(&self, f: impl FnOnce(&mut HashSet<u16>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The acknowledgements that one connection owes, in order of arrival (MQTT 5 §4.6).
///
/// It belongs to one connection, an epoch: what is given after that connection has ended is
/// dropped here. The broker sends those messages again.
#[derive(Debug)]
pub(super) struct Acks {
    owed: Mutex<Owed>,
    releasing: Arc<Releasing>,
    counters: Arc<Counters>,
    /// Told when a message is left with the broker.
    left: Arc<Notify>,
}

#[derive(Debug)]
struct Owed {
    /// `None` once the connection has ended.
    sender: Option<Box<dyn Outlet>>,
    queue: VecDeque<Slot>,
    ids: HashSet<u16>,
    /// The number of the slot at the front.
    first: u64,
}

#[derive(Debug)]
struct Slot {
    packet_id: u16,
    qos: QoS,
    given: Option<Given>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    Settled,
    Left,
}

/// Where acknowledgements go. True when it was taken.
pub(super) trait Outlet: Send + std::fmt::Debug {
    fn send(&self, packet_id: u16, qos: QoS) -> bool;
}

impl Outlet for AsyncClient {
    fn send(&self, packet_id: u16, qos: QoS) -> bool {
        let ack = match qos {
            QoS::AtMostOnce => return true,
            QoS::AtLeastOnce => ManualAck::PubAck(PubAck::new(packet_id, None)),
            QoS::ExactlyOnce => ManualAck::PubRec(PubRec::new(packet_id, None)),
        };
        self.try_manual_ack(ack).is_ok()
    }
}

impl Acks {
    pub(super) fn new(
        sender: Box<dyn Outlet>,
        releasing: Arc<Releasing>,
        counters: Arc<Counters>,
        left: Arc<Notify>,
    ) -> Self {
        Self {
            owed: Mutex::new(Owed {
                sender: Some(sender),
                queue: VecDeque::new(),
                ids: HashSet::new(),
                first: 0,
            }),
            releasing,
            counters,
            left,
        }
    }

    /// A message of QoS 1 or 2 has come. `None` when it has come before on this connection and
    /// is still owed its acknowledgement: a broker must not do that (MQTT 5 §4.4), and one
    /// acknowledgement is all that it may get.
    pub(super) fn arrived(self: &Arc<Self>, packet_id: u16, qos: QoS) -> Option<Receipt> {
        let mut owed = self.lock();
        if !owed.ids.insert(packet_id) {
            return None;
        }
        let number = owed.first + owed.queue.len() as u64;
        owed.queue.push_back(Slot {
            packet_id,
            qos,
            given: None,
        });
        Some(Receipt(Some((Arc::clone(self), number))))
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let mut owed = self.lock();
        owed.sender = None;
        owed.queue.clear();
        owed.ids.clear();
    }

    fn give(&self, number: u64, given: Given) {
        let mut owed = self.lock();
        if owed.sender.is_none() {
            if given == Given::Settled {
                self.counters.late_acknowledgements.add(1);
            }
            return;
        }
        let index = usize::try_from(number.saturating_sub(owed.first)).unwrap_or(usize::MAX);
        if let Some(slot) = owed.queue.get_mut(index) {
            slot.given = Some(given);
        }
        owed.send_what_is_due(&self.releasing);
        drop(owed);
        if given == Given::Left {
            self.counters.left.add(1);
            self.left.notify_one();
        }
    }

    /// Sends what there was no room for when it was given.
    pub(super) fn send_rest(&self) {
        self.lock().send_what_is_due(&self.releasing);
    }

    /// Whether something that was given still waits for room.
    pub(super) fn is_due(&self) -> bool {
        let front_is_given = |slot: &Slot| slot.given.is_some();
        self.lock().queue.front().is_some_and(front_is_given)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    /// Sends from the front as far as everything has been given. What was left is passed over:
    /// it will not be acknowledged on this connection, and the order of the others stays. Where
    /// the library has no room for more, the rest follows when it has sent some.
    fn send_what_is_due(&mut self, releasing: &Releasing) {
        while let Some(Slot {
            packet_id,
            qos,
            given: Some(given),
        }) = self.queue.front()
        {
            let (packet_id, qos, given) = (*packet_id, *qos, *given);
            if given == Given::Settled {
                let sent = self
                    .sender
                    .as_ref()
                    .is_some_and(|sender| sender.send(packet_id, qos));
                if !sent {
                    return;
                }
                if qos == QoS::ExactlyOnce {
                    releasing.insert(packet_id);
                }
                self.ids.remove(&packet_id);
            }
            self.queue.pop_front();
            self.first += 1;
        }
    }
}

/// The right to acknowledge one message; that of a QoS 0 message is empty.
#[derive(Debug)]
pub(super) struct Receipt(Option<(Arc<Acks>, u64)>);

impl Receipt {
    pub(super) const fn nothing_owed() -> Self {
        Self(None)
    }

    fn give(&mut self, given: Given) {
        if let Some((acks, number)) = self.0.take() {
            acks.give(number, given);
        }
    }
}

impl Acknowledge for Receipt {
    fn settled(mut self: Box<Self>) {
        self.give(Given::Settled);
    }

    fn leave(mut self: Box<Self>) {
        self.give(Given::Left);
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.give(Given::Left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was sent; there is room for three at a time.
    #[derive(Debug, Clone, Default)]
    struct Sent(Arc<Mutex<Vec<u16>>>);

    impl Outlet for Sent {
        fn send(&self, packet_id: u16, _: QoS) -> bool {
            let mut sent = self.0.lock().unwrap();
            let room = sent.len() < 3;
            if room {
                sent.push(packet_id);
            }
            room
        }
    }

    impl Sent {
        fn ids(&self) -> Vec<u16> {
            self.0.lock().unwrap().clone()
        }

        fn make_room(&self) {
            self.0.lock().unwrap().clear();
        }
    }

    fn acks() -> (Arc<Acks>, Sent, Arc<Counters>) {
        let (sent, counters) = (Sent::default(), Arc::new(Counters::default()));
        let acks = Acks::new(
            Box::new(sent.clone()),
            Arc::default(),
            Arc::clone(&counters),
            Arc::default(),
        );
        (Arc::new(acks), sent, counters)
    }

    fn arrive(acks: &Arc<Acks>, packet_id: u16) -> Box<dyn Acknowledge> {
        Box::new(acks.arrived(packet_id, QoS::AtLeastOnce).unwrap())
    }

    #[test]
    fn acknowledgements_leave_in_the_order_of_arrival() {
        let (acks, sent, _) = acks();
        let (first, second, third) = (arrive(&acks, 7), arrive(&acks, 3), arrive(&acks, 5));
        third.settled();
        second.settled();
        assert!(sent.ids().is_empty());
        first.settled();
        assert_eq!(sent.ids(), [7, 3, 5]);
    }

    #[test]
    fn what_there_was_no_room_for_follows_without_another_acknowledgement() {
        let (acks, sent, _) = acks();
        let receipts: Vec<_> = (1..=5).map(|id| arrive(&acks, id)).collect();
        for receipt in receipts {
            receipt.settled();
        }
        assert_eq!(sent.ids(), [1, 2, 3]);
        sent.make_room();
        acks.send_rest();
        assert_eq!(sent.ids(), [4, 5]);
    }

    #[test]
    fn what_is_left_holds_nothing_back_and_is_never_acknowledged() {
        let (acks, sent, counters) = acks();
        let (first, second, third) = (arrive(&acks, 1), arrive(&acks, 2), arrive(&acks, 3));
        third.settled();
        second.settled();
        drop(first);
        assert_eq!(sent.ids(), [2, 3]);
        assert_eq!(counters.snapshot().left, 1);
        assert!(
            acks.arrived(1, QoS::AtLeastOnce).is_none(),
            "still open at the broker"
        );
        assert!(acks.arrived(2, QoS::AtLeastOnce).is_some(), "free again");
    }

    #[test]
    fn what_comes_after_the_connection_has_ended_is_dropped() {
        let (acks, sent, counters) = acks();
        let (first, second) = (arrive(&acks, 1), arrive(&acks, 2));
        acks.end();
        first.settled();
        second.leave();
        assert!(sent.ids().is_empty());
        assert_eq!(counters.snapshot().late_acknowledgements, 1);
        assert_eq!(counters.snapshot().left, 0);
    }

    #[test]
    fn a_message_that_comes_twice_on_one_connection_is_owed_one_acknowledgement() {
        let (acks, sent, _) = acks();
        let first = arrive(&acks, 1);
        assert!(acks.arrived(1, QoS::AtLeastOnce).is_none());
        first.settled();
        assert_eq!(sent.ids(), [1]);
    }
}
