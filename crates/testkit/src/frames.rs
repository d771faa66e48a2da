//! Reading frames from a socket.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::codec::{Frame, Malformed};

/// Cuts what is read into frames. Reading may be cancelled at any await and loses nothing.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    inner: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: BytesMut::with_capacity(64 * 1024),
        }
    }

    /// The next frame; `None` when the stream has ended between two frames.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if !self.fill().await? {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Reads once; false at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        if self.buffer.capacity() - self.buffer.len() < 4 * 1024 {
            self.buffer.reserve(64 * 1024);
        }
        Ok(self.inner.read_buf(&mut self.buffer).await? > 0)
    }

    /// The next frame that has been read already.
    pub(crate) fn buffered(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some((header, length)) = header(&self.buffer)? else {
            return Ok(None);
        };
        if self.buffer.len() < header + length {
            return Ok(None);
        }
        let first = self.buffer[0];
        self.buffer.advance(header);
        Ok(Some(Frame {
            first,
            body: self.buffer.split_to(length).freeze(),
        }))
    }
}

/// The sizes of fixed header and rest, when the header is complete.
fn header(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut length = 0;
    for (position, shift) in [(1, 0), (2, 7), (3, 14), (4, 21)] {
        let Some(byte) = bytes.get(position) else {
            return Ok(None);
        };
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(Some((position + 1, length)));
        }
    }
    Err(Malformed::VarInt)
}
