//! A broker that answers what a test says.

mod behaviour;
mod connection;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub use behaviour::{Behaviour, ReceivedPublish, Reply};
pub use connection::BrokerConnection;

use crate::codec::{Connect, Disconnect, Packet, Protocol};
use crate::port::{self, PortLease};
use crate::socket::Socket;

/// A scripted broker on 127.0.0.1; everything it holds is closed on drop.
///
/// It speaks to each client in the version that the client's CONNECT names; what MQTT 3.1.1 has
/// no words for (properties, reason codes, a DISCONNECT by the broker) is left out there.
///
/// Dropping it fails the test when a script has panicked, as when an expectation in it did not
/// hold.
#[derive(Debug)]
pub struct ScriptedBroker {
    lease: PortLease,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

/// What is recorded, and what is open.
#[derive(Debug, Default)]
struct Shared {
    accepted: AtomicUsize,
    open: AtomicUsize,
    packets: Mutex<Vec<(usize, Packet)>>,
    publishes: Mutex<Vec<ReceivedPublish>>,
    sockets: Mutex<Vec<Open>>,
    failures: Mutex<Vec<String>>,
}

/// A connection that is open.
#[derive(Debug, Clone)]
struct Open {
    number: usize,
    socket: Socket,
    protocol: Protocol,
    /// Known after CONNECT.
    client_id: Option<String>,
}

impl Open {
    async fn send(&self, packet: &Packet) {
        let bytes = packet.encode_as(self.protocol);
        // The connection may end at this moment; its script notices.
        let _ = self.socket.write_all(&bytes).await;
    }

    /// Says DISCONNECT, where the version lets a broker say it, and ends the script's reading.
    async fn dismiss(&self, disconnect: Disconnect) {
        if self.protocol == Protocol::V5 {
            self.send(&Packet::Disconnect(disconnect)).await;
        }
        self.socket.end();
    }
}

impl ScriptedBroker {
    /// Serves each connection by `script`, which ends it by returning.
    ///
    /// # Panics
    /// When the port cannot be bound.
    pub async fn start<S, F>(script: S) -> Self
    where
        S: Fn(BrokerConnection) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let lease = PortLease::take();
        let listener = port::listen(&lease).await;
        let shared = Arc::new(Shared::default());
        let acceptor = tokio::spawn(serve(listener, Arc::clone(&shared), script));
        Self {
            lease,
            shared,
            acceptor,
        }
    }

    /// Serves every connection by `behaviour`.
    pub async fn behaving(behaviour: Behaviour) -> Self {
        Self::start(move |mut connection| {
            let behaviour = behaviour.clone();
            async move { connection.behave(&behaviour).await }
        })
        .await
    }

    /// Accepts everything.
    pub async fn accepting() -> Self {
        Self::behaving(Behaviour::new()).await
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

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Every packet received so far, with the number of its connection (from 0), in order.
    pub fn packets(&self) -> Vec<(usize, Packet)> {
        lock(&self.shared.packets).clone()
    }

    /// The CONNECT packets among them.
    pub fn connects(&self) -> Vec<Connect> {
        let packets = lock(&self.shared.packets);
        let connects = packets.iter().filter_map(|(_, packet)| match packet {
            Packet::Connect(connect) => Some(connect.clone()),
            _ => None,
        });
        connects.collect()
    }

    /// Every PUBLISH received so far, in order, those too that were sent again.
    pub fn publishes(&self) -> Vec<ReceivedPublish> {
        lock(&self.shared.publishes).clone()
    }

    /// How many PUBLISH packets have been received so far.
    pub fn publish_count(&self) -> usize {
        lock(&self.shared.publishes).len()
    }

    /// Sends a packet on every open connection, whatever its script is doing.
    pub async fn send_packet_to_all(&self, packet: &Packet) {
        for open in self.sockets() {
            open.send(packet).await;
        }
    }

    /// Lets every script read the end of its connection, without a word to the client.
    pub fn close_all(&self) {
        for open in self.sockets() {
            open.socket.end();
        }
    }

    /// Lets every script read the end of its connection; where it returns then, the client sees
    /// a RST.
    pub fn reset_all(&self) {
        for open in self.sockets() {
            open.socket.close_with_reset();
            open.socket.end();
        }
    }

    fn sockets(&self) -> Vec<Open> {
        lock(&self.shared.sockets).clone()
    }
}

impl Drop for ScriptedBroker {
    fn drop(&mut self) {
        self.acceptor.abort();
        let failures = lock(&self.shared.failures);
        if !std::thread::panicking() {
            assert!(failures.is_empty(), "scripts failed: {failures:#?}");
        }
    }
}

/// Accepts connections; scripts end with this task.
async fn serve<S, F>(listener: TcpListener, shared: Arc<Shared>, script: S)
where
    S: Fn(BrokerConnection) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut scripts = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // The client may be gone already.
                let Ok(socket) = Socket::new(stream) else { continue };
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
                scripts.spawn(script(BrokerConnection::new(socket, number, Arc::clone(&shared))));
            }
            Some(ended) = scripts.join_next() => {
                if let Err(error) = ended {
                    lock(&shared.failures).push(describe(error));
                }
            }
        }
    }
}

/// The message of a script's panic.
fn describe(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "cancelled".to_owned();
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without text")
        .to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
