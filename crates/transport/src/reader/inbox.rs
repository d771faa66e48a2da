//! What has been received and not been asked for yet.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{Delivery, QoS};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What is held of a delivery besides its message.
const OVERHEAD: u64 = 512;
/// What is held of a user property besides its texts.
const PAIR_OVERHEAD: u64 = 80;

/// Deliveries in order of arrival, bounded in bytes.
///
/// Our Receive Maximum bounds what a broker sends of QoS 1 and 2 before we acknowledge, and a
/// session connects again only when fewer than that wait here. But Mosquitto 2.0.11 answers each
/// acknowledgement with a whole window more, so a backlog would come into memory as a whole:
/// nothing is read from a broker any more while there is no room. QoS 0 is bounded in number too.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Told when something has come.
    filled: Notify,
    /// Told when something has been taken.
    taken: Notify,
    qos0_room: usize,
    bytes_room: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    qos0: usize,
    bytes: u64,
    closed: bool,
}

impl Inbox {
    pub(super) fn new(qos0_room: usize, bytes_room: u64) -> Self {
        Self {
            waiting: Mutex::default(),
            filled: Notify::new(),
            taken: Notify::new(),
            qos0_room,
            bytes_room,
        }
    }

    /// Adds a delivery when there is room.
    ///
    /// One of QoS 0 is dropped (false) when there is none in time: the connection must go on, or
    /// its keep-alive lapses. One of QoS 1 or 2 waits as long as it takes: the broker has sent
    /// more than it may, and if the keep-alive lapses, it keeps the rest.
    pub(super) async fn push(&self, delivery: Delivery, patience: Duration) -> bool {
        let qos = delivery.message.qos;
        let room = self.room_for(qos);
        if qos == QoS::AtMostOnce {
            if timeout(patience, room).await.is_err() {
                return false;
            }
        } else {
            room.await;
        }
        self.with(|waiting| waiting.add(delivery));
        self.filled.notify_one();
        true
    }

    /// The next delivery, or `None` once closed and empty.
    pub(super) async fn next(&self) -> Option<Delivery> {
        loop {
            let filled = self.filled.notified();
            let (delivery, closed) = self.with(|waiting| (waiting.take(), waiting.closed));
            if delivery.is_some() {
                self.taken.notify_one();
                return delivery;
            }
            if closed {
                return None;
            }
            filled.await;
        }
    }

    /// Forgets what the broker will send again.
    pub(super) fn forget_acknowledgeable(&self) {
        let forgotten = self.with(|waiting| {
            let all = std::mem::take(&mut waiting.deliveries);
            (waiting.qos0, waiting.bytes) = (0, 0);
            let (kept, forgotten): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|delivery| delivery.message.qos == QoS::AtMostOnce);
            for delivery in kept {
                waiting.add(delivery);
            }
            forgotten
        });
        drop(forgotten);
        self.taken.notify_one();
    }

    /// Waits until at most `count` deliveries of QoS 1 and 2 wait.
    pub(super) async fn at_most(&self, count: usize) {
        loop {
            let taken = self.taken.notified();
            let waiting = self.with(|waiting| waiting.deliveries.len() - waiting.qos0);
            if waiting <= count {
                return;
            }
            taken.await;
        }
    }

    /// Nothing more will come. What waits of QoS 1 and 2 stays with the broker.
    pub(super) fn close(&self) {
        self.with(|waiting| waiting.closed = true);
        self.filled.notify_one();
    }

    async fn room_for(&self, qos: QoS) {
        loop {
            let taken = self.taken.notified();
            let room = self.with(|waiting| {
                let number = qos != QoS::AtMostOnce || waiting.qos0 < self.qos0_room;
                number && (waiting.bytes < self.bytes_room)
            });
            if room {
                return;
            }
            taken.await;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Waiting) -> R) -> R {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Waiting {
    fn add(&mut self, delivery: Delivery) {
        self.qos0 += usize::from(delivery.message.qos == QoS::AtMostOnce);
        self.bytes += cost(&delivery);
        self.deliveries.push_back(delivery);
    }

    fn take(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.pop_front()?;
        self.qos0 -= usize::from(delivery.message.qos == QoS::AtMostOnce);
        self.bytes -= cost(&delivery);
        Some(delivery)
    }
}

fn cost(delivery: &Delivery) -> u64 {
    // A pair of five bytes on the wire is two strings here.
    let pairs = delivery.message.properties.user_properties.len() as u64;
    delivery.message.size() + OVERHEAD + pairs * PAIR_OVERHEAD
}

#[cfg(test)]
mod tests {
    use bridge_core::{Message, Timestamp, Topic};
    use tokio::time::timeout;

    use super::*;
    use crate::reader::acks::Receipt;

    const SHORT: Duration = Duration::from_millis(20);

    fn delivery(qos: QoS, payload: usize) -> Delivery {
        let mut message = Message::new(Topic::parse("t").unwrap(), vec![0; payload]);
        message.qos = qos;
        Delivery {
            message,
            received: Timestamp::from_millis(0),
            redelivered: false,
            acknowledge: Box::new(Receipt::nothing_owed()),
        }
    }

    #[tokio::test]
    async fn a_broker_that_sends_more_than_it_may_is_not_read_while_there_is_no_room() {
        let inbox = Inbox::new(10, 10_000);
        let push = || inbox.push(delivery(QoS::AtLeastOnce, 6_000), Duration::ZERO);
        assert!(push().await && push().await, "the bound may be passed once");
        let mut third = std::pin::pin!(push());
        assert!(
            timeout(SHORT, &mut third).await.is_err(),
            "there is no room"
        );
        inbox.next().await.unwrap();
        assert!(third.await, "there is room again");
        inbox.forget_acknowledgeable();
        assert!(
            push().await && push().await,
            "what is forgotten takes no room"
        );
    }

    #[tokio::test]
    async fn qos_0_is_bounded_in_number_and_bytes_and_dropped_after_its_patience() {
        let inbox = Inbox::new(2, 10_000);
        let push = |payload| inbox.push(delivery(QoS::AtMostOnce, payload), SHORT);
        assert!(push(1).await && push(1).await);
        assert!(!push(1).await, "two wait already");
        inbox.forget_acknowledgeable();
        inbox.next().await.unwrap();
        assert!(push(20_000).await);
        inbox.next().await.unwrap();
        assert!(!push(1).await, "the bytes are taken");
    }
}
