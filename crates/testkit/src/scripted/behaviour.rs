//! A broker's usual ways, with single answers changed.

use std::fmt;
use std::sync::Arc;

use super::connection::BrokerConnection;
use crate::codec::{AckKind, ConnAck, Packet, Property, Publish, SubAck};

/// A PUBLISH as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedPublish {
    /// The connection it came on, from 0.
    pub connection: usize,
    /// Its place among all PUBLISH packets that the broker has received, from 0.
    pub nth: usize,
    /// The packet.
    pub publish: Publish,
}

/// What a PUBLISH is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// PUBACK, or the whole of PUBREC and PUBCOMP, with success.
    Accept,
    /// PUBACK or PUBREC with that reason code.
    Code(u8),
    /// Nothing.
    Silence,
    /// These bytes.
    Bytes(Vec<u8>),
    /// DISCONNECT with that code, then the end of the connection.
    Disconnect(u8),
    /// The end of the connection.
    Close,
}

type ConnectAnswer = dyn Fn(usize) -> ConnAck + Send + Sync;
type PublishAnswer = dyn Fn(&ReceivedPublish) -> Reply + Send + Sync;
type SubscribeAnswer = dyn Fn(&str) -> u8 + Send + Sync;

/// A broker's usual ways: it accepts clients, subscriptions and messages, and answers PINGREQ.
/// It passes nothing on by itself.
#[derive(Clone)]
#[must_use = "a behaviour is for `ScriptedBroker::behaving` or `BrokerConnection::behave`"]
pub struct Behaviour {
    connack: Arc<ConnectAnswer>,
    reply: Arc<PublishAnswer>,
    suback: Option<Arc<SubscribeAnswer>>,
    after_subscribe: Vec<Publish>,
    pings: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::new()
    }
}

impl Behaviour {
    /// Accepts everything.
    pub fn new() -> Self {
        Self {
            connack: Arc::new(|_| ConnAck::default()),
            reply: Arc::new(|_| Reply::Accept),
            suback: None,
            after_subscribe: Vec::new(),
            pings: true,
        }
    }

    /// Accepts clients with these properties.
    pub fn connack(self, properties: impl Into<Vec<Property>>) -> Self {
        let properties = properties.into();
        self.connacks(move |_| ConnAck {
            properties: properties.clone(),
            ..ConnAck::default()
        })
    }

    /// Answers the CONNECT of each connection, numbered from 0, as `answer` says.
    pub fn connacks(mut self, answer: impl Fn(usize) -> ConnAck + Send + Sync + 'static) -> Self {
        self.connack = Arc::new(answer);
        self
    }

    /// Answers each PUBLISH as `reply` says.
    pub fn reply(
        mut self,
        reply: impl Fn(&ReceivedPublish) -> Reply + Send + Sync + 'static,
    ) -> Self {
        self.reply = Arc::new(reply);
        self
    }

    /// Answers each topic filter of a SUBSCRIBE with the code that `answer` says, in place of the
    /// QoS that was asked for.
    pub fn suback(mut self, answer: impl Fn(&str) -> u8 + Send + Sync + 'static) -> Self {
        self.suback = Some(Arc::new(answer));
        self
    }

    /// Sends these after each SUBACK, as they are: those above QoS 0 need a packet identifier.
    pub fn after_subscribe(mut self, messages: impl Into<Vec<Publish>>) -> Self {
        self.after_subscribe = messages.into();
        self
    }

    /// Leaves PINGREQ unanswered.
    pub fn without_pings(mut self) -> Self {
        self.pings = false;
        self
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour").finish_non_exhaustive()
    }
}

impl BrokerConnection {
    /// Serves the connection by `behaviour` until it ends; a script may go before.
    pub async fn behave(&mut self, behaviour: &Behaviour) {
        while let Some(packet) = self.read_packet().await {
            match packet {
                Packet::Connect(_) => {
                    let answer = (behaviour.connack)(self.number());
                    let refused = answer.code >= 0x80;
                    self.send_packet(&Packet::ConnAck(answer)).await;
                    if refused {
                        return;
                    }
                }
                Packet::Publish(publish) => {
                    let received = self.latest_publish(publish);
                    let reply = (behaviour.reply)(&received);
                    if !self.answer(&received.publish, reply).await {
                        return;
                    }
                }
                Packet::Ack(ack) => match ack.kind {
                    AckKind::PubRel => self.pubcomp(ack.id, 0).await,
                    AckKind::PubRec if ack.code < 0x80 => {
                        self.ack(AckKind::PubRel, ack.id, 0).await;
                    }
                    _ => {}
                },
                Packet::Subscribe(subscribe) => {
                    let codes: Vec<u8> = subscribe
                        .filters
                        .iter()
                        .map(|(filter, options)| match &behaviour.suback {
                            Some(answer) => answer(filter),
                            None => options & 0x03,
                        })
                        .collect();
                    self.suback(subscribe.id, &codes).await;
                    for message in &behaviour.after_subscribe {
                        self.publish(message.clone()).await;
                    }
                }
                Packet::Unsubscribe(unsubscribe) => {
                    self.send_packet(&Packet::UnsubAck(SubAck {
                        id: unsubscribe.id,
                        properties: Vec::new(),
                        codes: vec![0; unsubscribe.filters.len()],
                    }))
                    .await;
                }
                Packet::PingReq if behaviour.pings => self.send_packet(&Packet::PingResp).await,
                Packet::PingReq => {}
                Packet::Disconnect(_) => return,
                other @ (Packet::ConnAck(_)
                | Packet::SubAck(_)
                | Packet::UnsubAck(_)
                | Packet::PingResp
                | Packet::Auth(_)) => panic!("no client sends {other:?}"),
            }
        }
    }

    /// Answers one PUBLISH; false when that ends the connection.
    async fn answer(&self, publish: &Publish, reply: Reply) -> bool {
        match reply {
            Reply::Accept => self.answer_with_code(publish, 0).await,
            Reply::Code(code) => self.answer_with_code(publish, code).await,
            Reply::Silence => {}
            Reply::Bytes(bytes) => self.send(&bytes).await,
            Reply::Disconnect(code) => {
                self.disconnect(code).await;
                return false;
            }
            Reply::Close => return false,
        }
        true
    }

    async fn answer_with_code(&self, publish: &Publish, code: u8) {
        match publish.qos {
            0 => {}
            1 => self.puback(publish.id, code).await,
            _ => self.pubrec(publish.id, code).await,
        }
    }
}
