//! Who may: a bearer token, or a page session that was opened with it.

mod logins;
mod throttle;
mod token;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use bridge_core::Clock;
use tracing::{error, info, warn};

use self::logins::{LoginId, Logins};
use self::throttle::Throttle;
use crate::files::{FileError, Look, Renewed};
use crate::listener::Peer;

pub use self::token::{InvalidToken, Token, TokenOrigin};

/// The header by which a page says that a change is its own wish: no form of another site can
/// send it, and no script of one may.
pub(crate) const PAGE_HEADER: HeaderName = HeaderName::from_static("x-bridge-page");

/// Who asks: a fingerprint, never what proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// The fingerprint of the token, or that and the number of the page session.
    name: String,
    /// Where the request came from.
    peer: Peer,
}

impl Who {
    /// Whoever runs this very process.
    pub(crate) const fn here(name: String) -> Self {
        let peer = Peer {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            encrypted: true,
        };
        Self { name, peer }
    }

    /// Where the request came from.
    pub(crate) const fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is nothing that could prove anything.
    Anonymous,
    /// Its token is wrong.
    WrongToken,
    /// Its page session is unknown, or has ended.
    NoLogin,
    /// Its address has failed too often.
    Slowed {
        /// When the next attempt is looked at.
        retry_after: Duration,
    },
    /// A change that may be the wish of another site.
    Foreign(&'static str),
}

/// A page session that was just opened.
pub(crate) struct Opened {
    /// The cookie that stands for it.
    pub(crate) cookie: HeaderValue,
    /// Who that is.
    pub(crate) who: Who,
}

/// Decides who may.
#[derive(Debug)]
pub(crate) struct Auth {
    token: Arc<Renewed<Token>>,
    clock: Arc<dyn Clock>,
    throttle: Mutex<Throttle>,
    logins: Mutex<Logins>,
}

impl Auth {
    pub(crate) fn open(origin: &TokenOrigin, clock: Arc<dyn Clock>) -> Result<Self, FileError> {
        Ok(Self::with(origin.open()?, clock))
    }

    /// Lets nobody in.
    pub(crate) fn closed(clock: Arc<dyn Clock>) -> Self {
        Self::with(Renewed::fixed(Token::unknown()), clock)
    }

    fn with(token: Renewed<Token>, clock: Arc<dyn Clock>) -> Self {
        Self {
            token: Arc::new(token),
            clock,
            throttle: Mutex::new(Throttle::default()),
            logins: Mutex::new(Logins::default()),
        }
    }

    /// Who asks, when it may.
    pub(crate) fn identify(
        &self,
        method: &Method,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Who, Refusal> {
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let token = self.check(bearer(value).unwrap_or_default(), peer)?;
            let name = format!("token {}", token.fingerprint());
            return Ok(Who { name, peer });
        }
        let Some(id) = cookie(headers, peer) else {
            return Err(Refusal::Anonymous);
        };
        own_wish(method, headers, peer)?;
        let now = self.clock.monotonic();
        let token = self.token.current();
        let found = guard(&self.logins).find(&LoginId::of(id), &token, now);
        match found {
            Some(name) => Ok(Who { name, peer }),
            None => Err(Refusal::NoLogin),
        }
    }

    /// Opens a page session for who knows the token.
    pub(crate) fn log_in(
        &self,
        presented: &str,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Opened, Refusal> {
        same_site(headers, peer)?;
        let token = self.check(presented, peer)?;
        let secret = random_id();
        let now = self.clock.monotonic();
        let name = guard(&self.logins).open(LoginId::of(&secret), token, now);
        let cookie = set_cookie(&secret, peer, logins::LIFETIME);
        let who = Who { name, peer };
        Ok(Opened { cookie, who })
    }

    /// Ends the page session of these headers, if there is one, and says how the cookie goes.
    pub(crate) fn log_out(&self, headers: &HeaderMap, peer: Peer) -> HeaderValue {
        if let Some(id) = cookie(headers, peer) {
            guard(&self.logins).close(&LoginId::of(id));
        }
        set_cookie("", peer, Duration::ZERO)
    }

    /// Looks whether the token's file was renewed. Blocks: a disk may be slow.
    pub(crate) fn look(&self) {
        match self.token.look() {
            Look::Same => {}
            Look::Renewed => info!(
                event = "admin_token_renewed",
                token = %self.token.current().fingerprint(),
                "the old token is worth nothing any more, and neither are its page sessions"
            ),
            Look::Useless(why) => error!(
                event = "admin_token_unusable",
                error = %why,
                "the token in use stays; mend the file of admin.token_file"
            ),
        }
    }

    /// The token, when `presented` is it.
    fn check(&self, presented: &str, peer: Peer) -> Result<Arc<Token>, Refusal> {
        let token = self.token.current();
        let now = self.clock.monotonic();
        let address = peer.address.ip();
        let judged = guard(&self.throttle).judge(address, now, || token.is(presented));
        match judged {
            Ok(true) => Ok(token),
            Ok(false) => {
                warn!(target: "audit", event = "login_failed", peer = %address, "a wrong token");
                Err(Refusal::WrongToken)
            }
            Err(slowed) => {
                if slowed.first {
                    warn!(
                        target: "audit",
                        event = "logins_slowed",
                        peer = %address,
                        "too many wrong tokens: for a while none of this address is looked at"
                    );
                }
                let retry_after = slowed.retry_after;
                Err(Refusal::Slowed { retry_after })
            }
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' '))
}

/// The name with the prefix is one that a browser takes over TLS alone, from this host alone.
const fn cookie_name(peer: Peer) -> &'static str {
    if peer.encrypted {
        "__Host-bridge"
    } else {
        "bridge"
    }
}

fn cookie(headers: &HeaderMap, peer: Peer) -> Option<&str> {
    let name = cookie_name(peer);
    let values = headers.get_all(header::COOKIE).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

fn set_cookie(secret: &str, peer: Peer, lifetime: Duration) -> HeaderValue {
    let name = cookie_name(peer);
    let secure = if peer.encrypted { "; Secure" } else { "" };
    let seconds = lifetime.as_secs();
    let text =
        format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn random_id() -> String {
    use std::fmt::Write as _;
    let bytes: [u8; 32] = rand::random();
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A cookie comes along with whatever a browser sends, also at the wish of another site: a change
/// needs a header that such a site cannot send.
fn own_wish(method: &Method, headers: &HeaderMap, peer: Peer) -> Result<(), Refusal> {
    same_site(headers, peer)?;
    if !method.is_safe() && !headers.contains_key(PAGE_HEADER) {
        return Err(Refusal::Foreign(
            "a change with a cookie needs the header X-Bridge-Page",
        ));
    }
    Ok(())
}

/// Refuses what a browser says that it sends for another site.
fn same_site(headers: &HeaderMap, peer: Peer) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
    {
        return Err(Refusal::Foreign("the request comes from another site"));
    }
    if let Some(origin) = text("origin") {
        let scheme = if peer.encrypted { "https" } else { "http" };
        let own = text("host").map(|host| format!("{scheme}://{host}"));
        // A proxy in front may add the encryption.
        let proxied = text("host").map(|host| format!("https://{host}"));
        if Some(origin) != own.as_deref() && Some(origin) != proxied.as_deref() {
            return Err(Refusal::Foreign("the request comes from another origin"));
        }
    }
    Ok(())
}

/// The part of an address that one client has to itself: a network of IPv6 gives it 64 bits.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests;
