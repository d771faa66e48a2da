//! Sessions by every way to a broker: encrypted, within WebSocket, by a Unix socket, by another
//! broker that stands in.

mod failover;
mod goodbye;
mod layers;
mod rotation;

use bridge_core::{Answer, Message, NotAdmitted, QoS, Sink};
use bridge_testkit::{Authority, Identity};
use bridge_transport::{ClientCertificate, Endpoint, Tls, Trust, WebSocket, Writer};

use crate::common::{self, tcp, up, within};

pub(crate) fn tls(port: u16, tls: Tls) -> Endpoint {
    Endpoint {
        tls: Some(tls),
        ..tcp(port)
    }
}

pub(crate) fn within_websocket(endpoint: Endpoint) -> Endpoint {
    Endpoint {
        websocket: Some(WebSocket {
            path: "/mqtt".to_owned(),
            headers: Vec::new(),
        }),
        ..endpoint
    }
}

pub(crate) fn trusting(authority: &Authority) -> Tls {
    Tls {
        trust: Trust::File(authority.certificate()),
        ..Tls::default()
    }
}

pub(crate) fn proving(authority: &Authority, client: &Identity) -> Tls {
    Tls {
        client: Some(ClientCertificate {
            certificate: client.certificate.clone(),
            key: client.key.clone(),
        }),
        ..trusting(authority)
    }
}

/// A message of QoS 1.
pub(crate) fn message(topic: &str, payload: impl Into<Vec<u8>>) -> Message {
    common::message(topic, payload, QoS::AtLeastOnce)
}

/// Publishes until an answer accepts it, as the runtime does.
pub(crate) async fn deliver(writer: &Writer, message: Message) {
    within("the message is delivered", async {
        loop {
            match writer.publish(message.clone()).await {
                Ok(admitted) => {
                    if let Answer::Answered { code, .. } = admitted.await {
                        assert!(!code.is_refusal(), "{code}");
                        return;
                    }
                }
                Err(NotAdmitted::LinkDown) => {
                    up(writer, 0).await;
                }
                Err(NotAdmitted::Refused(why)) => panic!("refused: {why}"),
            }
        }
    })
    .await;
}
