//! A real session under guard, with a broker that says what the fuzzer thinks of: no panic, no
//! memory out of proportion, and the session comes back.

#![no_main]

#[path = "../../crates/transport/tests/sessions/hostile/conversation.rs"]
mod conversation;

use std::sync::LazyLock;

use tempfile::TempDir;
use tokio::runtime::Builder;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // One for each input: with it ends every task of the session.
    let runtime = Builder::new_current_thread().enable_all().build();
    let socket = FOLDER.path().join("broker");
    runtime
        .expect("a runtime")
        .block_on(conversation::converse(input, &socket));
});
