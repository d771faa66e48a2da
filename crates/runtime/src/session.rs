//! What the bindings that publish to one session share: how much is under way, and whose turn it is
//! to be alone.
//!
//! A message under suspicion says something only if nothing else of its session is under way. So a
//! binding asks for the session, the others send nothing more, and when all that was under way is
//! answered it has the session for one message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lane::Lane;

/// One session's traffic.
#[derive(Debug, Default)]
pub(crate) struct Session(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: u64,
    accepted: u64,
    /// Who wants to be alone, in the order of asking.
    claims: VecDeque<usize>,
    lanes: Vec<Arc<Lane>>,
}

/// One binding's part in a session.
#[derive(Debug)]
pub(crate) struct Share {
    session: Arc<Session>,
    number: usize,
    under_way: u64,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part in it for the binding of `lane`.
    pub(crate) fn join(self: &Arc<Self>, lane: &Arc<Lane>) -> Share {
        let mut state = self.lock();
        state.lanes.push(lane.clone());
        Share {
            session: self.clone(),
            number: state.lanes.len() - 1,
            under_way: 0,
        }
    }
}

impl State {
    fn give_back(&mut self, number: usize) {
        let before = self.claims.len();
        self.claims.retain(|claim| *claim != number);
        if self.claims.len() < before {
            for lane in &self.lanes {
                lane.wake.notify_one();
            }
        }
    }

    fn ended(&mut self, messages: u64) {
        self.under_way = self.under_way.saturating_sub(messages);
        if self.under_way == 0
            && let Some(first) = self.claims.front()
            && let Some(lane) = self.lanes.get(*first)
        {
            lane.wake.notify_one();
        }
    }
}

impl Share {
    /// Whether this binding may send: nobody else wants to be alone.
    pub(crate) fn may_send(&self) -> bool {
        let state = self.session.lock();
        state
            .claims
            .front()
            .is_none_or(|first| *first == self.number)
    }

    /// Asks to be alone. Says whether that is so; else the lane is woken when it may be.
    pub(crate) fn claim(&self) -> bool {
        let mut state = self.session.lock();
        if !state.claims.contains(&self.number) {
            state.claims.push_back(self.number);
        }
        state.claims.front() == Some(&self.number) && state.under_way == 0
    }

    /// Needs to be alone no longer.
    pub(crate) fn release(&self) {
        self.session.lock().give_back(self.number);
    }

    /// A message is on its way.
    pub(crate) fn begun(&mut self) {
        self.under_way += 1;
        self.session.lock().under_way += 1;
    }

    /// A message is no longer on its way.
    pub(crate) fn ended(&mut self, accepted: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        let mut state = self.session.lock();
        state.accepted += u64::from(accepted);
        state.ended(1);
    }

    /// How many messages the session has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.session.lock().accepted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.ended(self.under_way);
        state.give_back(self.number);
    }
}
