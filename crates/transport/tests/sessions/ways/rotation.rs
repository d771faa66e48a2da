//! Passwords and certificates are renewed while messages flow.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_core::{Sink, Source};
use bridge_testkit::{Authority, Cut, Mosquitto, Proxy, TlsFront, wait_until};
use bridge_transport::{Brokers, Credentials, Password, Reader, SessionConfig, Writer};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::common::{DEADLINE, reader, session, subscribed, take, tcp, up, within, writer};
use crate::ways::{deliver, message, proving, tls};

/// Numbered messages from a writer to a reader for as long as it is not told to stop.
struct Traffic {
    stop: Arc<AtomicBool>,
    sending: JoinHandle<u32>,
    receiving: JoinHandle<Vec<u32>>,
}

impl Traffic {
    fn start(writer: &Arc<Writer>, reader: &Arc<Reader>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sending = tokio::spawn({
            let (stop, writer) = (Arc::clone(&stop), Arc::clone(writer));
            async move {
                let mut count = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    deliver(&writer, message("t", count.to_be_bytes())).await;
                    count += 1;
                }
                deliver(&writer, message("t", u32::MAX.to_be_bytes())).await;
                count
            }
        });
        let reader = Arc::clone(reader);
        let receiving = tokio::spawn(async move {
            let mut numbers = Vec::new();
            loop {
                let payload = take(&reader).await.payload;
                match u32::from_be_bytes(payload[..].try_into().unwrap()) {
                    u32::MAX => return numbers,
                    number => numbers.push(number),
                }
            }
        });
        Self {
            stop,
            sending,
            receiving,
        }
    }

    /// Stops, and makes sure that every message has come.
    async fn has_lost_nothing(self) {
        self.stop.store(true, Ordering::Relaxed);
        let count = within("all are sent", self.sending).await.unwrap();
        assert!(count > 0, "there was traffic");
        let mut numbers = within("all are received", self.receiving).await.unwrap();
        numbers.sort_unstable();
        // At least once: what was on its way at a reconnect may come twice.
        numbers.dedup();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }
}

fn with_password(mut config: SessionConfig, file: &Path) -> SessionConfig {
    config.credentials = Some(Credentials {
        username: "plant".to_owned(),
        password: Some(Password::File(file.to_owned())),
    });
    config
}

#[tokio::test]
async fn a_password_that_changes_is_used_in_an_orderly_way_and_nothing_is_lost() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "old\n").unwrap();
    // It takes any password, so that nothing but the file makes a session connect anew.
    let broker = Mosquitto::start().await;
    let brokers = Brokers::one(tcp(broker.port()));
    let session = |id| with_password(session(brokers.clone(), id), &file);
    let reader = Arc::new(reader(session("r"), "t"));
    subscribed(&reader).await;
    let writer = Arc::new(writer(session("w")));
    up(&writer, 0).await;
    let traffic = Traffic::start(&writer, &reader);
    fs::write(&file, "new\n").unwrap();
    connected(&writer, &reader, 2).await;
    traffic.has_lost_nothing().await;
    for stats in [writer.stats(), reader.stats()] {
        assert_eq!(stats.connects, 2, "once each: {stats:?}");
        assert_eq!(stats.connect_failures, 0, "{stats:?}");
        assert_eq!(stats.connection_losses, 0, "{stats:?}");
        assert_eq!(stats.unanswered, 0, "{stats:?}");
    }
    within("they close", async {
        tokio::join!(writer.close(), reader.close())
    })
    .await;
}

#[tokio::test]
async fn a_password_that_the_broker_changes_first_is_used_as_soon_as_it_is_in_the_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "old").unwrap();
    let builder = Mosquitto::builder().users([("plant", "old")]);
    let broker = builder.start().await;
    let brokers = Brokers::one(tcp(broker.port()));
    let session = |id| with_password(session(brokers.clone(), id), &file);
    let reader = Arc::new(reader(session("r"), "t"));
    subscribed(&reader).await;
    let writer = Arc::new(writer(session("w")));
    up(&writer, 0).await;
    let traffic = Traffic::start(&writer, &reader);
    // It throws out who came with the old one.
    broker.set_users(&[("plant", "new")]).await;
    wait_until("they are turned away", DEADLINE, || {
        writer.stats().connect_failures > 0 && reader.stats().connect_failures > 0
    })
    .await;
    fs::write(&file, "new").unwrap();
    connected(&writer, &reader, 2).await;
    traffic.has_lost_nothing().await;
    within("they close", async {
        tokio::join!(writer.close(), reader.close())
    })
    .await;
}

/// Waits until both have connected so many times.
async fn connected(writer: &Writer, reader: &Reader, times: u64) {
    wait_until("they connect anew", DEADLINE, || {
        [writer.stats(), reader.stats()]
            .iter()
            .all(|stats| stats.connected && stats.connects >= times)
    })
    .await;
    subscribed(reader).await;
}

#[tokio::test]
async fn case_24_a_renewed_certificate_is_shown_when_its_key_has_come_and_not_before() {
    let authority = Authority::new();
    let old = authority.client_until("plant-7", 2031, 1, 1);
    let new = authority.client_until("plant-7", 2041, 1, 1);
    let (der_of_old, der_of_new) = (old.der(), new.der());
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let front = TlsFront::builder(authority.server()).clients_of(authority.certificate());
    let front = front.start(proxy.port()).await;
    let brokers = Brokers::one(tls(front.port(), proving(&authority, &old)));
    let writer = Arc::new(writer(session(brokers, "w")));
    up(&writer, 0).await;
    let expiry = writer.stats().certificate_expiry.unwrap();
    assert_eq!(expiry.to_string(), "2031-01-01T00:00:00.000Z");

    // Half of the pair has come, and the connection breaks.
    old.replace_certificate_with(&new);
    proxy.cut(Cut::Reset);
    up(&writer, 1).await;
    assert_eq!(writer.stats().certificate_expiry, Some(expiry));
    // The other half comes.
    old.replace_key_with(&new);
    up(&writer, 2).await;
    let expiry = writer.stats().certificate_expiry.unwrap();
    assert_eq!(expiry.to_string(), "2041-01-01T00:00:00.000Z");
    let shown: Vec<_> = front
        .handshakes()
        .into_iter()
        .map(|handshake| handshake.client.unwrap())
        .collect();
    assert_eq!(shown, [der_of_old.clone(), der_of_old, der_of_new]);
    assert_eq!(writer.stats().connection_losses, 1, "the one that was cut");
    within("it closes", writer.close()).await;
}
