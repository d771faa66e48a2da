//! The connection's side of reading: what comes, in order.

use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Delivery, QoS, SourceState};
use rumqttc::Event;
use rumqttc::mqttbytes::v5::{Packet, Publish};
use tracing::{error, warn};

use super::Shared;
use super::acks::{Line, Receipt};
use super::exchanges::Incoming;
use crate::connection::{Handler, Welcome};
use crate::convert::{from_wire, from_wire_qos};
use crate::guard::{Marker, SetAside};

/// Turns what a connection receives into deliveries.
pub(super) struct Receiving {
    shared: Arc<Shared>,
    /// Given to the acknowledgements when the connection stands.
    line: Option<Line>,
    marker: Marker,
    /// The connection before was to the same broker, and nobody else was in our place since:
    /// packet ids mean the same messages.
    follows: bool,
    /// How long the connection was held up for want of room, and since when that is counted.
    waited: Duration,
    waits_since: Duration,
    announced_invalid: bool,
    announced_unsound: bool,
    announced_too_large: bool,
}

impl Receiving {
    pub(super) fn new(shared: Arc<Shared>, line: Line, marker: Marker, follows: bool) -> Self {
        Self {
            waited: Duration::ZERO,
            waits_since: shared.clock.monotonic(),
            shared,
            line: Some(line),
            marker,
            follows,
            announced_invalid: false,
            announced_unsound: false,
            announced_too_large: false,
        }
    }

    async fn publish(&mut self, publish: Publish) {
        let (packet_id, qos, dup) = (publish.pkid, from_wire_qos(publish.qos), publish.dup);
        let receipt = match qos {
            QoS::AtMostOnce => Receipt::nothing_owed(),
            // The library has repeated the PUBREC by itself, and at once: only where older
            // messages were left does it go before theirs (§4.6).
            QoS::ExactlyOnce if self.shared.releasing.contains(packet_id) => {
                if dup {
                    self.shared.counters.recognised();
                    return;
                }
                Receipt::nothing_owed()
            }
            QoS::AtLeastOnce | QoS::ExactlyOnce => {
                let content = self.shared.digests.hash_one(Content(&publish));
                let incoming = Incoming {
                    packet_id,
                    qos,
                    dup,
                    content,
                };
                match self.shared.acks.arrived(incoming) {
                    Some(receipt) => receipt,
                    None => return,
                }
            }
        };
        let receipt = Box::new(receipt);
        let properties = publish.properties.iter();
        let names = properties.flat_map(|p| p.user_properties.iter().map(|(name, _)| name));
        let message = match self.marker.set_aside(&publish.topic, names) {
            Some(why) => Err(why),
            None => from_wire(publish).map_err(|_| SetAside::InvalidTopic),
        };
        let message = match message {
            Ok(message) => message,
            Err(why) => return self.set_aside(receipt, why),
        };
        let counters = &self.shared.counters;
        counters.received.add(1);
        counters.redelivered.add(u64::from(dup));
        let delivery = Delivery {
            message,
            received: self.shared.clock.wall(),
            redelivered: dup,
            acknowledge: receipt,
        };
        if !self.push(delivery).await {
            self.shared.counters.dropped_qos0.add(1);
        }
    }

    /// Hands a delivery on. Waiting for room is bounded over all messages together: while we
    /// wait no ping is sent, and for the broker we are gone after one and a half keep-alives.
    async fn push(&mut self, delivery: Delivery) -> bool {
        let shared = &self.shared;
        let before = shared.clock.monotonic();
        if before.saturating_sub(self.waits_since) >= shared.config.keep_alive {
            (self.waits_since, self.waited) = (before, Duration::ZERO);
        }
        let patience = (shared.config.keep_alive / 2).saturating_sub(self.waited);
        let taken = shared.inbox.push(delivery, patience).await;
        self.waited += shared.clock.monotonic().saturating_sub(before);
        taken
    }

    /// Nothing can be done with a message but to take it from the broker.
    fn set_aside(&mut self, receipt: Box<Receipt>, why: SetAside) {
        bridge_core::Acknowledge::settled(receipt);
        let counters = &self.shared.counters;
        match why {
            SetAside::InvalidTopic => {
                counters.invalid_topics.add(1);
                if !std::mem::replace(&mut self.announced_invalid, true) {
                    warn!(
                        event = "invalid_topic_received",
                        session = %self.shared.config.name,
                        broker = %self.shared.config.brokers,
                        "the broker sent a message whose topic is not valid; such messages are \
                         acknowledged, counted and set aside"
                    );
                }
            }
            SetAside::InvalidProperties => {
                counters.invalid_properties.add(1);
                if !std::mem::replace(&mut self.announced_unsound, true) {
                    warn!(
                        event = "invalid_properties_received",
                        session = %self.shared.config.name,
                        broker = %self.shared.config.brokers,
                        "the broker sent a message with a text in its properties that is not \
                         valid; such messages are acknowledged, counted and set aside"
                    );
                }
            }
            SetAside::TooLarge => {
                counters.too_large.add(1);
                if !std::mem::replace(&mut self.announced_too_large, true) {
                    error!(
                        event = "too_large_message_received",
                        session = %self.shared.config.name,
                        broker = %self.shared.config.brokers,
                        maximum = self.shared.config.max_packet_size,
                        "the broker sent a message larger than the session takes, and on MQTT \
                         3.1.1 it cannot be told how large that is; such messages are \
                         acknowledged, counted and lost: raise max_packet_size or use MQTT 5"
                    );
                }
            }
        }
    }
}

impl Handler for Receiving {
    fn connected(&mut self, welcome: &Welcome) {
        let shared = &self.shared;
        let resumed = welcome.session_present && self.follows;
        if welcome.session_present && (!resumed || shared.acks.any_left()) {
            // All of it comes again, in order with what was left and with acknowledgements that
            // count.
            shared.inbox.forget_acknowledgeable();
        }
        if let Some(line) = self.line.take() {
            shared.acks.begin(line, resumed);
        }
        if !resumed {
            shared.releasing.clear();
        }
        self.shared.state.set(SourceState::Connected);
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Incoming(Packet::Publish(publish)) => {
                self.publish(publish).await;
                self.shared.winding.message();
            }
            Event::Incoming(Packet::PubRel(release)) => self.shared.acks.released(release.pkid),
            Event::Incoming(Packet::UnsubAck(_)) => self.shared.winding.unsuback(),
            // Something has left: there is room for acknowledgements that found none.
            Event::Outgoing(_) => self.shared.acks.send_rest(),
            _ => {}
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.shared.acks.end();
        self.shared.state.set(SourceState::Down);
    }
}

/// What makes two messages the same. Not their expiry, which counts down at the broker, nor what
/// belongs to a connection or a subscription.
struct Content<'a>(&'a Publish);

impl Hash for Content<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(publish) = self;
        let properties = publish.properties.as_ref().map(|properties| {
            (
                properties.payload_format_indicator,
                &properties.content_type,
                &properties.response_topic,
                &properties.correlation_data,
                &properties.user_properties,
            )
        });
        (publish.qos as u8, publish.retain).hash(state);
        (&publish.topic, &publish.payload, properties).hash(state);
    }
}
