//! An HTTP proxy that opens tunnels (CONNECT), and nothing else.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::acceptor::Acceptor;
use crate::http_head::RequestHead;
use crate::port::{self, PortLease};

/// A proxy on 127.0.0.1; everything it holds is closed on drop.
#[derive(Debug)]
pub struct HttpProxy {
    lease: PortLease,
    shared: Arc<Shared>,
    _acceptor: Acceptor,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Rules>,
    requests: Mutex<Vec<RequestHead>>,
}

#[derive(Debug, Default)]
struct Rules {
    /// Where targets lead that this machine has no name for.
    hosts: HashMap<String, u16>,
    authorization: Option<String>,
    /// The whole answer, in place of a tunnel.
    answer: Option<Vec<u8>>,
}

impl HttpProxy {
    /// Starts a proxy that opens a tunnel to whatever it is asked for.
    ///
    /// # Panics
    /// When the port cannot be bound.
    pub async fn start() -> Self {
        let lease = PortLease::take();
        let listener = port::listen(&lease).await;
        let shared = Arc::new(Shared::default());
        let of_task = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |client| {
            let shared = Arc::clone(&of_task);
            async move { shared.serve(client).await }
        });
        Self {
            lease,
            shared,
            _acceptor: acceptor,
        }
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// Knows the way to `target` (host and port), which only the proxy has a name for.
    pub fn lead(&self, target: &str, to: u16) {
        lock(&self.shared.rules).hosts.insert(target.to_owned(), to);
    }

    /// Asks for that value of `Proxy-Authorization` (`Basic dTpw`), and answers 407 without.
    pub fn require(&self, authorization: &str) {
        lock(&self.shared.rules).authorization = Some(authorization.to_owned());
    }

    /// Answers with these bytes from now on, and ends the connection; `None`: opens tunnels.
    pub fn answer_with(&self, answer: Option<&[u8]>) {
        lock(&self.shared.rules).answer = answer.map(<[u8]>::to_vec);
    }

    /// What it was asked for so far.
    pub fn requests(&self) -> Vec<RequestHead> {
        lock(&self.shared.requests).clone()
    }
}

impl Shared {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let Some(request) = RequestHead::read(&mut client).await? else {
            return Ok(());
        };
        lock(&self.requests).push(request.clone());
        if let Some(answer) = self.refusal(&request) {
            client.write_all(&answer).await?;
            return client.shutdown().await;
        }
        let known = lock(&self.rules).hosts.get(&request.target).copied();
        let connected = match known {
            Some(port) => TcpStream::connect(("127.0.0.1", port)).await,
            None => TcpStream::connect(&request.target).await,
        };
        let Ok(mut server) = connected else {
            client.write_all(&head("502 Bad Gateway")).await?;
            return client.shutdown().await;
        };
        server.set_nodelay(true)?;
        client
            .write_all(&head("200 Connection established"))
            .await?;
        copy_bidirectional(&mut client, &mut server).await?;
        Ok(())
    }

    fn refusal(&self, request: &RequestHead) -> Option<Vec<u8>> {
        let rules = lock(&self.rules);
        if let Some(answer) = &rules.answer {
            return Some(answer.clone());
        }
        if request.method != "CONNECT" {
            return Some(head("405 Method Not Allowed"));
        }
        let wanted = rules.authorization.as_deref();
        if wanted.is_some() && request.header("proxy-authorization") != wanted {
            return Some(head("407 Proxy Authentication Required"));
        }
        None
    }
}

/// An answer without a body.
fn head(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n\r\n").into_bytes()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
