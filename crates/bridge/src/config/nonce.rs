//! Eight hex digits that no other replica has (I15).

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bridge_core::Timestamp;

/// Odd, so that multiplying by it maps no two numbers to one.
const SPREAD: u32 = 0x9e37_79b9;

/// A number that tells this process from every other that reads the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nonce {
    digits: String,
    /// Why it is not a random one.
    mixed: Option<String>,
}

impl Nonce {
    /// A random one; where there is no randomness to be had, one mixed from what tells replicas
    /// that start together apart.
    pub(crate) fn draw<E: ToString>(
        random: Result<u32, E>,
        otherwise: impl FnOnce() -> Circumstances,
    ) -> Self {
        let (number, mixed) = match random {
            Ok(number) => (number, None),
            Err(why) => (otherwise().mix(), Some(why.to_string())),
        };
        Self {
            digits: format!("{number:08x}"),
            mixed,
        }
    }

    /// The eight digits.
    pub(crate) fn digits(&self) -> &str {
        &self.digits
    }

    /// Why there was no randomness, if there was none.
    pub(crate) fn mixed(&self) -> Option<&str> {
        self.mixed.as_deref()
    }
}

/// What differs between two replicas, even where they start in one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Circumstances {
    pub(crate) wall: Timestamp,
    /// In containers often the same for all.
    pub(crate) process: u32,
    /// Empty where it cannot be found out.
    pub(crate) hostname: OsString,
}

impl Circumstances {
    /// One number of them all. The process id goes in by a one-to-one function: on one host and
    /// in one instant no two processes get one number. Across hosts it is a hash of 32 bits.
    fn mix(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.wall.hash(&mut hasher);
        self.hostname.hash(&mut hasher);
        let hash = hasher.finish();
        let folded = u32::try_from((hash ^ (hash >> 32)) & 0xffff_ffff).unwrap_or_default();
        folded ^ self.process.wrapping_mul(SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    fn circumstances(wall: u64, process: u32, hostname: &str) -> Circumstances {
        Circumstances {
            wall: Timestamp::default().after(Duration::from_millis(wall)),
            process,
            hostname: hostname.into(),
        }
    }

    /// The nonce of a machine whose source of randomness fails.
    fn without_randomness(wall: u64, process: u32, hostname: &str) -> String {
        let failed = Err("entropy is out");
        let nonce = Nonce::draw(failed, || circumstances(wall, process, hostname));
        assert_eq!(nonce.mixed(), Some("entropy is out"));
        nonce.digits().to_owned()
    }

    #[test]
    fn i15_a_nonce_is_eight_hex_digits_of_the_random_source() {
        let nonce = Nonce::draw(Ok::<_, String>(0xab), || panic!("there is randomness"));
        assert_eq!(nonce.digits(), "000000ab");
        assert_eq!(nonce.mixed(), None);
    }

    #[test]
    fn i15_without_randomness_the_process_id_alone_tells_replicas_apart() {
        // All that Linux gives out by default, in one instant on one host.
        let nonces = (1..=32_768).map(|process| without_randomness(7, process, "edge"));
        assert_eq!(nonces.collect::<BTreeSet<_>>().len(), 32_768);
    }

    #[test]
    fn i15_without_randomness_the_hostname_alone_tells_replicas_apart() {
        // Pods begin in one instant, each as process 1, with names that hardly differ.
        let mut nonces: BTreeSet<_> = (0..1_000)
            .map(|pod| without_randomness(7, 1, &format!("bridge-{pod}")))
            .collect();
        assert_eq!(nonces.len(), 1_000);
        // No name at all is one more.
        nonces.insert(without_randomness(7, 1, ""));
        assert_eq!(nonces.len(), 1_001);
    }

    #[test]
    fn i15_without_randomness_the_clock_alone_tells_starts_apart() {
        let nonces = (0..1_000).map(|wall| without_randomness(wall, 1, "edge"));
        assert_eq!(nonces.collect::<BTreeSet<_>>().len(), 1_000);
    }

    #[test]
    fn i15_a_mixed_nonce_has_eight_digits_as_well() {
        for process in 0..1_000 {
            let digits = without_randomness(0, process, "");
            assert_eq!(digits.len(), 8);
            assert!(digits.chars().all(|digit| digit.is_ascii_hexdigit()));
        }
    }
}
