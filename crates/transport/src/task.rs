//! The task of a session's connection, as its owner holds it.

use bridge_core::Name;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// A task that ends when it is told to; dropped, it is told so.
#[derive(Debug)]
pub(crate) struct SessionTask {
    session: Name,
    role: &'static str,
    cancel: CancellationToken,
    running: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl SessionTask {
    /// Starts the task that `work` makes. Must be called within a tokio runtime.
    pub(crate) fn spawn<F>(
        session: Name,
        role: &'static str,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let cancel = CancellationToken::new();
        let running = tokio::spawn(work(cancel.clone()));
        Self {
            session,
            role,
            cancel,
            running: tokio::sync::Mutex::new(Some(running)),
        }
    }

    /// Tells the task to end and waits until it has. Called twice, the second waits as well.
    pub(crate) async fn close(&self) {
        self.cancel.cancel();
        let mut running = self.running.lock().await;
        if let Some(task) = running.take()
            && let Err(failure) = task.await
        {
            error!(
                event = "session_task_failed",
                session = %self.session,
                role = self.role,
                error = %failure,
                "a defect ended the session's task; please report it"
            );
        }
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
