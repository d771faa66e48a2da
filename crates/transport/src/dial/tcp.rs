//! From a name to a connected TCP socket.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::{Deadline, Fault};
use crate::Address;

/// Resolves the name anew and connects to the first of its addresses that answers.
///
/// What is left of the time is shared out among the addresses that are left, so that one that
/// swallows packets leaves time for the others.
pub(super) async fn connect(
    address: &Address,
    deadline: &Deadline,
    resolve: impl AsyncFn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<TcpStream, Fault> {
    let host = &address.host;
    let found = deadline.run("resolving the name", async {
        let found = resolve(host, address.port).await;
        found.map_err(|source| Fault::Name {
            host: host.clone(),
            source,
        })
    });
    let found = found.await?;
    let mut last = Fault::NoAddress { host: host.clone() };
    for (tried, &at) in found.iter().enumerate() {
        let others = u32::try_from(found.len() - tried).unwrap_or(1);
        last = match timeout(deadline.left() / others, TcpStream::connect(at)).await {
            Ok(Ok(stream)) => {
                // Off by default; an acknowledgement must not wait for the next packet.
                stream.set_nodelay(true).map_err(Fault::Socket)?;
                return Ok(stream);
            }
            Ok(Err(source)) => Fault::Connect { at, source },
            Err(_) => Fault::Silent { at },
        };
    }
    Err(last)
}

/// Asks the operating system.
pub(super) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match (lookup_host((host, port)).await, host.strip_suffix('.')) {
        (Ok(found), _) => Ok(found.collect()),
        // A trailing dot says that the name is complete. Name servers know that, the system's
        // own table of hosts does not.
        (Err(_), Some(host)) => Ok(lookup_host((host, port)).await?.collect()),
        (Err(error), None) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use tokio::net::TcpListener;

    fn deadline() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    fn address(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    #[tokio::test]
    async fn names_numbers_and_trailing_dots_lead_to_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "localhost."] {
            // `localhost` may have an IPv6 address as well, on which nobody listens.
            let stream = connect(&address(host, port), &deadline(), resolve)
                .await
                .expect(host);
            assert!(stream.nodelay().unwrap());
        }
    }

    #[tokio::test]
    async fn case_23_an_ipv6_address_has_no_brackets() {
        // A machine without IPv6 has nothing to show here.
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            return;
        };
        let port = listener.local_addr().unwrap().port();
        connect(&address("::1", port), &deadline(), resolve)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn case_23_a_scope_says_by_which_interface() {
        for scope in ["lo", "1"] {
            let found = resolve(&format!("fe80::1%{scope}"), 8883).await;
            let [SocketAddr::V6(found)] = found.as_deref().unwrap() else {
                panic!("{found:?}");
            };
            assert_eq!(found.ip().to_string(), "fe80::1");
            assert_eq!(found.scope_id(), 1, "lo is the first interface");
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist_is_told_by_name() {
        let nowhere = address("no-such-host.invalid", 1883);
        let fault = connect(&nowhere, &deadline(), resolve).await.unwrap_err();
        assert!(
            fault.to_string().contains("no-such-host.invalid"),
            "{fault}"
        );
    }

    #[tokio::test]
    async fn the_name_is_asked_for_anew_at_each_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = gone.local_addr().unwrap();
        drop(gone);
        let asked = AtomicUsize::new(0);
        let moving = async |_: &str, _: u16| {
            Ok(match asked.fetch_add(1, Ordering::Relaxed) {
                0 => vec![nobody],
                _ => vec![here],
            })
        };
        let broker = address("broker", 1883);
        let fault = connect(&broker, &deadline(), moving).await.unwrap_err();
        assert!(matches!(fault, Fault::Connect { at, .. } if at == nobody));
        let stream = connect(&broker, &deadline(), moving).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), here);
    }

    #[tokio::test]
    async fn the_next_address_is_tried_where_one_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = gone.local_addr().unwrap();
        drop(gone);
        let both = async |_: &str, _: u16| Ok(vec![nobody, here]);
        let stream = connect(&address("broker", 1), &deadline(), both).await;
        assert_eq!(stream.unwrap().peer_addr().unwrap(), here);
        let none = async |_: &str, _: u16| Ok(Vec::new());
        let fault = connect(&address("broker", 1), &deadline(), none).await;
        assert!(matches!(fault.unwrap_err(), Fault::NoAddress { .. }));
    }
}
