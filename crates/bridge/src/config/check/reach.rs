//! How the brokers of a session are reached: their URLs, encryption, WebSocket and proxy.

use std::path::Path;

use bridge_transport::{Brokers, Endpoint, HttpProxy, Password, Place, Secret, Tls, WebSocket};

use super::credentials::{self, Login};
use super::url::Location;
use super::{place, tls, url};
use crate::config::fields;
use crate::config::problem::{Doubt, Exposed, HeaderProblem, Problem, UrlProblem};
use crate::config::reader::{At, Found, Map, Reader, Reported, Text};
use crate::config::secrets;

/// The headers that the request itself makes.
const OWN_HEADERS: [&str; 3] = ["host", "upgrade", "connection"];

/// The brokers, and where each stands in the file; `None` when something about them is wrong.
pub(super) fn check(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<Brokers> {
    let texts = reader.texts(map, &fields::URL);
    let written = texts.len();
    let located: Vec<(Location, At)> = texts
        .into_iter()
        .filter_map(|text| Some((location(reader, &text)?, text.at)))
        .collect();
    let complete = located.len() == written && written > 0;
    let any = |holds: fn(&Location) -> bool| located.iter().any(|(location, _)| holds(location));
    let tls = section(reader, map, &fields::TLS, |reader, map| {
        tls::check(reader, map, folder)
    });
    let headers = section(reader, map, &fields::WEBSOCKET, |reader, map| {
        headers(reader, map, folder)
    });
    let proxy = section(reader, map, &fields::PROXY, |reader, map| {
        proxy(reader, map, folder)
    });
    let fail_back = reader.duration(map, &fields::FAIL_BACK);
    if !complete {
        return None;
    }
    for (field, needed, holds) in [
        (
            &fields::TLS,
            "a URL with `mqtts://` or `wss://`",
            any(|location| location.encrypted),
        ),
        (
            &fields::WEBSOCKET,
            "a URL with `ws://` or `wss://`",
            any(|location| location.websocket.is_some()),
        ),
        (
            &fields::PROXY,
            "a URL with a host",
            any(|location| matches!(location.place, Place::Tcp(_))),
        ),
        (&fields::FAIL_BACK, "a list of URLs", located.len() > 1),
    ] {
        if map.has(field) && !holds {
            let problem = Problem::NoUrlFor {
                field: field.name,
                needed,
            };
            reader.report(&map.key(field), problem);
        }
    }
    let tls: Tls = tls.ok()?.unwrap_or_default();
    let headers = headers.ok()?.unwrap_or_default();
    let proxy = proxy.ok()?;
    let endpoints: Vec<(Endpoint, At)> = located
        .into_iter()
        .map(|(location, at)| {
            let endpoint = Endpoint {
                tls: location.encrypted.then(|| tls.clone()),
                websocket: location.websocket.map(|path| WebSocket {
                    path,
                    headers: headers.clone(),
                }),
                proxy: match &location.place {
                    Place::Tcp(_) => proxy.clone(),
                    Place::Unix(_) => None,
                },
                place: location.place,
            };
            (endpoint, at)
        })
        .collect();
    check_list(reader, &endpoints);
    check_secrecy(reader, map, &endpoints);
    let mut endpoints = endpoints.into_iter().map(|(endpoint, _)| endpoint);
    Some(Brokers {
        first: endpoints.next()?,
        rest: endpoints.collect(),
        fail_back: match fail_back {
            None if map.has(&fields::FAIL_BACK) => return None,
            fail_back => fail_back.map(|found| found.value),
        },
    })
}

/// What a section says, `None` where it is left out.
fn section<'n, T>(
    reader: &mut Reader<'_>,
    map: &Map<'n>,
    field: &'static fields::Field,
    check: impl FnOnce(&mut Reader<'_>, &Map<'n>) -> Option<T>,
) -> Result<Option<T>, Reported> {
    if !map.has(field) {
        return Ok(None);
    }
    let section = reader.section(map, field).ok_or(Reported)?;
    check(reader, &section).map(Some).ok_or(Reported)
}

fn location(reader: &mut Reader<'_>, text: &Found<Text>) -> Option<Location> {
    match url::parse(&text.value.value) {
        Ok(location) => Some(location),
        Err(problem) => {
            report_url(reader, text, problem);
            None
        }
    }
}

fn report_url(reader: &mut Reader<'_>, text: &Found<Text>, problem: UrlProblem) {
    let problem = if text.value.substituted {
        problem.quoting(&text.value.shown)
    } else {
        problem
    };
    reader.report(&text.at, Problem::Url(problem));
}

/// No broker is in a list twice, and none is less secret than the others unnoticed.
fn check_list(reader: &mut Reader<'_>, endpoints: &[(Endpoint, At)]) {
    let mut seen = Vec::new();
    for (endpoint, at) in endpoints {
        let broker = place::broker(endpoint);
        if seen.contains(&broker) {
            reader.report(at, Problem::BrokerTwice(broker));
        } else {
            seen.push(broker);
        }
    }
    let encrypted = endpoints.iter().any(|(endpoint, _)| endpoint.tls.is_some());
    let plain = endpoints.iter().find(|(e, _)| place::in_the_clear(e));
    if let Some((endpoint, at)) = plain.filter(|_| encrypted) {
        reader.report(
            at,
            Problem::Doubt(Doubt::MixedEncryption(endpoint.to_string())),
        );
    }
}

