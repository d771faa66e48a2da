//! What is asked of the machine while a configuration is read.

use std::env::VarError;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bridge_core::{Clock as _, SystemClock};
use rand::TryRng as _;
use rand::rngs::SysRng;

use super::env::Host;

/// The real environment, hostname and source of randomness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine;

impl Host for Machine {
    fn variable(&self, name: &str) -> Option<Result<String, ()>> {
        match std::env::var(name) {
            Ok(value) => Some(Ok(value)),
            Err(VarError::NotPresent) => None,
            Err(VarError::NotUnicode(_)) => Some(Err(())),
        }
    }

    fn hostname(&self) -> Result<String, String> {
        let name = hostname::get().map_err(|error| error.to_string())?;
        let name = name
            .into_string()
            .map_err(|_| "it is not valid UTF-8".to_owned())?;
        if name.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(name)
    }

    fn nonce(&self) -> String {
        nonce(SysRng.try_next_u32().ok(), || {
            let mut hasher = DefaultHasher::new();
            SystemClock::new().wall().hash(&mut hasher);
            std::process::id().hash(&mut hasher);
            hostname::get().unwrap_or_default().hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// Eight hex digits of `random`, or of `mixed` when the operating system has no randomness to
/// give: replicas that start together must not share one (I15).
fn nonce(random: Option<u32>, mixed: impl FnOnce() -> u64) -> String {
    let number = random.map_or_else(
        || {
            let mixed = mixed();
            (mixed ^ (mixed >> 32)) & 0xffff_ffff
        },
        u64::from,
    );
    format!("{number:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i15_a_nonce_is_eight_hex_digits_with_and_without_randomness() {
        assert_eq!(nonce(Some(0xab), || 0), "000000ab");
        assert_eq!(nonce(None, || 0x1234_5678_0000_0001), "12345679");
        let (one, two) = (Machine.nonce(), Machine.nonce());
        assert_eq!(one.len(), 8);
        assert_ne!(one, two);
    }
}
