//! The head of an HTTP request, as a server reads it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A head longer than this is refused.
const MAX_HEAD: usize = 16 * 1024;

/// What a client has asked for, before anything of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, as `GET` or `CONNECT`.
    pub method: String,
    /// The path, or host and port of a tunnel, as the client wrote it.
    pub target: String,
    /// The header fields, their names in lower case.
    pub headers: Vec<(String, String)>,
}

impl RequestHead {
    /// The first header field of that name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.headers.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads up to the empty line and not one byte more, which may belong to what comes after;
    /// `None` when the client ends before it.
    pub(crate) async fn read(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if bytes.len() > MAX_HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match client.read_u8().await {
                Ok(byte) => bytes.push(byte),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, target) = (word(), word());
        let fields = lines.filter_map(|line| line.split_once(':'));
        Ok(Some(Self {
            method,
            target,
            headers: fields
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
        }))
    }
}
