//! Which filters the brokers hold for a session, remembered across restarts.
//!
//! A broker that keeps a session keeps its subscriptions, those of an earlier configuration too,
//! and tells nobody which. So they are written down before they are asked for, and struck out
//! when the broker has ended them: the file names at least what a broker may hold.
//!
//! ```text
//!   magic \0 { client id \0 broker \0 { filter \0 } \0 } end \0
//! ```
//!
//! No string of MQTT holds NUL, so nothing has to be escaped. A file without its end is none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tracing::warn;

const MAGIC: &str = "bridge-filters-1";
const END: &str = "end";

/// Filters by client id and broker.
type Book = BTreeMap<(String, String), Vec<String>>;

/// The book of one session, and where it is kept.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Where it is kept; nothing is remembered without.
    path: Option<PathBuf>,
    book: Book,
    /// The log has been told that it cannot be kept.
    announced: bool,
}

impl Held {
    /// The book in that file. One that is not there is empty; so is one that cannot be read, and
    /// then the log says so.
    pub(super) async fn open(path: Option<PathBuf>) -> Self {
        let read = path.clone();
        let reading = tokio::task::spawn_blocking(move || read.as_deref().map(read_book));
        let book = match reading.await {
            Ok(None) => Book::new(),
            Ok(Some(Ok(book))) => book,
            Ok(Some(Err(error))) => {
                lost(path.as_deref(), &error);
                Book::new()
            }
            Err(error) => {
                lost(path.as_deref(), &io::Error::other(error));
                Book::new()
            }
        };
        Self {
            path,
            book,
            announced: false,
        }
    }

    /// What the broker may hold for that client.
    pub(super) fn at(&self, client_id: &str, broker: &str) -> &[String] {
        let key = (client_id.to_owned(), broker.to_owned());
        self.book.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Notes what the broker may hold for that client from now on; on disk when this ends.
    ///
    /// What cannot be written is remembered for as long as the process lives, and told once: a
    /// full disk is no reason not to subscribe.
    pub(super) async fn note(&mut self, client_id: &str, broker: &str, mut filters: Vec<String>) {
        filters.sort_unstable();
        filters.dedup();
        if self.at(client_id, broker) == filters {
            return;
        }
        let key = (client_id.to_owned(), broker.to_owned());
        if filters.is_empty() {
            self.book.remove(&key);
        } else {
            self.book.insert(key, filters);
        }
        let Some(path) = self.path.clone() else {
            return;
        };
        let bytes = encode(&self.book);
        let writing = tokio::task::spawn_blocking(move || write(&path, &bytes));
        let written = writing.await.map_err(io::Error::other).flatten();
        if let Err(error) = written
            && !std::mem::replace(&mut self.announced, true)
        {
            warn!(
                event = "filters_not_remembered",
                file = self.path.as_ref().map(|path| path.display().to_string()),
                error = %error,
                "cannot write down which filters are subscribed to: should the configuration \
                 drop one while the bridge does not run, its subscription may live on at the broker"
            );
        }
    }
}

fn lost(path: Option<&Path>, error: &io::Error) {
    warn!(
        event = "filters_forgotten",
        file = path.map(|path| path.display().to_string()),
        error = %error,
        "cannot read which filters were subscribed to: those of an earlier configuration may live \
         on at the broker"
    );
}

fn read_book(path: &Path) -> io::Result<Book> {
    match fs::read(path) {
        Ok(bytes) => decode(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Book::new()),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, across a crash too.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    // Filters may say more of a plant than everyone on the machine is to know.
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o750).create(folder)?;
    let new = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o640);
    let mut file = options.open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

fn encode(book: &Book) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |text: &str| {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    };
    put(MAGIC);
    for ((client_id, broker), filters) in book {
        put(client_id);
        put(broker);
        for filter in filters {
            put(filter);
        }
        // No filter is empty.
        put("");
    }
    put(END);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Book> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\0')?;
    let mut texts = text.split('\0').map(str::to_owned).peekable();
    if texts.next()? != MAGIC {
        return None;
    }
    let mut book = Book::new();
    loop {
        let first = texts.next()?;
        if texts.peek().is_none() {
            return (first == END).then_some(book);
        }
        let key = (first, texts.next()?);
        let mut filters = Vec::new();
        loop {
            let filter = texts.next()?;
            if filter.is_empty() {
                break;
            }
            filters.push(filter);
        }
        book.insert(key, filters);
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn filters(filters: &[&str]) -> Vec<String> {
        filters.iter().map(|&filter| filter.to_owned()).collect()
    }

    fn file() -> (PathBuf, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (folder.path().join("sessions").join("plant.filters"), folder)
    }

    #[tokio::test]
    async fn what_was_noted_is_there_after_a_restart() {
        let (path, _folder) = file();
        let mut held = Held::open(Some(path.clone())).await;
        held.note("r", "mqtt://a", filters(&["b\n/c", "a/#", "a/#"]))
            .await;
        held.note("", "mqtt://b", filters(&["$share/g/ü"])).await;
        held.note("gone", "mqtt://b", filters(&["x"])).await;
        held.note("gone", "mqtt://b", Vec::new()).await;

        let held = Held::open(Some(path)).await;
        assert_eq!(held.at("r", "mqtt://a"), ["a/#", "b\n/c"]);
        assert_eq!(held.at("", "mqtt://b"), ["$share/g/ü"]);
        assert_eq!(held.at("r", "mqtt://b"), [""; 0]);
        assert_eq!(held.book.len(), 2);
    }

    #[test]
    fn i25_a_file_that_is_cut_or_changed_is_none_and_no_panic() {
        let mut book = Book::new();
        for broker in ["a", "b"] {
            book.insert(("r".to_owned(), broker.to_owned()), filters(&["x", "end"]));
        }
        let bytes = encode(&book);
        assert_eq!(decode(&bytes), Some(book));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "cut at {length}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x80;
            assert_eq!(decode(&changed), None, "changed at {at}");
        }
    }

    #[tokio::test]
    async fn a_damaged_file_is_as_good_as_none_and_is_written_anew() {
        let (path, _folder) = file();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"garbage").unwrap();
        let mut held = Held::open(Some(path.clone())).await;
        assert_eq!(held.at("r", "a"), [""; 0]);
        held.note("r", "a", filters(&["x"])).await;
        assert_eq!(Held::open(Some(path)).await.at("r", "a"), ["x"]);
    }

    #[tokio::test]
    async fn where_nothing_can_be_written_it_is_remembered_while_the_process_lives() {
        let (path, _folder) = file();
        fs::create_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
        // A file where the folder should be.
        fs::write(path.parent().unwrap(), b"").unwrap();
        let mut held = Held::open(Some(path)).await;
        held.note("r", "a", filters(&["x"])).await;
        assert_eq!(held.at("r", "a"), ["x"]);
    }
}
