//! The calls that need no bridge that runs, for whoever has its data folder in hand.

use std::sync::Arc;

use axum::Router;
use bridge_core::Clock;
use bridge_runtime::Control;
use tokio::io::DuplexStream;
use tokio_util::task::TaskTracker;

use crate::admin::{App, Observed};
use crate::api;
use crate::auth::{Auth, Who};
use crate::guard;
use crate::listener::answer;

/// So much of a request or an answer is on its way at a time.
const PIPE: usize = 64 << 10;

/// The same calls with the same answers as behind a listener, without one: it is asked by the
/// process that it is in, whose system has decided that it may. What it does is in the audit log
/// all the same.
pub struct Offline {
    app: Arc<App>,
    routes: Router,
    connections: TaskTracker,
}

impl Offline {
    /// Answers over `control`; the audit log calls whoever asks `who`.
    pub fn new(
        who: String,
        observed: Arc<dyn Observed>,
        control: Control,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let auth = Arc::new(Auth::closed(clock.clone()));
        let app = App::new(observed, control, auth, clock);
        let routes = guard::around_own(api::offline(), &app, Who::here(who));
        Self {
            app,
            routes,
            connections: TaskTracker::new(),
        }
    }

    /// A connection to it, which speaks HTTP/1.1.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        self.connections.spawn(answer(theirs, self.routes.clone()));
        ours
    }

    /// Waits until every connection has ended, and all that was begun by them.
    pub async fn end(&self) {
        self.connections.close();
        self.connections.wait().await;
        self.app.end().await;
    }
}

impl std::fmt::Debug for Offline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offline").finish_non_exhaustive()
    }
}
