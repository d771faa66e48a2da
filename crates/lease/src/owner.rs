//! Who holds a lease.

use std::fmt;

use uuid::Uuid;

/// One process that may hold a lease.
///
/// The instance's name is for people. What tells two owners apart is the boot id, which each
/// process makes for itself: a second process that was started with a copied `instance_id` is a
/// second owner.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    instance: String,
    boot: Uuid,
}

/// Why a text cannot name an instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOwner {
    /// No characters at all.
    #[error("an instance needs a name: set instance_id, or let the host have a name")]
    Empty,
    /// More than [`Owner::LONGEST`] bytes.
    #[error(
        "the name of an instance has at most 253 bytes, this one has {0}: set a shorter instance_id"
    )]
    TooLong(usize),
    /// A control character or white space at an end.
    #[error(
        "the name of an instance is one line without white space around it, {0:?} is not: \
         correct instance_id"
    )]
    NotOneLine(String),
}

impl Owner {
    /// The longest name in bytes: that of a host.
    pub const LONGEST: usize = 253;

    /// An owner that no other process is, under the name of this instance.
    pub fn new(instance: impl Into<String>) -> Result<Self, InvalidOwner> {
        Self::of(instance.into(), Uuid::now_v7())
    }

    /// The owner that a store has written down.
    pub(crate) fn of(instance: String, boot: Uuid) -> Result<Self, InvalidOwner> {
        if instance.is_empty() {
            return Err(InvalidOwner::Empty);
        }
        if instance.len() > Self::LONGEST {
            return Err(InvalidOwner::TooLong(instance.len()));
        }
        if instance.chars().any(char::is_control) || instance.trim() != instance {
            return Err(InvalidOwner::NotOneLine(instance));
        }
        Ok(Self { instance, boot })
    }

    /// The instance's name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What this process, and no other, is known by.
    pub const fn boot(&self) -> Uuid {
        self.boot
    }
}

impl fmt::Display for Owner {
    /// `plant-7-0 (boot 019ad4a2-…)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (boot {})", self.instance, self.boot)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_with_one_instance_id_are_two_owners() {
        let (a, b) = (Owner::new("plant-7"), Owner::new("plant-7"));
        assert_ne!(a.unwrap(), b.unwrap());
    }

    #[test]
    fn a_name_that_a_line_cannot_hold_is_refused_with_the_remedy() {
        for (name, remedy) in [
            (String::new(), "set instance_id"),
            ("a\nb".to_owned(), "correct instance_id"),
            (" a".to_owned(), "correct instance_id"),
            ("a".repeat(254), "set a shorter instance_id"),
        ] {
            let error = Owner::new(name).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
        assert!(Owner::new("a".repeat(253)).is_ok());
    }
}
