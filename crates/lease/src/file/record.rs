//! What stands in the file of a lease: a few lines that a person can read.
//!
//! ```text
//! bridge-lease 1
//! lease plant-7
//! owner bridge-0
//! boot 019ad4a2-5614-7707-8707-070707070707
//! token 1764486001042
//! renewals 42
//! ttl_ms 15000
//! state held
//! crc32c 5e0c9a11
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use bridge_core::Name;
use uuid::Uuid;

use crate::{Owner, Token};

const FORMAT: &str = "bridge-lease 1";
/// The largest record that can be: every line at its longest, with room to spare.
pub(super) const LARGEST: usize = 1_024;

/// One lease as it was written last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Name,
    pub(super) owner: Owner,
    pub(super) token: Token,
    /// Greater with each renewal, so that whoever looks on sees them.
    pub(super) renewals: u64,
    pub(super) ttl: Duration,
    pub(super) held: bool,
}

/// Why a text is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it begins with {0:?} instead of {FORMAT:?}")]
    Format(String),
    #[error("its {0} is missing or wrong")]
    Field(&'static str),
    #[error("its checksum is {found:08x}, and should be {computed:08x}")]
    Checksum { found: u32, computed: u32 },
    #[error("it is no text, or longer than {LARGEST} bytes")]
    NoText,
}

impl Record {
    pub(super) fn to_text(&self) -> String {
        let state = if self.held { "held" } else { "released" };
        let mut text = format!(
            "{FORMAT}\nlease {}\nowner {}\nboot {}\ntoken {}\nrenewals {}\nttl_ms {}\nstate {state}\n",
            self.name,
            self.owner.instance(),
            self.owner.boot(),
            self.token,
            self.renewals,
            self.ttl.as_millis(),
        );
        let sum = crc32c::crc32c(text.as_bytes());
        // Writing into a `String` cannot fail.
        let _ = writeln!(text, "crc32c {sum:08x}");
        text
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let text = std::str::from_utf8(bytes).map_err(|_| Damage::NoText)?;
        if text.len() > LARGEST {
            return Err(Damage::NoText);
        }
        let mut lines = text.lines();
        let format = lines.next().unwrap_or_default();
        if format != FORMAT {
            return Err(Damage::Format(format.chars().take(40).collect()));
        }
        let (summed, sum) = text
            .split_once("\ncrc32c ")
            .ok_or(Damage::Field("crc32c"))?;
        let sum = sum.strip_suffix('\n').filter(|sum| sum.len() == 8);
        let found = sum.and_then(|sum| u32::from_str_radix(sum, 16).ok());
        let found = found.ok_or(Damage::Field("crc32c"))?;
        let computed = crc32c::crc32c_append(crc32c::crc32c(summed.as_bytes()), b"\n");
        if found != computed {
            return Err(Damage::Checksum { found, computed });
        }
        let mut field = |name: &'static str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.strip_prefix(' '));
            value.ok_or(Damage::Field(name))
        };
        let name = Name::parse(field("lease")?).map_err(|_| Damage::Field("lease"))?;
        let instance = field("owner")?.to_owned();
        let boot = Uuid::try_parse(field("boot")?).map_err(|_| Damage::Field("boot"))?;
        let owner = Owner::of(instance, boot).map_err(|_| Damage::Field("owner"))?;
        let mut number = |name| field(name)?.parse::<u64>().map_err(|_| Damage::Field(name));
        let (token, renewals) = (number("token")?, number("renewals")?);
        let ttl = Duration::from_millis(number("ttl_ms")?);
        let held = match field("state")? {
            "held" => true,
            "released" => false,
            _ => return Err(Damage::Field("state")),
        };
        Ok(Self {
            name,
            owner,
            token,
            renewals,
            ttl,
            held,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            name: Name::parse("plant-7").unwrap(),
            owner: Owner::new("bridge-0 of plant é").unwrap(),
            token: 17,
            renewals: u64::MAX,
            ttl: Duration::from_secs(15),
            held: true,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for held in [true, false] {
            let record = Record { held, ..record() };
            assert_eq!(Record::parse(record.to_text().as_bytes()), Ok(record));
        }
    }

    #[test]
    fn the_longest_record_is_within_the_bound() {
        let record = Record {
            name: Name::parse(&"n".repeat(64)).unwrap(),
            owner: Owner::new("o".repeat(Owner::LONGEST)).unwrap(),
            token: u64::MAX,
            ..record()
        };
        assert!(record.to_text().len() < LARGEST);
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed() {
        let text = record().to_text().into_bytes();
        for at in 0..text.len() {
            let mut flipped = text.clone();
            flipped[at] ^= 0x04;
            assert!(Record::parse(&flipped).is_err(), "byte {at}");
            assert!(Record::parse(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_a_later_version_writes_is_not_guessed_at() {
        let text = record().to_text().replace(FORMAT, "bridge-lease 2");
        let damage = Record::parse(text.as_bytes()).unwrap_err();
        assert_eq!(damage, Damage::Format("bridge-lease 2".to_owned()));
    }

    proptest! {
        #[test]
        fn i25_no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Record::parse(&bytes).is_err());
        }
    }
}
