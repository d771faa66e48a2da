//! The guarded stream over a pipe that a test holds the other end of.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;

fn guard<S: AsyncRead + AsyncWrite + Unpin>(inner: S, flush: Flush) -> (Guarded<S>, Arc<Witness>) {
    guard_speaking(Protocol::V5, inner, flush)
}

fn guard_speaking<S: AsyncRead + AsyncWrite + Unpin>(
    protocol: Protocol,
    inner: S,
    flush: Flush,
) -> (Guarded<S>, Arc<Witness>) {
    let rules = Rules {
        protocol,
        max_packet_size: 1024,
        write_timeout: Duration::from_millis(50),
        flush,
        quiet: Duration::from_secs(60),
    };
    let witness = Arc::new(Witness::default());
    let guarded = Guarded::new(inner, rules, Marker::new(1), Arc::clone(&witness));
    (guarded, witness)
}

#[tokio::test]
async fn a_write_that_stalls_ends_the_stream_at_the_deadline() {
    for protocol in [Protocol::V5, Protocol::V311] {
        let (near, _far) = duplex(16);
        let (mut guarded, witness) = guard_speaking(protocol, near, Flush::AtOnce);
        let packet = [&[0x30, 100][..], &[0; 100]].concat();
        guarded.write_all(&packet).await.unwrap();
        guarded.write_all(&packet).await.unwrap();
        guarded.flush().await.unwrap();
        assert!(witness.write_failed());
        assert_eq!(witness.publishes_begun(), 1, "the second never left");
        // What is written from now on goes nowhere.
        guarded.write_all(&packet).await.unwrap();
        assert_eq!(witness.publishes_begun(), 1);
        let error = guarded.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

/// Takes nothing and has something to say.
#[derive(Debug)]
struct Closed {
    says: DuplexStream,
}

impl AsyncRead for Closed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.says).poll_read(cx, buf)
    }
}

impl AsyncWrite for Closed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_the_broker_says_after_our_write_has_failed_is_heard() {
    for flush in [Flush::AtOnce, Flush::WhenIdle] {
        let (says, mut broker) = duplex(64);
        let (mut guarded, witness) = guard(Closed { says }, flush);
        guarded.write_all(&[0xC0, 0]).await.unwrap();
        guarded.flush().await.unwrap();
        let last_words = [0x20, 3, 0, 0, 0, 0xD0, 0, 0xE0, 1, 0x8E];
        broker.write_all(&last_words).await.unwrap();
        drop(broker);
        let mut heard = Vec::new();
        let error = guarded.read_to_end(&mut heard).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(heard, last_words);
        assert_eq!(witness.disconnect().unwrap().0.get(), 0x8E);
    }
}

