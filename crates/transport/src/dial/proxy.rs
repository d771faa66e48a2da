//! A way through an HTTP proxy: `CONNECT` (RFC 9110 §9.3.6).

use std::str;

use data_encoding::BASE64;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Fault;
use crate::Address;

/// The longest head of an answer that is read.
const LONGEST_HEAD: usize = 16 * 1024;

/// Asks the proxy at the other end for a way to `target`; what follows is the target's.
pub(super) async fn tunnel(
    proxy: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &Address,
    credentials: Option<(&str, &str)>,
) -> Result<(), Fault> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some((name, password)) = credentials {
        let encoded = BASE64.encode(format!("{name}:{password}").as_bytes());
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(&encoded);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    proxy
        .write_all(request.as_bytes())
        .await
        .map_err(Fault::ProxyLost)?;
    let head = head(proxy).await?;
    match status(&head).ok_or(Fault::ProxyNotHttp)? {
        200..300 => Ok(()),
        407 if credentials.is_some() => Err(Fault::ProxyCredentialsRefused),
        407 => Err(Fault::ProxyCredentialsWanted),
        status => Err(Fault::ProxyRefused { status }),
    }
}

/// Reads up to the empty line, and not a byte further: that belongs to the broker.
async fn head(proxy: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Fault> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            return Err(Fault::ProxyNotHttp);
        }
        head.push(proxy.read_u8().await.map_err(Fault::ProxyLost)?);
        if !b"HTTP/1.".starts_with(head.get(..7).unwrap_or(&head)) {
            return Err(Fault::ProxyNotHttp);
        }
    }
    Ok(head)
}

/// The number in `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let mut words = str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|word| word.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Address {
        Address {
            host: "2001:db8::7".to_owned(),
            port: 8883,
        }
    }

    /// What a proxy with that answer hears, and what comes of it.
    async fn asked(
        answer: &[u8],
        credentials: Option<(&str, &str)>,
    ) -> (String, Result<(), Fault>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(answer).await.unwrap();
        let target = target();
        let answered = tunnel(&mut near, &target, credentials);
        // The far end closes when it has said all: a head without an end would hang otherwise.
        let (result, heard) = tokio::join!(answered, async {
            let mut heard = vec![0; 1024];
            let read = far.read(&mut heard).await.unwrap();
            heard.truncate(read);
            drop(far);
            String::from_utf8(heard).unwrap()
        });
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        (heard, result, rest)
    }

    #[tokio::test]
    async fn the_way_is_asked_for_and_not_a_byte_of_the_broker_is_taken() {
        let answer = b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nbroker";
        let (heard, result, rest) = asked(answer, Some(("user", "pä:ss"))).await;
        result.unwrap();
        assert_eq!(
            heard,
            "CONNECT [2001:db8::7]:8883 HTTP/1.1\r\nHost: [2001:db8::7]:8883\r\n\
             Proxy-Authorization: Basic dXNlcjpww6Q6c3M=\r\n\r\n"
        );
        assert_eq!(rest, b"broker");
    }

    #[tokio::test]
    async fn what_a_proxy_wants_or_refuses_is_told_apart() {
        let wants = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let (_, result, _) = asked(wants, None).await;
        assert!(matches!(result, Err(Fault::ProxyCredentialsWanted)));
        let (_, result, _) = asked(wants, Some(("u", "p"))).await;
        assert!(matches!(result, Err(Fault::ProxyCredentialsRefused)));
        let (_, result, _) = asked(b"HTTP/1.0 403 No\r\n\r\n", None).await;
        assert!(matches!(result, Err(Fault::ProxyRefused { status: 403 })));
    }

    #[tokio::test]
    async fn an_answer_without_an_end_or_that_is_no_http_is_not_read_on() {
        let mut long = b"HTTP/1.1 200 OK\r\n".to_vec();
        long.resize(LONGEST_HEAD + 1_000, b'x');
        let (_, result, _) = asked(&long, None).await;
        assert!(matches!(result, Err(Fault::ProxyNotHttp)), "{result:?}");
        let (_, result, _) = asked(b"\x15\x03\x03\x00\x02\x02\x28", None).await;
        assert!(matches!(result, Err(Fault::ProxyNotHttp)), "{result:?}");
        let (_, result, _) = asked(b"HTTP/1.1 hello\r\n\r\n", None).await;
        assert!(matches!(result, Err(Fault::ProxyNotHttp)), "{result:?}");
        let (_, result, _) = asked(b"HTTP/1.1 200", None).await;
        assert!(matches!(result, Err(Fault::ProxyLost(_))), "{result:?}");
    }
}
