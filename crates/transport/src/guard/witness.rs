//! What the guard has seen of one connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bridge_core::ReasonCode;

use super::violation::Violation;
use crate::dial::Held;

/// A reason code with the broker's own words, where it gave any.
pub(crate) type Said = (ReasonCode, Option<String>);

/// Facts of one connection, written by the guard and read by the session.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    publishes_begun: AtomicU64,
    write_failed: AtomicBool,
    connack: Mutex<Option<Said>>,
    disconnect: Mutex<Option<Said>>,
    reference: Mutex<Option<String>>,
    violation: Mutex<Option<Violation>>,
    /// The socket once more, for a goodbye that waits until the broker has read it.
    socket: Mutex<Option<Held>>,
}

impl Witness {
    /// How many PUBLISH packets have reached the socket with at least their first byte.
    pub(crate) fn publishes_begun(&self) -> u64 {
        self.publishes_begun.load(Ordering::Acquire)
    }

    /// Whether a write has failed: what was "written" since then has gone nowhere.
    pub(crate) fn write_failed(&self) -> bool {
        self.write_failed.load(Ordering::Acquire)
    }

    /// The reason code of the CONNACK, if one has come.
    pub(crate) fn connack(&self) -> Option<Said> {
        lock(&self.connack).clone()
    }

    /// The reason code of the broker's DISCONNECT, if one has come.
    pub(crate) fn disconnect(&self) -> Option<Said> {
        lock(&self.disconnect).clone()
    }

    /// The server that the broker has named instead of itself, MQTT 5 §4.11.
    pub(crate) fn reference(&self) -> Option<String> {
        lock(&self.reference).clone()
    }

    /// What the broker did that it may not, if it did.
    pub(crate) fn violation(&self) -> Option<Violation> {
        *lock(&self.violation)
    }

    /// Keeps the socket open beyond the client, until [`Witness::let_go`].
    pub(crate) fn hold(&self, socket: Held) {
        *lock(&self.socket) = Some(socket);
    }

    /// Hands back what was held.
    pub(crate) fn let_go(&self) -> Option<Held> {
        lock(&self.socket).take()
    }

    pub(super) fn publish_begun(&self) {
        self.publishes_begun.fetch_add(1, Ordering::Release);
    }

    pub(super) fn write_has_failed(&self) {
        self.write_failed.store(true, Ordering::Release);
    }

    pub(super) fn violated(&self, violation: Violation) {
        lock(&self.violation).get_or_insert(violation);
    }

    pub(super) fn welcomed(&self, (code, text): (u8, Option<String>)) {
        *lock(&self.connack) = Some((ReasonCode::new(code), text));
    }

    pub(super) fn pointed_to(&self, reference: Option<String>) {
        if reference.is_some() {
            *lock(&self.reference) = reference;
        }
    }

    pub(super) fn disconnected(&self, (code, text): (u8, Option<String>)) {
        *lock(&self.disconnect) = Some((ReasonCode::new(code), text));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
