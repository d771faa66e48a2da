//! How a journal is opened, and why it could not be.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The bounds that a journal works within. The defaults suit a plant's edge and a server alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// A new segment begins after so many bytes; 16 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// At most so many records share one fsync.
    pub batch_records: usize,
    /// At most so many bytes share one fsync, a single larger message aside.
    pub batch_bytes: usize,
    /// A settle is written after so long at the latest; one that is lost in a crash before makes
    /// its message come twice.
    pub settle_delay: Duration,
    /// Settles are written when so many wait.
    pub settle_count: usize,
    /// The largest message that is taken, by `Message::size`.
    pub max_message_bytes: u64,
    /// Space that is set aside so that a full disk can be drained.
    pub reserve_bytes: u64,
    /// Dead bytes that are left lying before anything is copied to free them.
    pub slack_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            batch_records: 1024,
            batch_bytes: 4 << 20,
            settle_delay: Duration::from_millis(100),
            settle_count: 4096,
            max_message_bytes: 256 << 20,
            reserve_bytes: 1 << 20,
            slack_bytes: 32 << 20,
        }
    }
}

impl JournalOptions {
    /// With every bound within what the format can hold.
    pub(crate) fn checked(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.clamp(16 << 10, 1 << 30);
        self.batch_records = self.batch_records.max(1);
        self.batch_bytes = self.batch_bytes.clamp(4 << 10, 256 << 20);
        self.settle_count = self.settle_count.max(1);
        self.max_message_bytes = self.max_message_bytes.min(1 << 30);
        self
    }
}

/// Why a journal could not be opened. Damage is no reason: that is set aside and reported.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process works in the folder.
    #[error("{} is held by {holder}; stop it, or use another data folder", place.display())]
    Locked {
        /// The lock file.
        place: PathBuf,
        /// Who says to hold it.
        holder: String,
    },
    /// There is no journal, where none is to be made.
    #[error("there is no journal in {}", place.display())]
    NotThere {
        /// The folder.
        place: PathBuf,
    },
    /// The journal is another user's, who could not read what we write.
    #[error(
        "{} belongs to the user with number {owner}, who could not read what number {own} writes; \
         do this as that user", place.display()
    )]
    OfAnother {
        /// A file of the journal.
        place: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// A newer version of this program wrote the journal.
    #[error(
        "{} is of journal format {found}, this program knows {known}; use the newer program, or \
         another data folder", place.display()
    )]
    NewerFormat {
        /// The segment.
        place: PathBuf,
        /// Its format.
        found: u16,
        /// The format that this program knows.
        known: u16,
    },
    /// The operating system failed.
    #[error("cannot {action} {}", place.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or folder.
        place: PathBuf,
        /// The system's own error.
        #[source]
        source: io::Error,
    },
}
