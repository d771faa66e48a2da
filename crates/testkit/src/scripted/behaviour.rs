//! A broker's usual ways, with single answers changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connection::BrokerConnection;
use crate::codec::{AckKind, ConnAck, Disconnect, Packet, Property, Publish, SubAck, Subscribe};

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
    /// The answer that the standard asks for, with success.
    Accept,
    /// That answer with this reason code. MQTT 3.1.1 has none: it accepts.
    Code(u8),
    /// Nothing.
    Silence,
    /// These bytes.
    Bytes(Vec<u8>),
    /// This packet.
    Packet(Box<Packet>),
    /// DISCONNECT with that code, then the end of the connection; with MQTT 3.1.1 only that.
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
    leave: Option<(Duration, Disconnect)>,
    pings: bool,
    takeover: bool,
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
            leave: None,
            pings: true,
            takeover: false,
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

    /// Takes leave of each client so long after its CONNACK.
    pub fn leave_after(mut self, delay: Duration, disconnect: Disconnect) -> Self {
        self.leave = Some((delay, disconnect));
        self
    }

    /// Ends the older connection of a client identifier when a new one comes, with 0x8E; with
    /// MQTT 3.1.1, without a word.
    pub fn takeover(mut self) -> Self {
        self.takeover = true;
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
        let mut leave = None;
        loop {
            let packet = tokio::select! {
                packet = self.read_packet() => packet,
                disconnect = until(leave.as_ref()) => {
                    self.disconnect_with(disconnect).await;
                    return;
                }
            };
            let Some(packet) = packet else { return };
            let connect = matches!(packet, Packet::Connect(_));
            if !self.serve(behaviour, packet).await {
                return;
            }
            if connect && let Some((delay, disconnect)) = &behaviour.leave {
                leave = Some((Instant::now() + *delay, disconnect.clone()));
            }
        }
    }

    /// Answers one packet; false when that ends the connection.
    async fn serve(&self, behaviour: &Behaviour, packet: Packet) -> bool {
        match packet {
            Packet::Connect(connect) => {
                if behaviour.takeover {
                    self.take_over(&connect.client_id).await;
                }
                let answer = (behaviour.connack)(self.number());
                let refused = answer.code != 0;
                self.send_packet(&Packet::ConnAck(answer)).await;
                return !refused;
            }
            Packet::Publish(publish) => {
                let received = self.latest_publish(publish);
                let reply = (behaviour.reply)(&received);
                let Publish { qos, id, .. } = received.publish;
                let answer = match qos {
                    0 => None,
                    1 => Some((AckKind::PubAck, id)),
                    _ => Some((AckKind::PubRec, id)),
                };
                return self.answer(answer, reply).await;
            }
            Packet::Ack(ack) => match ack.kind {
                AckKind::PubRel => self.ack(AckKind::PubComp, ack.id, 0).await,
                AckKind::PubRec if ack.code < 0x80 => self.ack(AckKind::PubRel, ack.id, 0).await,
                _ => {}
            },
            Packet::Subscribe(subscribe) => self.grant(behaviour, &subscribe).await,
            Packet::Unsubscribe(unsubscribe) => {
                self.send_packet(&Packet::UnsubAck(SubAck {
                    id: unsubscribe.id,
                    properties: Vec::new(),
                    codes: vec![0; unsubscribe.filters.len()],
                }))
                .await;
            }
            Packet::PingReq => {
                if behaviour.pings {
                    self.send_packet(&Packet::PingResp).await;
                }
            }
            Packet::Disconnect(_) => return false,
            other @ (Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Auth(_)) => panic!("no client sends {other:?}"),
        }
        true
    }

    async fn grant(&self, behaviour: &Behaviour, subscribe: &Subscribe) {
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

    /// Replies to one packet whose usual answer is given; false when that ends the connection.
    async fn answer(&self, usual: Option<(AckKind, u16)>, reply: Reply) -> bool {
        let code = match reply {
            Reply::Accept => 0,
            Reply::Code(code) => code,
            Reply::Silence => return true,
            Reply::Bytes(bytes) => {
                self.send(&bytes).await;
                return true;
            }
            Reply::Packet(packet) => {
                self.send_packet(&packet).await;
                return true;
            }
            Reply::Disconnect(code) => {
                self.disconnect(code).await;
                return false;
            }
            Reply::Close => return false,
        };
        if let Some((kind, id)) = usual {
            self.ack(kind, id, code).await;
        }
        true
    }
}

/// Hands out the leave that is taken, when its time has come.
async fn until(leave: Option<&(Instant, Disconnect)>) -> Disconnect {
    match leave {
        Some((at, disconnect)) => {
            sleep_until(*at).await;
            disconnect.clone()
        }
        None => std::future::pending().await,
    }
}
