//! The admin token, of which only a digest is kept.

use std::fmt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256, digest};
use subtle::ConstantTimeEq as _;

use crate::files::{FileError, Renewed};

/// Fewer characters can be guessed.
const AT_LEAST: usize = 16;
/// More do not fit into a header.
const AT_MOST: usize = 4096;

/// A token; its text is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    digest: [u8; 32],
    fingerprint: [u8; 3],
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// It can be guessed.
    #[error("a token has at least {AT_LEAST} characters, and this one has {0}")]
    TooShort(usize),
    /// It does not fit into a header.
    #[error("a token has at most {AT_MOST} characters")]
    TooLong,
    /// A space, a control character or one outside of ASCII.
    #[error("a token holds letters, digits and signs of ASCII alone, and no spaces")]
    Character,
}

/// Where the token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenOrigin {
    /// The configuration.
    Text(Token),
    /// A file, read again when it changes; the newline at its end is no part of the token.
    File(PathBuf),
}

impl Token {
    /// Checks a token, and forgets its text.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        if text.len() > AT_MOST {
            return Err(InvalidToken::TooLong);
        }
        let length = text.chars().count();
        if length < AT_LEAST {
            return Err(InvalidToken::TooShort(length));
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(InvalidToken::Character);
        }
        Ok(Self::of(text))
    }

    /// One that nobody knows.
    pub(crate) fn unknown() -> Self {
        Self::of(&super::random_id())
    }

    fn of(text: &str) -> Self {
        // Not a part of the digest that is compared: what the log shows proves nothing.
        let mut context = Context::new(&SHA256);
        context.update(b"fingerprint of an admin token\0");
        context.update(text.as_bytes());
        let mut fingerprint = [0; 3];
        for (to, from) in fingerprint.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self {
            digest: digest_of(text),
            fingerprint,
        }
    }

    /// Whether `presented` is this token; how long that takes says nothing of it.
    pub(crate) fn is(&self, presented: &str) -> bool {
        // Who sends more than any token has does not make us digest it.
        presented.len() <= AT_MOST && bool::from(self.digest.ct_eq(&digest_of(presented)))
    }

    /// What stands for it in the audit log: too little to find the token by, enough to tell two
    /// apart.
    pub fn fingerprint(&self) -> String {
        let [a, b, c] = self.fingerprint;
        format!("{a:02x}{b:02x}{c:02x}")
    }

    /// What the file at `path` holds.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let origin = TokenOrigin::File(path.to_owned());
        origin.open().map(|token| (*token.current()).clone())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.fingerprint())
    }
}

impl TokenOrigin {
    pub(crate) fn open(&self) -> Result<Renewed<Token>, FileError> {
        match self {
            Self::Text(token) => Ok(Renewed::fixed(token.clone())),
            Self::File(path) => Renewed::open(vec![path.clone()], |contents| {
                let bytes = contents.first().map_or(&[][..], Vec::as_slice);
                let text = std::str::from_utf8(bytes);
                let text = text.map_err(|_| FileError::Token(InvalidToken::Character))?;
                let text = text.strip_suffix('\n').unwrap_or(text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                Token::parse(text).map_err(FileError::Token)
            }),
        }
    }
}

fn digest_of(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (to, from) in bytes
        .iter_mut()
        .zip(digest(&SHA256, text.as_bytes()).as_ref())
    {
        *to = *from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_fits_into_a_header() {
        assert_eq!(Token::parse("short"), Err(InvalidToken::TooShort(5)));
        assert_eq!(
            Token::parse(&"x".repeat(15)),
            Err(InvalidToken::TooShort(15))
        );
        assert!(Token::parse(&"x".repeat(16)).is_ok());
        assert_eq!(Token::parse(&"x".repeat(5_000)), Err(InvalidToken::TooLong));
        for text in [
            "0123456789 abcdef",
            "0123456789abcdéfgh",
            "0123456789abcdef\n",
        ] {
            assert_eq!(Token::parse(text), Err(InvalidToken::Character), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_itself_and_shows_nothing_of_itself() {
        let text = "correct-horse-battery";
        let token = Token::parse(text).unwrap();
        assert!(token.is(text));
        for other in [
            "",
            "correct-horse-batter",
            "correct-horse-battery ",
            "Correct-horse-battery",
        ] {
            assert!(!token.is(other), "{other:?}");
        }
        let shown = format!("{token:?}");
        assert!(!shown.contains("horse") && shown.contains(&token.fingerprint()));
        assert_ne!(
            token.fingerprint(),
            Token::parse("correct-horse-batterz").unwrap().fingerprint()
        );
    }
}
