//! What a keeper logs. A program of its own: what one thread logs is not seen reliably where others, which
//! log nowhere, meet the same line first.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "the code of tests: failing loudly is what it is for, and not every test uses all of it"
)]

#[path = "keeper/told.rs"]
mod told;

use std::io;
use std::sync::{Arc, Mutex};

use bridge_core::{Permission, Permit as _};
use told::{Mood, Told, keep, token, until};
use tracing_subscriber::fmt::MakeWriter;

/// All that is logged by the thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// The level and the name of each event.
    fn events(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let event = |line: &str| {
            let level = line.split_whitespace().next().unwrap();
            let name = line.split("event=\"").nth(1).unwrap();
            format!("{level} {}", name.split('"').next().unwrap())
        };
        text.lines().map(event).collect()
    }
}

#[tokio::test]
async fn case_22_each_change_is_logged_once_and_a_failing_store_until_it_has_recovered() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let store = Told::new(Mood::Fails);
    let keeper = keep(&store);
    until("it has failed", || keeper.stats().store_errors >= 3).await;
    store.set(Mood::Grants);
    until("it is active", || token(&keeper) == Some(1)).await;
    store.set(Mood::Lost);
    until("it was lost", || keeper.stats().lost >= 1).await;
    store.set(Mood::Grants);
    until("it is active", || token(&keeper).is_some()).await;
    store.set(Mood::Fails);
    until("it was not renewed", || {
        keeper.now() == Permission::Withheld
    })
    .await;
    store.set(Mood::Grants);
    until("it is active", || token(&keeper).is_some()).await;
    keeper.release().await;

    let mut events = lines.events();
    // How often it was lost before it was told otherwise is of no interest.
    let again = ["WARN lease_lost", "INFO lease_acquired"].repeat(2);
    while let Some(at) = events.windows(4).position(|window| window == again) {
        events.drain(at..at + 2);
    }
    let expected = [
        "WARN lease_store_failed",
        "INFO lease_store_recovered",
        "INFO lease_acquired",
        "WARN lease_lost",
        "INFO lease_acquired",
        "WARN lease_store_failed",
        "WARN lease_not_renewed",
        "WARN lease_lost",
        "INFO lease_store_recovered",
        "INFO lease_acquired",
        "INFO lease_released",
    ];
    assert_eq!(events, expected);
}
