//! A task that accepts connections and owns what serves them.

use std::future::Future;
use std::io;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Accepts until it is dropped; the connections end with it.
#[derive(Debug)]
pub(crate) struct Acceptor(JoinHandle<()>);

impl Acceptor {
    /// Serves each connection by `serve`. How one ends is its own affair.
    pub(crate) fn start<S, F>(listener: TcpListener, serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        Self(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        if let Ok((stream, _)) = accepted {
                            let _ = stream.set_nodelay(true);
                            connections.spawn(serve(stream));
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        }))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.0.abort();
    }
}
