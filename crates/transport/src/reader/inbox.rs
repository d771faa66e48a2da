//! What has been received and not been asked for yet.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{Delivery, QoS};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Deliveries in order of arrival.
///
/// QoS 1 and 2 need no bound here: the broker sends no more than our Receive Maximum before we
/// acknowledge, and a session connects again only when fewer than that wait here. QoS 0 has no
/// such bound, and gets one.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Told when something has come.
    filled: Notify,
    /// Told when something has been taken.
    taken: Notify,
    qos0_room: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    qos0: usize,
    closed: bool,
}

impl Inbox {
    pub(super) fn new(qos0_room: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            filled: Notify::new(),
            taken: Notify::new(),
            qos0_room,
        }
    }

    /// Adds a delivery. One of QoS 0 waits for room, and is dropped (false) when there is none in
    /// time: the connection must go on, or its keep-alive lapses.
    pub(super) async fn push(&self, delivery: Delivery, patience: Duration) -> bool {
        if delivery.message.qos == QoS::AtMostOnce && !self.has_qos0_room() {
            let room = async {
                loop {
                    let taken = self.taken.notified();
                    if self.has_qos0_room() {
                        return;
                    }
                    taken.await;
                }
            };
            if timeout(patience, room).await.is_err() {
                return false;
            }
        }
        self.with(|waiting| {
            waiting.qos0 += usize::from(delivery.message.qos == QoS::AtMostOnce);
            waiting.deliveries.push_back(delivery);
        });
        self.filled.notify_one();
        true
    }

    /// The next delivery, or `None` once closed and empty.
    pub(super) async fn next(&self) -> Option<Delivery> {
        loop {
            let filled = self.filled.notified();
            let (delivery, closed) = self.with(|waiting| {
                let delivery = waiting.deliveries.pop_front();
                if let Some(delivery) = &delivery {
                    waiting.qos0 -= usize::from(delivery.message.qos == QoS::AtMostOnce);
                }
                (delivery, waiting.closed)
            });
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
            let (kept, forgotten): (VecDeque<_>, VecDeque<_>) = all
                .into_iter()
                .partition(|delivery| delivery.message.qos == QoS::AtMostOnce);
            waiting.deliveries = kept;
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

    fn has_qos0_room(&self) -> bool {
        self.with(|waiting| waiting.qos0 < self.qos0_room)
    }

    fn with<R>(&self, f: impl FnOnce(&mut Waiting) -> R) -> R {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
