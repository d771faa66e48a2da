//! Signals to a child process.

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tokio::process::Child;

/// Sends `signal` to `child`; nothing happens when it has ended already.
pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return;
    };
    match kill_process(pid, signal) {
        // The process is a zombie or gone: there is nothing left to signal.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!(
            "cannot send {signal:?} to process {}: {error}",
            pid.as_raw_nonzero()
        ),
    }
}
