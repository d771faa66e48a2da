//! Files that others renew, read whole.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::KeyError;

/// The largest file that is read: a bundle of every authority there is has a third of it.
const LARGEST: u64 = 1 << 20;

/// What some files held at one moment.
#[derive(Clone, PartialEq)]
pub(super) struct Contents(Vec<(PathBuf, Result<Vec<u8>, KeyError>)>);

impl Contents {
    /// Reads them; an error is content too.
    pub(super) fn read<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Self {
        Self(paths.map(|path| (path.clone(), read(path))).collect())
    }

    /// What that file held.
    pub(super) fn of(&self, path: &Path) -> Result<&[u8], KeyError> {
        let found = self.0.iter().find(|(read, _)| read == path);
        match found {
            Some((_, Ok(bytes))) => Ok(bytes),
            Some((_, Err(error))) => Err(error.clone()),
            None => Err(KeyError::Defect(format!("{} was not read", path.display()))),
        }
    }
}

impl fmt::Debug for Contents {
    /// Names only: what is in the files is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(path, _)| path))
            .finish()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let bytes = read_bounded(path).map_err(|error| KeyError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > LARGEST {
        return Err(KeyError::TooLarge {
            path: path.to_owned(),
            limit: LARGEST,
        });
    }
    Ok(bytes)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
