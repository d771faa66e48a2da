//! HTTP/1.1 by hand, as much of it as asking a monitor on the loopback takes.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header fields, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as text.
    pub body: String,
}

impl Response {
    /// The first header field of that name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.headers.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Gets `path` from that port of 127.0.0.1.
pub async fn get(port: u16, path: &str) -> io::Result<Response> {
    request(port, "GET", path, &[], "").await
}

/// Sends a request with header fields and a body to that port of 127.0.0.1.
pub async fn request(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Response> {
    request_within(PATIENCE, port, method, path, headers, body).await
}

/// The same, of a server that may take so long.
pub async fn request_within(
    patience: Duration,
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Response> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .await?;
        let mut answer = Vec::new();
        // Not every server closes the connection when it is asked to.
        while !has_its_length(&answer) {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        parse(&answer).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&answer).into_owned();
            io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {shown:?}"))
        })
    };
    timeout(patience, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether it says how long it is, and is as long.
fn has_its_length(answer: &[u8]) -> bool {
    parse(answer).is_some_and(|response| response.header("content-length").is_some())
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let mut status_line = lines.next()?.splitn(3, ' ');
    if !status_line.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let status = status_line.next()?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &answer[end + 4..];
    let field = |name: &str| {
        headers
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, v)| v)
    };
    let body = if field("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        unchunk(rest)?
    } else if let Some(length) = field("content-length") {
        rest.get(..length.parse().ok()?)?.to_vec()
    } else {
        rest.to_vec()
    };
    Some(Response {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
        headers,
    })
}

/// Puts the chunks together; `None` when the last one is missing: the answer was cut off.
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_by_its_length_by_its_chunks_or_to_the_end() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2;x=y\r\ndy\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nready",
        ] {
            let response = parse(answer.as_bytes()).unwrap();
            assert_eq!((response.status, response.body.as_str()), (200, "ready"));
        }
    }

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert_eq!(parse(answer.as_bytes()), None, "{answer:?}");
        }
    }
}
