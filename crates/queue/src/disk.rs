//! What the journal asks of a file system, so that a test can be one that tears, fills and lies.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a new file may be used for, and by whom: payloads are no one else's. The umask may forbid more.
pub(crate) const FILE_MODE: u32 = 0o640;
/// The same of a new folder.
const FOLDER_MODE: u32 = 0o750;

/// The folder operations of the journal.
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    /// Makes a folder and those above it, durably, if they are not there.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// The names of the files in `folder`; none when there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// A new file; an old one of the name is an error.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes creations, removals and renames in `folder` durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The file operations of the journal.
pub(crate) trait DiskFile: Send + Sync + fmt::Debug {
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer`; an end before that is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Where the last data within the first `limit` bytes ends: a hole may follow, as far as the
    /// file system tells.
    fn data_end(&self, limit: u64) -> io::Result<u64> {
        Ok(self.len()?.min(limit))
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn cut(&self, len: u64) -> io::Result<()>;
    /// Makes everything written so far durable, the length included.
    fn sync(&self) -> io::Result<()>;
    /// Takes so many bytes of space from the file system.
    fn allocate(&self, len: u64) -> io::Result<()>;
}

/// The machine's own file system.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let parent = folder.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        self.create_folder(parent)?;
        match fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            // Someone made it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        self.sync_folder(parent)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            // Someone may have moved a file to another disk, and left a link to it.
            let links_to_file = || fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
            let is_file = kind.is_file() || (kind.is_symlink() && links_to_file());
            if let (true, Ok(name)) = (is_file, entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        Ok(Arc::new(RealFile(open_plain(&mut options, path)?)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }
}

/// Opens what is a plain file. A pipe that bears a file's name would be waited for without end.
pub(crate) fn open_plain(options: &mut OpenOptions, path: &Path) -> io::Result<fs::File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no plain file"))
    }
}

#[derive(Debug)]
struct RealFile(fs::File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn data_end(&self, limit: u64) -> io::Result<u64> {
        use rustix::fs::{SeekFrom, seek};
        use rustix::io::Errno;
        let mut end = 0;
        while end < limit {
            // Where the file is read and written is always said, so its position may be moved.
            let data = match seek(&self.0, SeekFrom::Data(end)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(end),
                Err(_) => return Ok(self.len()?.min(limit)),
            };
            if data >= limit {
                return Ok(end);
            }
            match seek(&self.0, SeekFrom::Hole(data)) {
                Ok(hole) if hole > end => end = hole,
                _ => return Ok(self.len()?.min(limit)),
            }
        }
        Ok(end.min(limit))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: it makes the length durable too, being needed to read the data.
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&self.0, flags, 0, len) {
            // Not every file system can; zeros take the same space.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let zeros = vec![0_u8; 64 << 10];
                let mut offset = 0;
                while offset < len {
                    self.0.write_all_at(&zeros, offset)?;
                    offset += zeros.len() as u64;
                }
                Ok(())
            }
            result => Ok(result?),
        }
    }
}

/// Whether an error says that there is no space left, by quota or altogether.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The folders and files of a store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    pub(crate) fn head(&self) -> PathBuf {
        self.root.join("head")
    }

    pub(crate) fn segment(&self, first_seq: u64) -> PathBuf {
        crate::segment::path(&self.journal(), first_seq)
    }
}
