//! Ports of 127.0.0.1 that stay ours while a broker is down.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, sleep};

/// Below the range from which Linux takes the ports of outgoing connections (32768 and up).
const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

/// A free port that no other test takes as long as this lives.
///
/// Binding to port 0 and letting go is not enough for a broker that restarts on its port: while
/// it is down, any other test may get it. So each lease holds a lock file besides.
#[derive(Debug)]
pub struct PortLease {
    port: u16,
    _lock: File,
}

impl PortLease {
    /// Takes a free port.
    ///
    /// # Panics
    /// When there is none, or the folder of lock files cannot be written.
    pub fn take() -> Self {
        // Test binaries run side by side: each process begins somewhere else.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let spread = std::process::id().wrapping_mul(7_919) % u32::from(COUNT);
        let spread = u16::try_from(spread).unwrap_or_default();

        let folder = lock_folder();
        create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = FIRST + spread.wrapping_add(step) % COUNT;
            if let Some(lock) = lock(&folder, port)
                && bind(port).is_ok()
            {
                return Self { port, _lock: lock };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// A socket that is bound and does not listen.
///
/// A listener would do for a look at whether a port is free, but a process that is forked at that
/// moment holds a copy of it until it executes its program, and for so long nobody could listen.
fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

/// Listens at a leased port. A copy of an earlier listener may live for a moment in a process that
/// is just being forked: that is waited for.
///
/// # Panics
/// When the port cannot be bound all the same.
pub(crate) async fn listen(lease: &PortLease) -> TcpListener {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match bind(lease.port()).and_then(|socket| socket.listen(1_024)) {
            Ok(listener) => return listener,
            Err(error) => assert!(
                error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end,
                "the leased port {} cannot be bound: {error}",
                lease.port()
            ),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn lock_folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("bridge-testkit-ports-{user}"))
}

fn lock(folder: &std::path::Path, port: u16) -> Option<File> {
    let path = folder.join(port.to_string());
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn no_two_leases_share_a_port() {
        let leases: Vec<_> = (0..50).map(|_| PortLease::take()).collect();
        let ports: HashSet<_> = leases.iter().map(PortLease::port).collect();
        assert_eq!(ports.len(), leases.len());
    }

    #[tokio::test]
    async fn a_leased_port_stays_taken_though_nothing_listens_and_is_free_after_the_lease() {
        let lease = PortLease::take();
        assert!(lock(&lock_folder(), lease.port()).is_none());
        let port = lease.port();
        drop(lease);
        // A process that is just being forked holds a copy of the lock for a moment.
        wait_until("the port is free", Duration::from_secs(10), || {
            lock(&lock_folder(), port).is_some()
        })
        .await;
    }
}
