//! A real client under guard, in memory, that listens to bytes which a fuzzer thought of: no panic
//! and no memory out of proportion. See `fuzz/`.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{ConnectProperties, Packet, PubAck, PubRec, SubscribeFilter};
use rumqttc::{
    AckMode, AsyncClient, Broker, Event, ManualAck, MqttOptions, PublishOptions, ValidatedTopic,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Builder;

use crate::Protocol;
use crate::guard::{Flush, Guarded, Marker, Rules, Witness};

/// The largest packet that is taken.
const MAX_PACKET: u32 = 4096;
/// More events than any input has bytes.
const MOST_EVENTS: usize = 1 << 20;

/// Lets the client listen to `input`, whose first two bytes say how.
///
/// # Panics
/// When something is wrong.
pub fn listen(input: &[u8]) {
    let Some(([flags, piece], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let protocol = match flags & 1 {
        0 => Protocol::V5,
        _ => Protocol::V311,
    };
    let flush = match flags & 2 {
        0 => Flush::AtOnce,
        _ => Flush::WhenIdle,
    };
    let broker = Voice {
        bytes: bytes.to_vec(),
        at: 0,
        piece: usize::from(*piece).max(1),
        silent: false,
    };
    let rules = Rules {
        protocol,
        max_packet_size: MAX_PACKET,
        write_timeout: Duration::from_secs(5),
        flush,
        quiet: Duration::from_secs(5),
    };
    let guarded = Guarded::new(broker, rules, Marker::new(7), Arc::<Witness>::default());
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(converse(guarded));
}

async fn converse(guarded: Guarded<Voice>) {
    let mut options = MqttOptions::new("c", Broker::tcp("broker", 1883));
    let mut properties = ConnectProperties::new();
    properties.max_packet_size = Some(MAX_PACKET + 128);
    properties.topic_alias_max = Some(8);
    options
        .set_ack_mode(AckMode::Manual)
        .set_outgoing_inflight_upper_limit(16)
        .set_connect_properties(properties);
    let once = Mutex::new(Some(guarded));
    options.set_socket_connector(move |_, _| {
        let guarded = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::future::ready(guarded.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    });
    let (client, mut event_loop) = AsyncClient::builder(options)
        .capacity(16)
        .try_build()
        .unwrap();
    // The ids 1 to 5, each of which may be answered.
    let topic = || ValidatedTopic::new("t").unwrap();
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce] {
        client
            .try_publish(topic(), "x", PublishOptions::new(qos))
            .unwrap();
    }
    client
        .try_subscribe_many([SubscribeFilter::new("t", qos_2())])
        .unwrap();
    client.try_unsubscribe("u").unwrap();
    for _ in 0..MOST_EVENTS {
        let Ok(event) = event_loop.poll().await else {
            return;
        };
        let Event::Incoming(Packet::Publish(publish)) = event else {
            continue;
        };
        let ack = match publish.qos {
            QoS::AtMostOnce => continue,
            QoS::AtLeastOnce => ManualAck::PubAck(PubAck::new(publish.pkid, None)),
            QoS::ExactlyOnce => ManualAck::PubRec(PubRec::new(publish.pkid, None)),
        };
        // There may be no room for it; a bridge would try again.
        let _ = client.try_manual_ack(ack);
    }
    panic!("more events than bytes");
}

const fn qos_2() -> QoS {
    QoS::ExactlyOnce
}

/// A stream that says given bytes, in pieces and with pauses, and takes whatever it is told.
#[derive(Debug)]
struct Voice {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
    /// It says nothing the next time, so that the client has its turn.
    silent: bool,
}

impl AsyncRead for Voice {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.silent = !self.silent;
        if self.silent {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let step = self.piece.min(buf.remaining()).min(rest.len());
        buf.put_slice(&rest[..step]);
        self.at += step;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Voice {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len().min(self.piece.max(16))))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// What a broker says to all that is asked, in MQTT 5 and in 3.1.1.
    const SEEDS: [&[u8]; 2] = [
        b"\x00\x07\x20\x03\x00\x00\x00\x40\x02\x00\x01\x50\x02\x00\x02\x50\x04\x00\x03\x87\x00\
          \x70\x02\x00\x02\x90\x04\x00\x04\x00\x02\xB0\x04\x00\x05\x00\x00\
          \x32\x10\x00\x01t\x00\x09\x08\x23\x00\x01\x02\x00\x00\x00\x05hi\
          \x34\x09\x00\x00\x00\x08\x03\x23\x00\x01x\x62\x02\x00\x08\xD0\x00\xE0\x01\x8E",
        b"\x01\x07\x20\x02\x00\x00\x40\x02\x00\x01\x50\x02\x00\x02\x50\x02\x00\x03\
          \x70\x02\x00\x02\x90\x03\x00\x04\x02\xB0\x02\x00\x05\x32\x07\x00\x01t\x00\x09hi\
          \x34\x06\x00\x01t\x00\x08x\x62\x02\x00\x08\xD0\x00",
    ];

    #[test]
    fn i25_no_bytes_make_a_client_under_guard_panic() {
        let mut random = StdRng::seed_from_u64(9);
        for seed in SEEDS {
            for end in 0..=seed.len() {
                listen(&seed[..end]);
            }
            for _ in 0..300 {
                let mut bytes = seed.to_vec();
                bytes[0] ^= random.random_range(0..2) << 1;
                for _ in 0..random.random_range(1..5) {
                    let at = random.random_range(1..bytes.len());
                    match random.random_range(0..4) {
                        0 => bytes[at] ^= 1 << random.random_range(0..8),
                        1 => bytes[at] = random.random(),
                        2 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, random.random()),
                    }
                }
                listen(&bytes);
            }
        }
    }
}
