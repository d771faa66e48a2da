//! A TCP proxy that breaks the line in the ways in which lines break.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::port::{self, PortLease};

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// With a FIN to both sides: the end of the stream.
    Finish,
    /// With a RST to both sides: connection reset.
    Reset,
}

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    to_server_stalled: bool,
    to_client_stalled: bool,
    delay: Duration,
}

#[derive(Debug)]
struct Shared {
    upstream: u16,
    line: watch::Sender<Line>,
    cut: broadcast::Sender<Cut>,
    accepted: AtomicUsize,
    connections: Mutex<JoinSet<()>>,
}

/// A proxy in front of a port of 127.0.0.1; everything it holds is closed on drop.
#[derive(Debug)]
pub struct Proxy {
    lease: PortLease,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `upstream`. Nothing need listen there yet.
    ///
    /// # Panics
    /// When its own port cannot be bound.
    pub async fn start(upstream: u16) -> Self {
        let mut proxy = Self {
            lease: PortLease::take(),
            shared: Arc::new(Shared {
                upstream,
                line: watch::Sender::default(),
                cut: broadcast::Sender::new(16),
                accepted: AtomicUsize::new(0),
                connections: Mutex::default(),
            }),
            acceptor: None,
        };
        proxy.accept().await;
        proxy
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// `mqtt://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }

    /// How many connections have been accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Ends every open connection; new ones are accepted as before.
    pub fn cut(&self, how: Cut) {
        // An error says that there is no connection.
        let _ = self.shared.cut.send(how);
    }

    /// Moves no more bytes in either direction; connections stay open, new ones too.
    pub fn stall(&self) {
        self.shared.line.send_modify(|line| {
            line.to_server_stalled = true;
            line.to_client_stalled = true;
        });
    }

    /// Withholds what the server answers; what the client sends still arrives.
    pub fn stall_answers(&self) {
        self.shared
            .line
            .send_modify(|line| line.to_client_stalled = true);
    }

    /// Moves bytes again, beginning with those that were held.
    pub fn resume(&self) {
        self.shared.line.send_modify(|line| {
            line.to_server_stalled = false;
            line.to_client_stalled = false;
        });
    }

    /// Lets every byte arrive so much later, in each direction; throughput stays.
    pub fn delay(&self, delay: Duration) {
        self.shared.line.send_modify(|line| line.delay = delay);
    }

    /// Refuses new connections (connection refused); open ones live on.
    pub async fn refuse(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.abort();
            // The listener is closed when the task is gone.
            let _ = acceptor.await;
        }
    }

    /// Accepts new connections again.
    ///
    /// # Panics
    /// When the port cannot be bound.
    pub async fn accept(&mut self) {
        if self.acceptor.is_some() {
            return;
        }
        let listener = port::listen(&self.lease).await;
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                let mut connections = shared
                    .connections
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                while connections.try_join_next().is_some() {}
                let cut = shared.cut.subscribe();
                connections.spawn(carry(client, Arc::clone(&shared), cut));
            }
        }));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.abort();
        }
        let connections = self.shared.connections.lock();
        connections
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
    }
}

/// Carries one connection until it ends by itself or is cut.
async fn carry(mut client: TcpStream, shared: Arc<Shared>, mut cut: broadcast::Receiver<Cut>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.upstream)).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let how = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let line = || shared.line.subscribe();
        tokio::select! {
            // What was stalled when the line was cut goes nowhere, also if it is resumed at once.
            biased;
            how = cut.recv() => how.unwrap_or(Cut::Reset),
            ended = async {
                tokio::try_join!(
                    pump(client_read, server_write, line(), |line| line.to_server_stalled),
                    pump(server_read, client_write, line(), |line| line.to_client_stalled),
                )
            } => match ended {
                Ok(_) => return,
                Err(_) => Cut::Reset,
            },
        }
    };
    for mut stream in [client, server] {
        match how {
            Cut::Reset => {
                let _ = stream.set_zero_linger();
            }
            Cut::Finish => {
                let _ = stream.shutdown().await;
                // Closing with unread bytes would send a RST: read what the other side has sent.
                let _ = timeout(Duration::from_millis(200), drain(&mut stream)).await;
            }
        }
    }
}

async fn drain(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {}
}

/// Moves bytes in one direction until the end of the stream, which it passes on.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    line: watch::Receiver<Line>,
    stalled: fn(&Line) -> bool,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(256);
    let mut reading = line.clone();
    let mut writing = line;
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            flowing(&mut reading, stalled).await;
            let read = from.read(&mut buffer).await?;
            let due = Instant::now() + reading.borrow().delay;
            if read == 0 || sender.send((due, buffer[..read].to_vec())).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            flowing(&mut writing, stalled).await;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Returns when the direction is not stalled.
async fn flowing(line: &mut watch::Receiver<Line>, stalled: fn(&Line) -> bool) {
    // An error says that the proxy is gone; its tasks are about to be aborted.
    let _ = line.wait_for(|line| !stalled(line)).await;
}