/// What proves who we are is not sent where others can read it, unless that is accepted.
fn check_secrecy(reader: &mut Reader<'_>, map: &Map<'_>, endpoints: &[(Endpoint, At)]) {
    let Some(allow) = reader.flag(map, &fields::ALLOW_PLAINTEXT) else {
        return;
    };
    let mut exposed: Vec<(At, Exposed)> = Vec::new();
    let clear = endpoints.iter().find(|(e, _)| place::in_the_clear(e));
    if let (Some((endpoint, _)), Some(field)) = (clear, credentials::BROKER.written(map)) {
        exposed.push((map.key(field), Exposed::Broker(target(endpoint))));
    }
    let with_headers = endpoints.iter().find(|(endpoint, _)| {
        let headers = endpoint.websocket.iter().flat_map(|ws| &ws.headers);
        let mut names = headers.map(|(name, _)| name);
        place::in_the_clear(endpoint) && names.any(|name| secrets::is_credential_header(name))
    });
    if let Some((endpoint, _)) = with_headers {
        let to = Exposed::Broker(target(endpoint));
        exposed.push((map.key(&fields::WEBSOCKET), to));
    }
    // Basic authentication is read as easily as it is written, whatever goes through afterwards.
    let proxy = endpoints.iter().find_map(|(e, _)| e.proxy.as_ref());
    if let Some(proxy) = proxy
        && proxy.credentials.is_some()
        && !place::is_loopback(&proxy.address)
    {
        let to = Exposed::Proxy(proxy.address.to_string());
        exposed.push((map.key(&fields::PROXY), to));
    }
    if !allow.value {
        for (at, to) in exposed {
            reader.report(&at, Problem::PlaintextCredentials(to));
        }
    } else if let Some((_, to)) = exposed.into_iter().next() {
        let at = map.key(&fields::ALLOW_PLAINTEXT);
        reader.report(&at, Problem::Doubt(Doubt::PlaintextAllowed(to)));
    }
}

fn target(endpoint: &Endpoint) -> String {
    match &endpoint.place {
        Place::Tcp(address) => address.to_string(),
        Place::Unix(path) => path.display().to_string(),
    }
}

/// More headers of the WebSocket's request.
fn headers(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<Vec<(String, Secret)>> {
    let mut complete = true;
    let mut headers: Vec<(String, Secret)> = Vec::new();
    let written = reader.pairs(map, &fields::HEADERS);
    let files = reader.pairs(map, &fields::HEADER_FILES);
    let values = written.into_iter().map(|pair| (pair, false));
    for ((name, text), in_file) in values.chain(files.into_iter().map(|pair| (pair, true))) {
        let value = if in_file {
            credentials::secret_file(reader, &text, folder)
        } else {
            Some(Secret::new(text.value.value.clone()))
        };
        let taken = headers
            .iter()
            .any(|(n, _)| n.eq_ignore_ascii_case(name.value));
        let own = name.value.to_ascii_lowercase();
        if !is_token(name.value) {
            reader.report(&name.at, Problem::Header(HeaderProblem::Name));
        } else if OWN_HEADERS.contains(&own.as_str()) || own.starts_with("sec-websocket-") {
            reader.report(&name.at, Problem::Header(HeaderProblem::Own));
        } else if taken {
            reader.report(&name.at, Problem::Header(HeaderProblem::Twice));
        } else if value.as_ref().is_some_and(|v| !is_field_value(v.expose())) {
            reader.report(&text.at, Problem::Header(HeaderProblem::Value));
        } else if let Some(value) = value {
            headers.push((name.value.to_owned(), value));
            continue;
        }
        complete = false;
    }
    complete.then_some(headers)
}

/// RFC 9110 §5.6.2.
fn is_token(name: &str) -> bool {
    let sign = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(sign)
}

/// RFC 9110 §5.5, without what is not ASCII.
fn is_field_value(value: &str) -> bool {
    let inner = value
        .bytes()
        .all(|b| b.is_ascii_graphic() || b == b' ' || b == b'\t');
    inner && value.trim() == value
}

fn proxy(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<HttpProxy> {
    let address = reader.text(map, &fields::PROXY_URL).and_then(|text| {
        url::proxy(&text.value.value)
            .map_err(|problem| report_url(reader, &text, problem))
            .ok()
    });
    let login = credentials::check(reader, map, credentials::PROXY, folder);
    let credentials = match login? {
        Login::Anonymous => None,
        // Basic authentication has a colon between the two (RFC 7617 §2).
        Login::As { username, .. } if username.contains(':') => {
            let at = map.key(&fields::PROXY_USERNAME);
            reader.report(&at, Problem::ColonInUsername);
            return None;
        }
        Login::As { username, password } => {
            let password = password.unwrap_or(Password::Text(Secret::new(String::new())));
            Some((username, password))
        }
    };
    Some(HttpProxy {
        address: address?,
        credentials,
    })
}
