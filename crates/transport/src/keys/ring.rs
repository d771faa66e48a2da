//! The keys in use, and what has become of their files since.

use super::files::Contents;
use super::{KeyError, Keys, Origin};

/// The keys of one endpoint, renewed when their files change.
///
/// What others write is not trusted before it makes good keys: a certificate whose key has not
/// come yet, a file that is gone or half written leaves the old keys in use.
#[derive(Debug)]
pub(crate) struct Ring {
    origin: Origin,
    in_use: Option<InUse>,
    /// What the log was told about files that make no keys.
    told: Option<KeyError>,
}

#[derive(Debug, Clone)]
struct InUse {
    contents: Contents,
    keys: Keys,
}

/// What a look at the files has shown.
#[derive(Debug)]
enum Look {
    /// What is in use.
    Same,
    /// Other keys.
    Other(Box<InUse>),
    /// No keys.
    Useless(KeyError),
}

impl Ring {
    pub(crate) const fn new(origin: Origin) -> Self {
        Self {
            origin,
            in_use: None,
            told: None,
        }
    }

    /// Whether anything is read from files, which others may renew.
    pub(crate) fn has_files(&self) -> bool {
        self.origin.files().next().is_some()
    }

    /// The keys for a connection that is about to be made: those that the files make now, or
    /// else the ones in use. `complain` hears once of files that make none.
    pub(crate) async fn take(
        &mut self,
        complain: impl FnOnce(&KeyError),
    ) -> Result<Keys, KeyError> {
        match self.look().await {
            Look::Same => self.told = None,
            Look::Other(other) => {
                self.told = None;
                self.in_use = Some(*other);
            }
            Look::Useless(error) if self.in_use.is_none() => return Err(error),
            Look::Useless(error) => self.tell(error, complain),
        }
        let keys = self.in_use.as_ref().map(|in_use| in_use.keys.clone());
        keys.ok_or_else(|| KeyError::Defect("there are no keys".to_owned()))
    }

    /// Whether the files make other keys than those in use, and made the same ones at the last
    /// look, which is `before`: who writes a file may not be done yet.
    pub(crate) async fn renewed(
        &mut self,
        before: &mut Glimpse,
        complain: impl FnOnce(&KeyError),
    ) -> bool {
        let seen = match self.look().await {
            Look::Same => {
                self.told = None;
                None
            }
            Look::Other(other) => Some(other.contents),
            Look::Useless(error) => {
                self.tell(error, complain);
                None
            }
        };
        let renewed = seen.is_some() && seen == before.0;
        before.0 = seen;
        renewed
    }

    fn tell(&mut self, error: KeyError, complain: impl FnOnce(&KeyError)) {
        if self.told.as_ref() != Some(&error) {
            complain(&error);
            self.told = Some(error);
        }
    }

    async fn look(&self) -> Look {
        let origin = self.origin.clone();
        let known = self.in_use.as_ref().map(|in_use| in_use.contents.clone());
        let looking = move || {
            let contents = origin.read();
            if known.as_ref() == Some(&contents) {
                return Look::Same;
            }
            match origin.build(&contents) {
                Ok(keys) => Look::Other(Box::new(InUse { contents, keys })),
                Err(error) => Look::Useless(error),
            }
        };
        // Files may lie on a disk that is slow, and the system's trust is many files.
        let looked = tokio::task::spawn_blocking(looking).await;
        looked.unwrap_or_else(|defect| Look::Useless(KeyError::Defect(defect.to_string())))
    }
}

/// Other keys that were seen and not yet believed.
#[derive(Debug, Default)]
pub(crate) struct Glimpse(Option<Contents>);

impl Glimpse {
    /// Something was seen that may be done by now.
    pub(crate) const fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests;
