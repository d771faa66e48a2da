//! One GET of HTTP/1.1 by hand, within a deadline and a size, whatever answers.

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// More than a monitor says, even of thousands of bindings that are blocked.
const MAX_BYTES: usize = 256 << 10;
/// How much of a body is shown.
const SHOWN: usize = 4_000;

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Without what a terminal would obey, and not too much of it.
    pub(super) body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("cannot connect to {address}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the host has no address")]
    Nowhere,
    #[error("the connection failed: {0}")]
    Broken(io::Error),
    #[error("no whole answer within {0:?}")]
    Late(Duration),
    #[error("the answer is larger than {MAX_BYTES} bytes: something else listens there")]
    TooLarge,
    #[error("the answer is not HTTP: something else listens there")]
    NotHttp,
}

/// Gets `path` from the first of `addresses` that takes a connection.
pub(super) fn get(
    addresses: &[SocketAddr],
    host: &str,
    path: &str,
    patience: Duration,
) -> Result<Answer, NoAnswer> {
    let deadline = Deadline {
        at: Instant::now() + patience,
        patience,
    };
    let mut stream = connect(addresses, &deadline)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream
        .set_write_timeout(Some(deadline.left()?))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .map_err(|error| deadline.told(error))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        if let Some(whole) = parse(&answer, false)? {
            return Ok(whole);
        }
        stream
            .set_read_timeout(Some(deadline.left()?))
            .map_err(NoAnswer::Broken)?;
        let read = match stream.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(deadline.told(error)),
        };
        if read == 0 {
            return parse(&answer, true)?.ok_or(NoAnswer::NotHttp);
        }
        answer.extend(buffer.iter().take(read));
        if answer.len() > MAX_BYTES {
            return Err(NoAnswer::TooLarge);
        }
    }
}

fn connect(addresses: &[SocketAddr], deadline: &Deadline) -> Result<TcpStream, NoAnswer> {
    let mut failure = NoAnswer::Nowhere;
    for &address in addresses {
        match TcpStream::connect_timeout(&address, deadline.left()?) {
            Ok(stream) => return Ok(stream),
            // What is told is what happened at the address that was meant first.
            Err(source) if matches!(failure, NoAnswer::Nowhere) => {
                failure = NoAnswer::Connect { address, source };
            }
            Err(_) => {}
        }
    }
    Err(failure)
}

/// One for the whole exchange: an answer that trickles must not take for ever.
struct Deadline {
    at: Instant,
    patience: Duration,
}

impl Deadline {
    /// What is left, which is never zero.
    fn left(&self) -> Result<Duration, NoAnswer> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(NoAnswer::Late(self.patience))
        } else {
            Ok(left)
        }
    }

    fn told(&self, error: io::Error) -> NoAnswer {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NoAnswer::Late(self.patience),
            _ => NoAnswer::Broken(error),
        }
    }
}

/// The answer, once it is whole: as long as it says that it is, or up to the end.
fn parse(bytes: &[u8], ended: bool) -> Result<Option<Answer>, NoAnswer> {
    let magic = b"HTTP/1.";
    if !bytes.iter().zip(magic).all(|(is, should)| is == should) {
        return Err(NoAnswer::NotHttp);
    }
    let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, body) = bytes.split_at(head_end);
    let body = body.get(4..).unwrap_or_default();
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status
        .filter(|status| status.len() == 3)
        .and_then(|status| status.parse().ok())
        .ok_or(NoAnswer::NotHttp)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = ended || length.is_some_and(|length| body.len() >= length);
    Ok(whole.then(|| Answer {
        status,
        body: shown(&String::from_utf8_lossy(body)),
    }))
}

fn shown(body: &str) -> String {
    let kept = |c: char| if c.is_control() && c != '\n' { '·' } else { c };
    body.trim().chars().take(SHOWN).map(kept).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// A server that takes one request and then does as told, and the address that it has.
    fn server(act: impl FnOnce(&mut TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let task = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            act(&mut stream);
        });
        (address, task)
    }

    fn ask(
        patience: Duration,
        act: impl FnOnce(&mut TcpStream) + Send + 'static,
    ) -> Result<Answer, NoAnswer> {
        let (address, task) = server(act);
        let answer = get(&[address], "host", "/readyz", patience);
        task.join().unwrap();
        answer
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    fn says(text: &'static str) -> Result<Answer, NoAnswer> {
        ask(PATIENCE, move |stream| {
            stream.write_all(text.as_bytes()).unwrap();
        })
    }

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let answer = says("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nwhy\n");
        let expected = Answer {
            status: 503,
            body: "why".to_owned(),
        };
        assert_eq!(answer.unwrap(), expected);
        // Without a length, to the end; nothing that a terminal would obey is passed on.
        let answer = says("HTTP/1.0 200 OK\r\n\r\n\x1b[31mred\x07");
        assert_eq!(answer.unwrap().body, "·[31mred·");
    }

    #[test]
    fn an_answer_that_is_whole_is_not_waited_for_any_longer() {
        let (hold, released) = std::sync::mpsc::channel::<()>();
        let (address, task) = server(move |stream| {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer.as_bytes()).unwrap();
            // The connection stays open until the answer has been taken.
            released.recv().unwrap_err();
        });
        let answer = get(&[address], "host", "/", PATIENCE);
        drop(hold);
        task.join().unwrap();
        assert_eq!(answer.unwrap().status, 200);
    }

    #[test]
    fn what_is_not_http_is_no_answer() {
        for text in [
            "\x20\x02\x00\x00",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "",
        ] {
            let answer = says(text);
            assert!(
                matches!(answer, Err(NoAnswer::NotHttp)),
                "{text:?}: {answer:?}"
            );
        }
    }

    #[test]
    fn a_huge_answer_is_not_read_to_its_end() {
        let answer = ask(PATIENCE, |stream| {
            let mut head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            head.resize(64 << 10, b'x');
            // Until the other side has had enough.
            while stream.write_all(&head).is_ok() {}
        });
        assert!(matches!(answer, Err(NoAnswer::TooLarge)), "{answer:?}");
    }

    #[test]
    fn an_answer_that_trickles_ends_at_the_deadline() {
        let began = Instant::now();
        let patience = Duration::from_millis(300);
        let answer = ask(patience, |stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
            let pause = Duration::from_millis(20);
            stream.set_read_timeout(Some(pause)).unwrap();
            // A byte now and then, until the other side has gone.
            loop {
                let there = matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
                if !there || stream.write_all(b"x").is_err() {
                    break;
                }
            }
        });
        assert!(matches!(answer, Err(NoAnswer::Late(_))), "{answer:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn the_first_address_that_takes_a_connection_is_asked() {
        let lease = bridge_testkit::PortLease::take();
        let nobody = SocketAddr::from(([127, 0, 0, 1], lease.port()));
        let (address, task) = server(|stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nready\n").unwrap();
        });
        let answer = get(&[nobody, address], "host", "/", PATIENCE);
        task.join().unwrap();
        assert_eq!(answer.unwrap().body, "ready");
        let refused = get(&[nobody], "host", "/", PATIENCE);
        assert!(
            matches!(refused, Err(NoAnswer::Connect { .. })),
            "{refused:?}"
        );
    }
}
