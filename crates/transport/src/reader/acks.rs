//! Acknowledgements: given in any order, sent in the order of arrival, each on the connection that
//! its message came on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::{Acknowledge, QoS};
use rumqttc::mqttbytes::v5::{PubAck, PubRec};
use rumqttc::{AsyncClient, ManualAck};
use tokio::sync::Notify;

use super::exchanges::{Arrival, Concern, Exchanges, Given, Incoming, Ticket};
use crate::stats::Counters;

/// QoS 2 messages that were acknowledged and that the broker has not released: a repetition of
/// one is no new message. Lives as long as that session does, and not with another broker.
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

    fn is_empty(&self) -> bool {
        self.with(|ids| ids.is_empty())
    }

    pub(super) fn all(&self) -> Vec<u16> {
        self.with(|ids| ids.iter().copied().collect())
    }

    fn with<R>(&self, f: impl FnOnce(&mut HashSet<u16>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The acknowledgements that a reader owes, in order of arrival (MQTT 5 §4.6).
///
/// Each belongs to one connection. One that is given after that has ended is dropped, unless the
/// broker has sent its message again since: then it is that connection's.
#[derive(Debug)]
pub(super) struct Acks {
    owed: Mutex<Owed>,
    /// Told when nothing that was given waits for room any more, or a message has been released.
    handed_over: Notify,
    releasing: Arc<Releasing>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Owed {
    /// `None` while there is no connection.
    line: Option<Line>,
    exchanges: Exchanges,
}

/// What a connection is told by.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) outlet: Box<dyn Outlet>,
    /// Told when a message that came on it is left with the broker.
    pub(super) left: Arc<Notify>,
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
        receive_maximum: u16,
        releasing: Arc<Releasing>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            owed: Mutex::new(Owed {
                line: None,
                exchanges: Exchanges::new(receive_maximum),
            }),
            handed_over: Notify::new(),
            releasing,
            counters,
        }
    }

    /// A connection stands. `resumed` says that the broker goes on with the session of the one
    /// before.
    pub(super) fn begin(&self, line: Line, resumed: bool) {
        let mut owed = self.lock();
        owed.exchanges.begin(resumed);
        owed.line = Some(line);
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let mut owed = self.lock();
        owed.line = None;
        owed.exchanges.end();
        self.handed_over.notify_waiters();
    }

    /// Whether the broker has to send again what was left with it on an earlier connection.
    pub(super) fn any_left(&self) -> bool {
        self.lock().exchanges.any_left()
    }

    /// A message of QoS 1 or 2 has come: the right to acknowledge it, or `None` when it is not to
    /// be handed out.
    pub(super) fn arrived(self: &Arc<Self>, incoming: Incoming) -> Option<Receipt> {
        let mut owed = self.lock();
        match owed.exchanges.arrived(incoming) {
            Arrival::New(ticket) => Some(Receipt(Some((Arc::clone(self), ticket)))),
            Arrival::Recognised => {
                self.send_what_is_due(&mut owed);
                self.counters.recognised();
                None
            }
            Arrival::Repeated => None,
        }
    }

    fn give(&self, ticket: Ticket, given: Given) {
        let mut owed = self.lock();
        match (owed.exchanges.give(ticket, given), given) {
            (Concern::Here, given) => {
                self.send_what_is_due(&mut owed);
                if given == Given::Left {
                    self.counters.left.add(1);
                    if let Some(line) = &owed.line {
                        line.left.notify_one();
                    }
                }
            }
            (Concern::Nowhere, Given::Settled) => self.counters.late_acknowledgements.add(1),
            (Concern::Nowhere, Given::Left) => {}
        }
    }

    /// Sends what there was no room for when it was given.
    pub(super) fn send_rest(&self) {
        self.send_what_is_due(&mut self.lock());
    }

    /// Ends when nothing that was given waits for room any more: what waits is sent when the
    /// connection says that there is room, or has ended.
    pub(super) async fn handed_over(&self) {
        loop {
            let told = self.handed_over.notified();
            if !self.lock().exchanges.is_due() {
                return;
            }
            told.await;
        }
    }

    /// The broker has released a message of QoS 2.
    pub(super) fn released(&self, packet_id: u16) {
        self.releasing.released(packet_id);
        self.handed_over.notify_waiters();
    }

    /// Ends when the broker waits for nothing of ours: all that came on this connection has been
    /// settled or left, every acknowledgement has been handed to the library, and those of QoS 2
    /// have been answered.
    pub(super) async fn all_settled(&self) {
        loop {
            let told = self.handed_over.notified();
            if !self.lock().exchanges.is_owing() && self.releasing.is_empty() {
                return;
            }
            told.await;
        }
    }

    /// Sends as much as there is room for. Where the library has no room for more, the rest
    /// follows when it has sent some.
    fn send_what_is_due(&self, owed: &mut Owed) {
        let Some(line) = &owed.line else { return };
        owed.exchanges.send_what_is_due(|packet_id, qos| {
            let sent = line.outlet.send(packet_id, qos);
            if sent && qos == QoS::ExactlyOnce {
                self.releasing.insert(packet_id);
            }
            sent
        });
        if !owed.exchanges.is_due() {
            self.handed_over.notify_waiters();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to acknowledge one message; that of a QoS 0 message is empty.
#[derive(Debug)]
pub(super) struct Receipt(Option<(Arc<Acks>, Ticket)>);

impl Receipt {
    pub(super) const fn nothing_owed() -> Self {
        Self(None)
    }

    fn give(&mut self, given: Given) {
        if let Some((acks, ticket)) = self.0.take() {
            acks.give(ticket, given);
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
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

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
        let acks = Acks::new(5, Arc::default(), Arc::clone(&counters));
        let acks = Arc::new(acks);
        connect(&acks, &sent);
        (acks, sent, counters)
    }

    fn connect(acks: &Acks, sent: &Sent) {
        let line = Line {
            outlet: Box::new(sent.clone()),
            left: Arc::default(),
        };
        acks.begin(line, true);
    }

    fn arrived(acks: &Arc<Acks>, packet_id: u16, dup: bool) -> Option<Receipt> {
        acks.arrived(Incoming {
            packet_id,
            qos: QoS::AtLeastOnce,
            dup,
            content: 0,
        })
    }

    fn arrive(acks: &Arc<Acks>, packet_id: u16) -> Box<dyn Acknowledge> {
        Box::new(arrived(acks, packet_id, false).unwrap())
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
    fn a_goodbye_waits_until_the_last_acknowledgement_has_found_room() {
        let (acks, sent, _) = acks();
        for id in 1..=4 {
            arrive(&acks, id).settled();
        }
        let mut handed_over = pin!(acks.handed_over());
        let mut context = Context::from_waker(Waker::noop());
        assert!(handed_over.as_mut().poll(&mut context).is_pending());
        sent.make_room();
        acks.send_rest();
        assert!(handed_over.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_goodbye_waits_no_longer_than_its_connection_lives() {
        let (acks, _, _) = acks();
        for id in 1..=4 {
            arrive(&acks, id).settled();
        }
        let mut handed_over = pin!(acks.handed_over());
        let mut context = Context::from_waker(Waker::noop());
        assert!(handed_over.as_mut().poll(&mut context).is_pending());
        acks.end();
        assert!(handed_over.as_mut().poll(&mut context).is_ready());
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
            arrived(&acks, 1, false).is_none(),
            "still open at the broker"
        );
        assert!(arrived(&acks, 2, false).is_some(), "free again");
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
        assert!(arrived(&acks, 1, false).is_none());
        first.settled();
        assert_eq!(sent.ids(), [1]);
    }

    #[test]
    fn what_comes_again_is_acknowledged_on_the_connection_that_stands() {
        let (acks, sent, counters) = acks();
        let (first, second) = (arrive(&acks, 1), arrive(&acks, 2));
        acks.end();
        second.settled();
        connect(&acks, &sent);
        assert!(arrived(&acks, 1, true).is_none());
        assert!(arrived(&acks, 2, true).is_none());
        assert_eq!(sent.ids(), [0; 0], "the first has not settled");
        first.settled();
        assert_eq!(sent.ids(), [1, 2]);
        assert_eq!(counters.snapshot().redeliveries_recognised, 2);
        assert_eq!(counters.snapshot().late_acknowledgements, 1);
    }
}
