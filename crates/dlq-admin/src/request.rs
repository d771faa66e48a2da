//! What a request says, taken apart strictly: what is not understood is refused, and where.
use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bridge_core::{Name, Timestamp};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::auth::Who;
use crate::listener::{Peer, Stops};
use crate::problem::{Kind, Problem};

/// The largest body of a usual call: 10,000 ids fit into it.
pub(crate) const BODY: usize = 1 << 20;
/// How long a body may take.
const IN_TIME: Duration = Duration::from_secs(15);

/// The whole body, of at most `limit` bytes.
pub(crate) async fn body(request: Request, limit: usize) -> Result<bytes::Bytes, Problem> {
    let too_large = || Problem::new(Kind::TooLarge, format!("at most {limit} bytes are taken"));
    // Who says how much comes is answered before it comes.
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let stops = request.extensions().get::<Stops>().cloned();
    let stopped = async {
        match stops {
            Some(Stops(stops)) => stops.cancelled_owned().await,
            None => std::future::pending().await,
        }
    };
    let body = Limited::new(request.into_body(), limit).collect();
    let body = tokio::select! {
        biased;
        body = timeout(IN_TIME, body) => body,
        // What has not come by then is not waited for.
        () = stopped => return Err(Problem::stopping()),
    };
    match body {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(
            Kind::MalformedJson,
            "the body ended before its end",
        )),
        Err(_) => Err(Problem::new(
            Kind::TooSlow,
            format!("the body has to come within {IN_TIME:?}"),
        )),
    }
}

/// The body as JSON of that kind.
pub(crate) async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    if !is_media(request.headers(), "application/json") {
        return Err(Problem::new(
            Kind::NotJson,
            "send JSON, with `Content-Type: application/json`",
        ));
    }
    parse(&body(request, BODY).await?)
}

/// Bytes as JSON of that kind.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let kind = match error.classify() {
            Category::Data => Kind::Invalid,
            Category::Syntax | Category::Eof | Category::Io => Kind::MalformedJson,
        };
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let detail = text.strip_suffix(&place).unwrap_or(&text);
        Problem::new(kind, detail).at(line, column)
    })
}

/// Whether the body is of that media type.
pub(crate) fn is_media(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let media = value.and_then(|value| value.to_str().ok());
    let media = media.and_then(|media| media.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case(wanted))
}

/// The parameters of a query, each of which is taken once; what is left at the end is refused.
#[derive(Debug)]
pub(crate) struct Query {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
    /// Whether nothing in it is other than UTF-8.
    is_text: bool,
}

impl Query {
    pub(crate) fn of(request: &Parts) -> Self {
        let query = request.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        let own = |text: Cow<'_, str>| text.into_owned();
        Self {
            left: pairs.map(|(name, value)| (own(name), own(value))).collect(),
            known: Vec::new(),
            is_text: is_text(query),
        }
    }

    /// The parameter of that name, read by `parse`, which says what would be right.
    pub(crate) fn take<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        self.known.push(name);
        let Some(place) = self.left.iter().position(|(key, _)| key == name) else {
            return Ok(None);
        };
        let (_, value) = self.left.remove(place);
        let invalid = |detail| Problem::new(Kind::Invalid, detail).field(name);
        if self.left.iter().any(|(key, _)| key == name) {
            return Err(invalid("it is there twice".to_owned()));
        }
        parse(&value).map(Some).map_err(invalid)
    }

    /// Refuses what was not asked for.
    pub(crate) fn end(self) -> Result<(), Problem> {
        if !self.is_text {
            return Err(Problem::new(Kind::Invalid, "the query is no UTF-8"));
        }
        match self.left.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => {
                let known = self.known.join(", ");
                let detail = if known.is_empty() {
                    "there are no parameters here".to_owned()
                } else {
                    format!("there is no such parameter here; there are {known}")
                };
                Err(Problem::new(Kind::Invalid, detail).field(shortened(&name)))
            }
        }
    }
}

/// Whether what is written as `%` with two digits makes UTF-8: a parser of forms puts a
/// replacement there, which would be another value than the one that was meant.
fn is_text(query: &str) -> bool {
    let mut parts = query.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        let is_hex = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u8::from_str_radix(digits, 16) {
            Ok(byte) if is_hex => bytes.push(byte),
            _ => bytes.extend_from_slice(digits.as_bytes()),
        }
        bytes.extend_from_slice(rest.as_bytes());
    }
    std::str::from_utf8(&bytes).is_ok()
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(parts))
    }
}

