//! Page sessions: who has logged in with the token and is known by a random id since.
//!
//! They are in memory alone, few, and end: after a while without a request, after a working day,
//! and with the token that opened them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use super::Token;

/// So many at a time; one more ends the one that was used the longest ago.
const AT_A_TIME: usize = 64;
/// One ends after so long without a request.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// One ends after so long.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// What an id is kept by: not the id itself, so that looking it up says nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginId([u8; 32]);

impl LoginId {
    pub(super) fn of(secret: &str) -> Self {
        let mut bytes = [0; 32];
        for (to, from) in bytes
            .iter_mut()
            .zip(digest(&SHA256, secret.as_bytes()).as_ref())
        {
            *to = *from;
        }
        Self(bytes)
    }
}

/// The open page sessions.
#[derive(Debug, Default)]
pub(super) struct Logins {
    open: HashMap<LoginId, Login>,
    /// How many were opened so far: their numbers in the audit log.
    opened: u64,
}

#[derive(Debug)]
struct Login {
    name: String,
    /// What opened it; with another one in use it is worth nothing.
    token: Arc<Token>,
    since: Duration,
    used: Duration,
}

impl Logins {
    /// Opens one for who has shown `token`, and gives its name for the audit log.
    pub(super) fn open(&mut self, id: LoginId, token: Arc<Token>, now: Duration) -> String {
        self.open.retain(|_, login| login.lasts(&token, now));
        if self.open.len() >= AT_A_TIME {
            let oldest = self.open.iter().min_by_key(|(_, login)| login.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.open.remove(&oldest);
            }
        }
        self.opened += 1;
        let fingerprint = token.fingerprint();
        let name = format!("page session {} of token {fingerprint}", self.opened);
        let login = Login {
            name: name.clone(),
            token,
            since: now,
            used: now,
        };
        self.open.insert(id, login);
        name
    }

    /// The name of one that is open while `token` is in use, and which is used now.
    pub(super) fn find(
        &mut self,
        id: &LoginId,
        token: &Arc<Token>,
        now: Duration,
    ) -> Option<String> {
        let login = self.open.get_mut(id)?;
        if !login.lasts(token, now) {
            self.open.remove(id);
            return None;
        }
        login.used = now;
        Some(login.name.clone())
    }

    pub(super) fn close(&mut self, id: &LoginId) {
        self.open.remove(id);
    }
}

impl Login {
    /// A renewal makes another token of the file, and nothing else does: so one that is opened at
    /// the very moment ends as well.
    fn lasts(&self, token: &Arc<Token>, now: Duration) -> bool {
        Arc::ptr_eq(&self.token, token)
            && now.saturating_sub(self.used) < IDLE
            && now.saturating_sub(self.since) < LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn token() -> Arc<Token> {
        Arc::new(Token::parse("0123456789abcdef").unwrap())
    }

    #[test]
    fn a_page_session_ends_when_it_is_idle_and_after_a_working_day() {
        let mut logins = Logins::default();
        let (id, token) = (LoginId::of("a"), token());
        let name = logins.open(id, token.clone(), Duration::ZERO);
        let half = HOUR / 2;
        for halves in 1..24 {
            assert_eq!(logins.find(&id, &token, half * halves), Some(name.clone()));
        }
        assert_eq!(logins.find(&id, &token, 12 * HOUR), None);
        logins.open(id, token.clone(), Duration::ZERO);
        assert_eq!(logins.find(&id, &token, HOUR), None);
        assert_eq!(logins.find(&LoginId::of("b"), &token, Duration::ZERO), None);
    }

    #[test]
    fn a_page_session_ends_with_the_token_that_opened_it_also_one_opened_while_that_was_renewed() {
        let mut logins = Logins::default();
        let (old, new) = (token(), token());
        let id = |text| LoginId::of(text);
        logins.open(id("before"), old.clone(), Duration::ZERO);
        // Who shows the old token just before the renewal is entered just after it.
        logins.open(id("in between"), old, Duration::ZERO);
        logins.open(id("after"), new.clone(), Duration::ZERO);
        for (text, open) in [("before", false), ("in between", false), ("after", true)] {
            let found = logins.find(&id(text), &new, Duration::ZERO);
            assert_eq!(found.is_some(), open, "{text}");
        }
    }

    #[test]
    fn one_too_many_ends_the_one_that_was_used_the_longest_ago() {
        let mut logins = Logins::default();
        let token = token();
        let id = |n: usize| LoginId::of(&n.to_string());
        for n in 0..AT_A_TIME {
            logins.open(id(n), token.clone(), Duration::from_secs(n as u64));
        }
        let now = Duration::from_secs(100);
        assert!(logins.find(&id(0), &token, now).is_some());
        logins.open(id(AT_A_TIME), token.clone(), now);
        assert_eq!(logins.open.len(), AT_A_TIME);
        assert!(logins.find(&id(0), &token, now).is_some());
        assert!(logins.find(&id(1), &token, now).is_none());
        logins.close(&id(0));
        assert!(logins.find(&id(0), &token, now).is_none());
    }
}
