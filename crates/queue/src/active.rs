//! The segment that is being written: created durably, grown by whole batches, given up on when
//! its data cannot be made durable.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bridge_core::StoreError;

use crate::disk::{Access, Disk, DiskFile, Layout, is_full};
use crate::frame::{self, Kind};
use crate::head::Head;
use crate::record::encode_seqs;
use crate::recovery::Tail;
use crate::segment::{Header, Salt};

/// What an append came to.
#[derive(Debug)]
pub(crate) enum Append {
    Done,
    /// Nothing of it is in the file, which goes on being usable.
    CutBack(StoreError),
    /// What is in the file is unknown, and not trusted: a new segment is to begin.
    Sealed(StoreError),
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) sink: Arc<Sink>,
    pub(crate) salt: Salt,
    /// Where the next batch goes, those that are under way counted.
    pub(crate) len: u64,
}

/// The file of a segment, as far as appending goes: whoever holds it appends one batch after the
/// other, and never one behind a batch that failed.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Arc<dyn DiskFile>,
    layout: Layout,
    first_seq: u64,
}

impl Active {
    /// Begins a segment with the frame numbered `first_seq`, which lists the `older` ones.
    pub(crate) fn create(
        disk: &dyn Disk,
        layout: &Layout,
        first_seq: u64,
        older: &[u64],
    ) -> Result<Self, StoreError> {
        let path = layout.segment(first_seq);
        let header = Header {
            first_seq,
            salt: Salt::random(),
        };
        let mut bytes = header.encode_area();
        frame::append(
            &mut bytes,
            &header.salt,
            first_seq,
            Kind::Segments,
            true,
            |out| {
                encode_seqs(out, older);
            },
        );
        let create = || -> io::Result<Arc<dyn DiskFile>> {
            let file = match disk.create(&path) {
                // Left by an attempt that could not even be undone; nothing was ever in it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    disk.remove(&path)?;
                    disk.create(&path)?
                }
                created => created?,
            };
            file.write_at(&bytes, 0)?;
            file.sync()?;
            disk.sync_folder(&layout.journal())?;
            Ok(file)
        };
        match create() {
            Ok(file) => {
                Head::segment_begun(disk, layout, first_seq);
                Ok(Self {
                    sink: Sink::new(file, layout, first_seq),
                    salt: header.salt,
                    len: bytes.len() as u64,
                })
            }
            Err(error) => {
                // Half a segment is noticed at the next opening; the name is wanted again before.
                let _ = disk.remove(&path);
                Err(store_error(layout, first_seq, "create", &error))
            }
        }
    }

    /// Goes on with the last segment of a journal that was read. What was in it is made durable:
    /// a crash may have left it in the system's memory only.
    pub(crate) fn resume(disk: &dyn Disk, layout: &Layout, tail: &Tail) -> io::Result<Self> {
        let file = disk.open(&layout.segment(tail.first_seq), Access::Write)?;
        file.sync()?;
        Ok(Self {
            sink: Sink::new(file, layout, tail.first_seq),
            salt: tail.salt,
            len: tail.len,
        })
    }
}

impl Sink {
    fn new(file: Arc<dyn DiskFile>, layout: &Layout, first_seq: u64) -> Arc<Self> {
        Arc::new(Self {
            file,
            layout: layout.clone(),
            first_seq,
        })
    }

    /// Writes a batch to the end of the file, which is at `end`, and makes it durable.
    pub(crate) fn append(&self, bytes: &[u8], end: u64) -> Append {
        if bytes.is_empty() {
            return Append::Done;
        }
        if let Err(error) = self.file.write_at(bytes, end) {
            let error = store_error(&self.layout, self.first_seq, "write", &error);
            return match self.file.cut(end) {
                Ok(()) => Append::CutBack(error),
                Err(_) => Append::Sealed(error),
            };
        }
        if let Err(error) = self.file.sync() {
            // The system may have dropped the data and marked it clean: asked again it would
            // say that all is well.
            let error = store_error(&self.layout, self.first_seq, "sync", &error);
            return Append::Sealed(error);
        }
        Append::Done
    }
}

fn store_error(
    layout: &Layout,
    first_seq: u64,
    action: &'static str,
    error: &io::Error,
) -> StoreError {
    error_at(layout, &layout.segment(first_seq), action, error)
}

/// What an error of the file at `place` is to who waits.
pub(crate) fn error_at(
    layout: &Layout,
    place: &Path,
    action: &'static str,
    error: &io::Error,
) -> StoreError {
    if is_full(error) {
        return full(layout);
    }
    StoreError::Io {
        action,
        place: place.display().to_string(),
        error: error.to_string(),
    }
}

/// The answer of a full disk.
fn full(layout: &Layout) -> StoreError {
    StoreError::Full {
        place: layout.root().display().to_string(),
    }
}
