//! What a session counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::Timestamp;

/// A session's counters since it started, and whether it is connected now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStats {
    /// A connection stands.
    pub connected: bool,
    /// When the client certificate in use ends, if there is one.
    pub certificate_expiry: Option<Timestamp>,
    /// Connections that were established.
    pub connects: u64,
    /// Attempts that led to no connection.
    pub connect_failures: u64,
    /// Established connections that ended without our wish.
    pub connection_losses: u64,
    /// Times that the broker said 0x8E: another client connected with our client id.
    pub takeovers: u64,
    /// Connections that the broker closed without a word, again and again and soon after they came
    /// about, so that another client with our client id is suspected.
    pub suspected_collisions: u64,
    /// Reconnects at which the broker no longer had the session that we meant to resume.
    pub sessions_lost: u64,
    /// Connections given up because a PUBLISH went unanswered for too long.
    pub answer_timeouts: u64,
    /// Messages that came with a topic that is none; acknowledged and set aside.
    pub invalid_topics: u64,
    /// Messages that came with a text in their properties that is none (MQTT 5 §1.5.4);
    /// acknowledged and set aside.
    pub invalid_properties: u64,
    /// Messages that were larger than the session takes, from a broker that could not be told so
    /// (MQTT 3.1.1); acknowledged and lost.
    pub too_large: u64,
    /// Messages published without the properties that they had: MQTT 3.1.1 has none.
    pub properties_lost: u64,
    /// Filters that the broker refuses at the moment.
    pub refused_subscriptions: u64,
    /// Filters that the broker grants at a lower QoS than was asked for, at the moment.
    pub downgraded_subscriptions: u64,
    /// Filters of an earlier configuration that the broker still held, and that were ended.
    pub leftover_subscriptions: u64,
    /// Messages received, the invalid ones not counted.
    pub received: u64,
    /// Of these, the ones that the broker said it had sent before.
    pub redelivered: u64,
    /// Of these, the ones that were recognised and not handed out again.
    pub redeliveries_recognised: u64,
    /// QoS 0 messages dropped because nobody took the ones before them.
    pub dropped_qos0: u64,
    /// Acknowledgements that came after their connection had ended, and were not sent on it. Where
    /// the broker sends the message again, they are its answer then.
    pub late_acknowledgements: u64,
    /// Messages left with the broker.
    pub left: u64,
    /// Messages admitted for publishing.
    pub admitted: u64,
    /// Answers received, refusals among them; for QoS 0, messages written.
    pub answered: u64,
    /// Answers that were refusals.
    pub refused: u64,
    /// Messages whose connection ended before their answer.
    pub unanswered: u64,
    /// Messages sent with a lower QoS than they had, because the broker takes no higher one.
    pub qos_downgraded: u64,
    /// Messages sent without their retain flag, because the broker does not retain.
    pub retain_stripped: u64,
}

/// One connection of a session, which counts as long as it stands.
#[derive(Debug)]
pub(crate) struct Standing {
    counters: Arc<Counters>,
    begun: bool,
}

impl Standing {
    pub(crate) const fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            begun: false,
        }
    }

    /// The broker has accepted.
    pub(crate) fn begins(&mut self) {
        self.counters.connects.add(1);
        if !std::mem::replace(&mut self.begun, true) {
            self.counters.standing.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.begun {
            self.counters.standing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The same, while it is being counted.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            /// Connections that stand: one whose task is only being ended may outlast the next
            /// one's beginning.
            standing: AtomicU64,
            client_id: Mutex<String>,
            pub(crate) certificate_expiry: Instant,
            $(pub(crate) $name: Counter,)+
        }

        impl Counters {
            /// The client id that is connected with, or that the broker gave instead.
            pub(crate) fn client_id(&self) -> String {
                let client_id = self.client_id.lock();
                client_id.unwrap_or_else(PoisonError::into_inner).clone()
            }

            pub(crate) fn connected_as(&self, client_id: &str) {
                let mut known = self.client_id.lock().unwrap_or_else(PoisonError::into_inner);
                client_id.clone_into(&mut known);
            }

            /// A message has come again and is not handed out again.
            pub(crate) fn recognised(&self) {
                self.received.add(1);
                self.redelivered.add(1);
                self.redeliveries_recognised.add(1);
            }

            pub(crate) fn snapshot(&self) -> SessionStats {
                SessionStats {
                    connected: self.standing.load(Ordering::Relaxed) > 0,
                    certificate_expiry: self.certificate_expiry.get(),
                    $($name: self.$name.get(),)+
                }
            }
        }
    };
}

counters!(
    connects,
    connect_failures,
    connection_losses,
    takeovers,
    suspected_collisions,
    sessions_lost,
    answer_timeouts,
    invalid_topics,
    invalid_properties,
    too_large,
    properties_lost,
    refused_subscriptions,
    downgraded_subscriptions,
    leftover_subscriptions,
    received,
    redelivered,
    redeliveries_recognised,
    dropped_qos0,
    late_acknowledgements,
    left,
    admitted,
    answered,
    refused,
    unanswered,
    qos_downgraded,
    retain_stripped,
);

/// One number that only matters by itself.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An instant that may not be known.
#[derive(Debug, Default)]
pub(crate) struct Instant(AtomicU64);

impl Instant {
    pub(crate) fn set(&self, instant: Option<Timestamp>) {
        // None ends with 1970.
        let millis = instant.map_or(0, Timestamp::as_millis);
        self.0.store(millis, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Timestamp> {
        let millis = self.0.load(Ordering::Relaxed);
        (millis != 0).then(|| Timestamp::from_millis(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_late_does_not_take_the_next_one_along() {
        let counters = Arc::new(Counters::default());
        let connected = || counters.snapshot().connected;
        drop(Standing::new(counters.clone()));
        assert!(!connected());
        let mut first = Standing::new(counters.clone());
        first.begins();
        let mut second = Standing::new(counters.clone());
        second.begins();
        drop(first);
        assert!(connected());
        drop(second);
        assert!(!connected());
        assert_eq!(counters.snapshot().connects, 2);
    }
}