/// What stands in the place of the parameters of a path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    /// All of them are texts, so there is one way in which it is none.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        #[expect(clippy::disallowed_types, reason = "this is what says it better")]
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        let path = path.map_err(|_| Problem::not_found("a name in the path is no UTF-8"))?;
        Ok(Self(path.0))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = Problem;

    /// The listener sets it for every request.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Self>().copied();
        peer.ok_or_else(Problem::defect)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    /// Whoever gets here has been let in; a route that forgot to ask is a defect, and no way in.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let who = parts.extensions.get::<Self>().cloned();
        who.ok_or_else(Problem::defect)
    }
}

/// What a stranger wrote, as much of it as an answer repeats.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A name of a route or a binding.
pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| error.to_string())
}

/// A whole number between the two.
pub(crate) fn count(min: u64, max: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| {
        let number = text.parse().ok().filter(|n| (min..=max).contains(n));
        number.ok_or_else(|| format!("it is a whole number from {min} to {max}"))
    }
}

/// An instant as in RFC 3339, or that long ago: `15m`, `2h`, `7d`.
pub(crate) fn instant(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let explain = || {
        "it is an instant such as 2026-11-30T08:00:00Z, or how long ago: 90s, 15m, 2h, 7d"
            .to_owned()
    };
    if let Some(ago) = ago(text) {
        let millis = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(Timestamp::from_millis(
            now.as_millis().saturating_sub(millis),
        ));
    }
    let instant: jiff::Timestamp = text.parse().map_err(|_| explain())?;
    let millis = u64::try_from(instant.as_millisecond());
    millis.map(Timestamp::from_millis).map_err(|_| explain())
}

fn ago(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
    Some(Duration::from_secs(u64::from(number) * seconds))
}

/// A value as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let media = [(header::CONTENT_TYPE, "application/json")];
                (media, Body::from(body)).into_response()
            }
            Err(failure) => {
                tracing::error!(event = "answer_failed", error = %failure);
                Problem::defect().into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_said_absolutely_or_by_its_age() {
        let now = Timestamp::from_millis(1_764_486_000_000);
        for (text, millis) in [
            ("2025-11-30T07:00:00Z", 1_764_486_000_000),
            ("2025-11-30T08:00:00.5+01:00", 1_764_486_000_500),
            ("90s", 1_764_485_910_000),
            ("15m", 1_764_485_100_000),
            ("1d", 1_764_399_600_000),
            ("4000000000d", 0),
        ] {
            let read = instant(text, now);
            assert_eq!(read, Ok(Timestamp::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "s",
            "yesterday",
            "-5m",
            "1.5h",
            "1969-12-31T23:59:59Z",
            "5ä",
            "99999999999s",
        ] {
            assert!(instant(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_is_taken_whole_or_refused() {
        let query = |text: &str| {
            let request = Request::builder().uri(format!("/x?{text}")).body(());
            Query::of(&request.unwrap().into_parts().0)
        };
        let mut good = query("limit=5&route=a%2Fb+c");
        assert_eq!(good.take("limit", count(1, 9)).unwrap(), Some(5));
        let route = good.take("route", |text| Ok(text.to_owned())).unwrap();
        assert_eq!(route.as_deref(), Some("a/b c"));
        assert_eq!(good.take("other", count(1, 9)).unwrap(), None);
        assert!(good.end().is_ok());
        assert!(query("limit=5&limit=6").take("limit", count(1, 9)).is_err());
        assert!(query("limit=10").take("limit", count(1, 9)).is_err());
        assert!(query("limit=").take("limit", count(1, 9)).is_err());
        assert!(query("lmit=1").end().is_err());
        for (text, is_text) in [("ä%C3%A4%zz%", true), ("%FF", false), ("%C3ä", false)] {
            assert_eq!(super::is_text(text), is_text, "{text}");
        }
        let mut odd = query("route=%ff");
        odd.take("route", |text| Ok(text.to_owned())).unwrap();
        assert!(odd.end().is_err());
        assert!(query("").end().is_ok());
    }
}
