//! Fetching frames: by location, checked, several with one read where they lie close together.

use std::io;
use std::sync::Arc;

use bridge_core::{DeadLetterInfo, DeferInfo, Seq, StoreError, StoredMessage, Timestamp};

use crate::disk::{Access, Disk, DiskFile, Layout};
use crate::frame;
use crate::index::Index;
use crate::record::{MessageHead, Placed, Record, decode_message};
use crate::run::Location;
use crate::segment::Salt;

/// Files that are kept open for reading.
const OPEN_FILES: usize = 16;
/// Frames that lie so close are read at once.
const SPAN: u32 = 256 << 10;

/// A location with what is needed to read it when the index is not at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) location: Location,
    first_seq: u64,
    salt: Salt,
}

impl Address {
    /// `None` for a segment that is not there any more.
    pub(crate) fn of(index: &Index, location: Location) -> Option<Self> {
        let segment = index.segments.get(location.segment)?;
        Some(Self {
            location,
            first_seq: segment.first_seq,
            salt: segment.salt,
        })
    }
}

/// Why a frame could not be fetched.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The segment is gone: what was in it has moved, or is done with.
    Gone,
    Io(io::Error),
    Damaged,
}

impl FetchError {
    pub(crate) fn into_store_error(
        self,
        layout: &Layout,
        seq: u64,
        address: Option<Address>,
    ) -> StoreError {
        let place = address.map_or_else(
            || layout.journal(),
            |address| layout.segment(address.first_seq),
        );
        let place = place.display().to_string();
        match self {
            Self::Io(error) => StoreError::Io {
                action: "read",
                place,
                error: error.to_string(),
            },
            Self::Gone | Self::Damaged => StoreError::Damaged {
                seq: Seq::new(seq),
                place,
            },
        }
    }
}

/// Reads frames, with a few files kept open.
#[derive(Debug)]
pub(crate) struct Fetcher {
    disk: Arc<dyn Disk>,
    layout: Layout,
    /// By segment, the most recently used last.
    open: Vec<(u32, Arc<dyn DiskFile>)>,
    span: Option<Span>,
}

/// Bytes that were read in one go.
#[derive(Debug)]
struct Span {
    segment: u32,
    offset: u32,
    bytes: Vec<u8>,
}

impl Fetcher {
    pub(crate) fn new(disk: Arc<dyn Disk>, layout: Layout) -> Self {
        Self {
            disk,
            layout,
            open: Vec::new(),
            span: None,
        }
    }

    /// Another one of the same journal.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.disk.clone(), self.layout.clone())
    }

    /// Reads ahead what lies close behind `first`, of `rest` which are to be fetched next.
    pub(crate) fn read_ahead(&mut self, first: Address, rest: impl Iterator<Item = Location>) {
        let start = first.location;
        let end_of = |location: Location| location.offset.checked_add(location.len);
        let covered = self
            .span
            .as_ref()
            .is_some_and(|span| span.slice(start).is_some());
        let Some(mut end) = end_of(start).filter(|_| !covered) else {
            return;
        };
        for next in rest {
            let near = next.segment == start.segment && next.offset >= end;
            let Some(next_end) =
                end_of(next).filter(|next_end| near && next_end - start.offset <= SPAN)
            else {
                break;
            };
            end = next_end;
        }
        self.span = None;
        let Ok(len) = usize::try_from(end - start.offset) else {
            return;
        };
        let mut bytes = vec![0; len];
        // What fails here fails again, and is told, when the frame itself is fetched.
        let read = self.file(&first).and_then(|file| {
            file.read_at(&mut bytes, u64::from(start.offset))
                .map_err(FetchError::Io)
        });
        if read.is_ok() {
            self.span = Some(Span {
                segment: start.segment,
                offset: start.offset,
                bytes,
            });
        }
    }

    /// Forgets what was read ahead: it is only good for as long as nothing was written since.
    pub(crate) fn forget(&mut self) {
        self.span = None;
    }

    /// Hands the frame at `address` to `read`.
    pub(crate) fn frame<T>(
        &mut self,
        address: Address,
        read: impl Fn(&frame::Frame<'_>) -> Option<T>,
    ) -> Result<T, FetchError> {
        let sound = |bytes: &[u8]| {
            let frame = frame::parse(bytes, &address.salt)?;
            (u32::try_from(frame.len) == Ok(address.location.len)).then(|| read(&frame))?
        };
        let ahead = self
            .span
            .as_ref()
            .and_then(|span| span.slice(address.location));
        if let Some(value) = ahead.and_then(&sound) {
            return Ok(value);
        }
        let len = usize::try_from(address.location.len).map_err(|_| FetchError::Damaged)?;
        let mut bytes = vec![0; len];
        let file = self.file(&address)?;
        match file.read_at(&mut bytes, u64::from(address.location.offset)) {
            Ok(()) => sound(&bytes).ok_or(FetchError::Damaged),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FetchError::Damaged),
            Err(error) => Err(FetchError::Io(error)),
        }
    }

    fn file(&mut self, address: &Address) -> Result<Arc<dyn DiskFile>, FetchError> {
        let id = address.location.segment;
        if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
            let entry = self.open.remove(at);
            let file = entry.1.clone();
            self.open.push(entry);
            return Ok(file);
        }
        let path = self.layout.segment(address.first_seq);
        let file = self.disk.open(&path, Access::Read).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                FetchError::Gone
            } else {
                FetchError::Io(error)
            }
        })?;
        if self.open.len() >= OPEN_FILES {
            self.open.remove(0);
        }
        self.open.push((id, file.clone()));
        Ok(file)
    }

    /// Closes files of segments that are gone, whose space is not free before.
    pub(crate) fn close_all_but(&mut self, exists: impl Fn(u32) -> bool) {
        self.open.retain(|(id, _)| exists(*id));
    }
}

impl Span {
    fn slice(&self, location: Location) -> Option<&[u8]> {
        let start = location.offset.checked_sub(self.offset)?;
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(location.len).ok()?)?;
        (location.segment == self.segment).then(|| self.bytes.get(start..end))?
    }
}

/// The message in a frame.
pub(crate) fn message_in(frame: &frame::Frame<'_>) -> Option<StoredMessage> {
    match Record::decode(frame).ok()? {
        Record::Put { message, .. } | Record::Redrive { message, .. } => {
            decode_message(message).ok()
        }
        _ => None,
    }
}

/// When the message in a frame was received.
pub(crate) fn received_in(frame: &frame::Frame<'_>) -> Option<Timestamp> {
    match Record::decode(frame).ok()? {
        Record::Put { message, .. } | Record::Redrive { message, .. } => {
            Some(MessageHead::decode(message).ok()?.received)
        }
        _ => None,
    }
}

/// Why an entry is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Info {
    Deferred(DeferInfo),
    Dead(DeadLetterInfo),
}

/// The circumstances of `binding`'s entry in a frame that holds them.
pub(crate) fn info_in(frame: &frame::Frame<'_>, binding: &str) -> Option<Info> {
    match Record::decode(frame).ok()? {
        Record::Defer { info, .. } => Some(Info::Deferred(info)),
        Record::DeadLetter { info, .. } => Some(Info::Dead(info)),
        Record::Put { places, .. } => {
            let (_, placed) = places.into_iter().find(|(name, _)| *name == binding)?;
            match placed {
                Placed::Queue => None,
                Placed::Deferred(info) => Some(Info::Deferred(info)),
                Placed::Dead(info) => Some(Info::Dead(info)),
            }
        }
        _ => None,
    }
}
