//! What is made of files that others renew: a token, a certificate with its key.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::TlsError;
use crate::auth::InvalidToken;

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// Why files are of no use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FileError {
    /// The operating system does not let us.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The system's own words.
        error: String,
    },
    /// More than anybody needs.
    #[error("{} holds more than {LARGEST} bytes", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// What it holds is no token.
    #[error("the token file is of no use: {0}")]
    Token(InvalidToken),
    /// What they hold is no certificate with its key.
    #[error("the certificate's files are of no use: {0}")]
    Tls(TlsError),
}

type Contents = Vec<Vec<u8>>;
type Make<T> = dyn Fn(&[Vec<u8>]) -> Result<T, FileError> + Send + Sync;

/// The value, renewed when its files are.
///
/// What others write is not trusted before it makes a good value and was seen twice: a file that
/// is gone or half written leaves the old value in use.
pub(crate) struct Renewed<T> {
    paths: Vec<PathBuf>,
    /// `None` of a value that no file changes.
    make: Option<Box<Make<T>>>,
    state: Mutex<State<T>>,
}

struct State<T> {
    contents: Contents,
    value: Arc<T>,
    /// Other contents that were seen and not yet believed.
    glimpse: Option<Contents>,
    /// What was said of files that are of no use.
    told: Option<FileError>,
}

/// What a look at the files has shown.
#[derive(Debug, PartialEq)]
pub(crate) enum Look {
    /// Nothing new, or nothing that can be believed yet.
    Same,
    /// There is a new value.
    Renewed,
    /// They are of no use, and that was not said before.
    Useless(FileError),
}

impl<T> Renewed<T> {
    /// Reads the files for the first time.
    pub(crate) fn open(
        paths: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, FileError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let contents = read_all(&paths)?;
        let value = Arc::new(make(&contents)?);
        Ok(Self {
            paths,
            make: Some(Box::new(make)),
            state: Mutex::new(State {
                contents,
                value,
                glimpse: None,
                told: None,
            }),
        })
    }

    /// A value that no file changes.
    pub(crate) fn fixed(value: T) -> Self {
        Self {
            paths: Vec::new(),
            make: None,
            state: Mutex::new(State {
                contents: Vec::new(),
                value: Arc::new(value),
                glimpse: None,
                told: None,
            }),
        }
    }

    /// The value in use.
    pub(crate) fn current(&self) -> Arc<T> {
        self.state().value.clone()
    }

    /// Looks at the files again. Blocks: a disk may be slow.
    pub(crate) fn look(&self) -> Look {
        let Some(maker) = &self.make else {
            return Look::Same;
        };
        let read = read_all(&self.paths);
        let made = read.and_then(|contents| {
            if self.state().contents == contents {
                return Ok(None);
            }
            maker(&contents).map(|value| Some((contents, value)))
        });
        let mut state = self.state();
        match made {
            Ok(None) => {
                (state.glimpse, state.told) = (None, None);
                Look::Same
            }
            Ok(Some((contents, value))) => {
                if state.glimpse.as_ref() != Some(&contents) {
                    state.glimpse = Some(contents);
                    return Look::Same;
                }
                *state = State {
                    contents,
                    value: Arc::new(value),
                    glimpse: None,
                    told: None,
                };
                Look::Renewed
            }
            Err(error) => {
                state.glimpse = None;
                if state.told.as_ref() == Some(&error) {
                    return Look::Same;
                }
                state.told = Some(error.clone());
                Look::Useless(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Renewed<T> {
    /// Names only: what is in the files is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Renewed").field(&self.paths).finish()
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Contents, FileError> {
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let bytes = read_bounded(path).map_err(|error| FileError::Unreadable {
        path: path.to_owned(),
        error: error.to_string(),
    })?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        Ok(bytes)
    } else {
        Err(FileError::TooLarge {
            path: path.to_owned(),
        })
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(contents: &[Vec<u8>]) -> Result<u32, FileError> {
        let text = contents.first().map(|bytes| String::from_utf8_lossy(bytes));
        let number = text.and_then(|text| text.trim().parse().ok());
        number.ok_or(FileError::Token(InvalidToken::TooShort(0)))
    }

    #[test]
    fn a_renewed_file_is_believed_when_it_was_seen_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let renewed = Renewed::open(vec![path.clone()], number).unwrap();
        assert_eq!((renewed.look(), *renewed.current()), (Look::Same, 1));
        std::fs::write(&path, "2").unwrap();
        assert_eq!((renewed.look(), *renewed.current()), (Look::Same, 1));
        std::fs::write(&path, "22").unwrap();
        assert_eq!((renewed.look(), *renewed.current()), (Look::Same, 1));
        assert_eq!((renewed.look(), *renewed.current()), (Look::Renewed, 22));
        assert_eq!(renewed.look(), Look::Same);
    }

    #[test]
    fn a_file_of_no_use_leaves_the_old_value_and_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let renewed = Renewed::open(vec![path.clone()], number).unwrap();
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(renewed.look(), Look::Useless(FileError::Token(_))));
        assert_eq!(renewed.look(), Look::Same);
        std::fs::remove_file(&path).unwrap();
        let gone = renewed.look();
        assert!(matches!(gone, Look::Useless(FileError::Unreadable { .. })));
        assert_eq!((renewed.look(), *renewed.current()), (Look::Same, 1));
    }
}
