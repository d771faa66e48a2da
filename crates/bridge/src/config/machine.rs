//! What is asked of the machine while a configuration is read.

use std::env::VarError;
use std::sync::OnceLock;

use bridge_core::{Clock as _, SystemClock};
use rand::TryRng as _;
use rand::rngs::SysRng;

use super::env::Host;
use super::nonce::{Circumstances, Nonce};

/// The real environment, hostname and source of randomness.
///
/// Hostname and nonce are found out once for a process: a configuration that is read again makes
/// the same client ids of them.
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
        static HOSTNAME: OnceLock<Result<String, String>> = OnceLock::new();
        let found = HOSTNAME.get_or_init(|| {
            let name = hostname::get().map_err(|error| error.to_string())?;
            name.into_string()
                .map_err(|_| "it is not valid UTF-8".to_owned())
        });
        found.clone()
    }

    fn nonce(&self) -> Nonce {
        static NONCE: OnceLock<Nonce> = OnceLock::new();
        let drawn = NONCE.get_or_init(|| {
            Nonce::draw(SysRng.try_next_u32(), || Circumstances {
                wall: SystemClock::new().wall(),
                process: std::process::id(),
                hostname: hostname::get().unwrap_or_default(),
            })
        });
        drawn.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i15_a_process_has_one_nonce_and_one_hostname_for_as_long_as_it_lives() {
        let nonce = Machine.nonce();
        assert_eq!(nonce.digits().len(), 8);
        assert_eq!(nonce.mixed(), None, "this machine has randomness");
        assert_eq!(Machine.nonce(), nonce);
        assert_eq!(Machine.hostname(), Machine.hostname());
    }
}