#[tokio::test]
async fn a_broker_that_says_nothing_after_a_failed_write_is_not_waited_for_long() {
    let (says, _broker) = duplex(64);
    let (mut guarded, _) = guard(Closed { says }, Flush::AtOnce);
    guarded.write_all(&[0xC0, 0]).await.unwrap();
    let read = timeout(LAST_WORDS * 4, guarded.read_u8()).await;
    assert_eq!(read.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn acknowledgements_wait_until_idle_and_everything_else_takes_them_along() {
    let (near, mut far) = duplex(1024);
    let (mut guarded, _) = guard(near, Flush::WhenIdle);
    let soon = Duration::from_millis(20);
    for id in 1..=3 {
        guarded.write_all(&[0x40, 2, 0, id]).await.unwrap();
        guarded.flush().await.unwrap();
    }
    assert!(timeout(soon, far.read_u8()).await.is_err(), "not yet");
    // Idle: the client looks for something to read.
    assert!(timeout(soon, guarded.read_u8()).await.is_err());
    let mut acks = [0; 12];
    far.read_exact(&mut acks).await.unwrap();
    assert_eq!(acks, [0x40, 2, 0, 1, 0x40, 2, 0, 2, 0x40, 2, 0, 3]);

    guarded.write_all(&[0x40, 2, 0, 4]).await.unwrap();
    guarded.write_all(&[0xE0, 0]).await.unwrap();
    guarded.flush().await.unwrap();
    let mut rest = [0; 6];
    far.read_exact(&mut rest).await.unwrap();
    assert_eq!(rest, [0x40, 2, 0, 4, 0xE0, 0]);
}

#[tokio::test]
async fn a_broker_that_breaks_the_protocol_is_told_so_in_mqtt_5() {
    for flush in [Flush::AtOnce, Flush::WhenIdle] {
        for (bytes, code) in [
            (&[0x30, 0xFF, 0xFF, 0x7F][..], 0x95),
            (&[0xD0, 0xFF, 0xFF, 0xFF, 0xFF, 1], 0x81),
            (&[0x20, 3, 0, 0, 0], 0x82),
            (&[0x40, 2, 0, 1], 0x82),
        ] {
            let (near, mut far) = duplex(1024);
            let (mut guarded, witness) = guard(near, flush);
            far.write_all(&[0x20, 3, 0, 0, 0, 0xD0, 0]).await.unwrap();
            far.write_all(bytes).await.unwrap();
            let mut heard = Vec::new();
            let error = guarded.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(
                heard,
                [0x20, 3, 0, 0, 0, 0xD0, 0],
                "what came before counts"
            );
            assert_eq!(witness.violation().unwrap().code(), code);
            assert!(witness.write_failed());
            // What the library writes now would come after the goodbye.
            guarded.write_all(&[0xC0, 0]).await.unwrap();
            guarded.flush().await.unwrap();
            drop(guarded);
            let mut said = Vec::new();
            far.read_to_end(&mut said).await.unwrap();
            assert_eq!(said, [0xE0, 1, code]);
        }
    }
}

#[tokio::test]
async fn a_broker_on_3_1_1_that_breaks_the_protocol_is_left_without_a_word() {
    let (near, mut far) = duplex(1024);
    let (mut guarded, witness) = guard_speaking(Protocol::V311, near, Flush::AtOnce);
    far.write_all(&[0x20, 2, 0, 0, 0xE0, 0]).await.unwrap();
    let mut heard = Vec::new();
    guarded.read_to_end(&mut heard).await.unwrap_err();
    assert_eq!(heard, [0x20, 3, 0, 0, 0]);
    assert!(witness.violation().is_some());
    drop(guarded);
    let mut said = Vec::new();
    far.read_to_end(&mut said).await.unwrap();
    assert!(said.is_empty(), "{said:?}");
}

#[tokio::test]
async fn nothing_is_said_within_a_packet() {
    let (near, mut far) = duplex(1024);
    let (mut guarded, _) = guard(near, Flush::AtOnce);
    guarded.write_all(&[0x30, 10, 0, 1]).await.unwrap();
    far.write_all(&[0xD0, 0]).await.unwrap();
    guarded.read_u8().await.unwrap_err();
    drop(guarded);
    let mut said = Vec::new();
    far.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, [0x30, 10, 0, 1]);
}

#[tokio::test]
async fn a_large_packet_is_translated_in_pieces() {
    let (near, mut far) = duplex(1 << 20);
    let (mut guarded, witness) = guard_speaking(Protocol::V311, near, Flush::AtOnce);
    let mut packet = vec![0x30, 0x84, 0xC0, 0x0C, 0, 1, b't', 0];
    packet.resize(packet.len() + 200_000, b'x');
    guarded.write_all(&packet).await.unwrap();
    assert!(
        guarded.waiting.capacity() < 8 * WRITE_ROOM,
        "{}",
        guarded.waiting.capacity()
    );
    guarded.flush().await.unwrap();
    assert_eq!(witness.publishes_begun(), 1);
    drop(guarded);
    let mut said = Vec::new();
    far.read_to_end(&mut said).await.unwrap();
    assert_eq!(said.len(), packet.len() - 1);
    assert_eq!(said[..8], [0x30, 0x83, 0xC0, 0x0C, 0, 1, b't', b'x']);
}
