//! A destination that is always connected.

use std::future::{pending, ready};
use std::sync::{Mutex, MutexGuard};

use bridge_core::{
    Acknowledgement, Admitted, Answer, BoxFuture, Limits, Link, NotAdmitted, Outgoing, QoS, Reason,
    ReasonCode, Sink,
};

/// A destination that is always connected, and answers every message in the same way until it is
/// told another one. At first it accepts.
#[derive(Debug)]
pub struct SteadySink(Mutex<State>);

#[derive(Debug)]
struct State {
    answer: Answer,
    offered: u64,
    accepted: Vec<String>,
}

impl Default for SteadySink {
    fn default() -> Self {
        Self(Mutex::new(State {
            answer: answered(0),
            offered: 0,
            accepted: Vec::new(),
        }))
    }
}

impl SteadySink {
    /// Answers with that code from now on.
    pub fn answer_with(&self, code: u8) {
        self.state().answer = answered(code);
    }

    /// Fails from now on, without a verdict.
    pub fn fail(&self) {
        self.state().answer = Answer::Failed {
            reason: Reason::ProcessorFailed,
            detail: None,
        };
    }

    /// How many messages it was offered.
    pub fn offered(&self) -> u64 {
        self.state().offered
    }

    /// The payloads that it accepted, in order.
    pub fn accepted(&self) -> Vec<String> {
        self.state().accepted.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn answered(code: u8) -> Answer {
    Answer::Answered {
        by: Acknowledgement::PubAck,
        code: ReasonCode::new(code),
        reason_string: None,
    }
}

impl Sink for SteadySink {
    fn publish(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>> {
        let mut state = self.state();
        state.offered += 1;
        let answer = state.answer.clone();
        if matches!(&answer, Answer::Answered { code, .. } if !code.is_refusal()) {
            let payload = String::from_utf8_lossy(&outgoing.payload).into_owned();
            state.accepted.push(payload);
        }
        Box::pin(async { Ok(Box::pin(ready(answer)) as Admitted) })
    }

    fn link(&self) -> Link {
        Link::Up {
            epoch: 1,
            limits: Limits {
                window: 100,
                maximum_packet_size: None,
                maximum_qos: QoS::ExactlyOnce,
                retain_available: true,
            },
        }
    }

    fn changed(&self, seen: Link) -> BoxFuture<'_, Link> {
        let link = self.link();
        Box::pin(async move {
            if link == seen {
                pending::<()>().await;
            }
            link
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
