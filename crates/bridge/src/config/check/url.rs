//! URLs: of a broker, in one of five schemes, and of a proxy.
//!
//! ```text
//!   mqtt://host[:port]          1883   TCP
//!   mqtts://host[:port]         8883   TLS
//!   ws://host[:port][/path]     80     WebSocket
//!   wss://host[:port][/path]    443    WebSocket in TLS
//!   mqtt+unix:///path                  a Unix socket
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use bridge_transport::{Address, Place};

use crate::config::problem::UrlProblem;

/// What a socket address of the operating system holds, without its closing zero byte.
const MAX_UNIX_PATH: usize = 107;

/// What a broker's URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) place: Place,
    /// `mqtts` and `wss`.
    pub(super) encrypted: bool,
    /// `ws` and `wss`: the path of the request.
    pub(super) websocket: Option<String>,
}

/// Where a broker is and how it is spoken with.
pub(super) fn parse(text: &str) -> Result<Location, UrlProblem> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlProblem::NoScheme)?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme == "mqtt+unix" && rest.starts_with('/') {
        return Ok(Location {
            place: Place::Unix(unix(rest)?),
            encrypted: false,
            websocket: None,
        });
    }
    no_user_info(rest)?;
    let (encrypted, websocket, port) = match scheme.as_str() {
        "mqtt" => (false, false, 1883),
        "mqtts" => (true, false, 8883),
        "ws" => (false, true, 80),
        "wss" => (true, true, 443),
        "mqtt+unix" => return Err(UrlProblem::UnixPath),
        _ => return Err(UrlProblem::Scheme(scheme)),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let websocket = match (websocket, path) {
        (true, path) => Some(request_path(path)?),
        (false, "" | "/") => None,
        (false, _) => return Err(UrlProblem::Path),
    };
    Ok(Location {
        place: Place::Tcp(address(authority, Some(port))?),
        encrypted,
        websocket,
    })
}

/// Where an HTTP proxy is.
pub(super) fn proxy(text: &str) -> Result<Address, UrlProblem> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlProblem::ProxyScheme)?;
    no_user_info(rest)?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(UrlProblem::ProxyScheme);
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err(UrlProblem::ProxyPath);
    }
    address(authority, None)
}

/// Before anything else is looked at, so that no later error can hold a part of a password.
fn no_user_info(rest: &str) -> Result<(), UrlProblem> {
    if rest.contains('@') {
        Err(UrlProblem::UserInfo)
    } else {
        Ok(())
    }
}

/// The path of a socket, as it is: nothing in it is decoded.
fn unix(path: &str) -> Result<PathBuf, UrlProblem> {
    if path.len() > MAX_UNIX_PATH {
        return Err(UrlProblem::UnixPathTooLong);
    }
    if path.ends_with('/') || path.contains('\0') {
        return Err(UrlProblem::UnixPath);
    }
    // One socket has one path, however many slashes were written.
    Ok(Path::new(path).components().collect())
}

/// What stands behind the port, as an HTTP request can hold it (RFC 9112 §3.2.1).
fn request_path(path: &str) -> Result<String, UrlProblem> {
    if path.bytes().any(|b| !b.is_ascii_graphic() || b == b'#') {
        return Err(UrlProblem::RequestPath);
    }
    Ok(if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    })
}

/// `host[:port]`; without a port of its own, one has to be written.
fn address(authority: &str, default: Option<u16>) -> Result<Address, UrlProblem> {
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (inner, after) = inner.split_once(']').ok_or(UrlProblem::Brackets)?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(UrlProblem::Port(after.to_owned())),
        };
        (ipv6(inner)?, port)
    } else {
        match authority.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err(UrlProblem::Brackets),
            Some((host, port)) => (name(host)?, Some(port)),
            None => (name(authority)?, None),
        }
    };
    let port = match port {
        None => default.ok_or(UrlProblem::ProxyPort)?,
        Some(text) => number(text).ok_or_else(|| UrlProblem::Port(text.to_owned()))?,
    };
    Ok(Address { host, port })
}

fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

/// An IPv6 address, its scope behind `%25` (RFC 6874) or a bare `%`.
fn ipv6(inner: &str) -> Result<String, UrlProblem> {
    let wrong = || UrlProblem::Host(inner.to_owned());
    let (address, scope) = match inner.split_once('%') {
        Some((address, scope)) => (address, Some(scope.strip_prefix("25").unwrap_or(scope))),
        None => (inner, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
    match scope {
        None => Ok(address.to_string()),
        Some(scope) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if scope.is_empty() || !scope.chars().all(plain) {
                return Err(wrong());
            }
            Ok(format!("{address}%{scope}"))
        }
    }
}

/// A host name or an IPv4 address.
pub(super) fn name(host: &str) -> Result<String, UrlProblem> {
    let wrong = || UrlProblem::Host(host.to_owned());
    if host.is_empty() {
        return Err(UrlProblem::NoHost);
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    let valid = labels.split('.').all(|label| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    });
    let last = labels.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit());
    if !valid || host.len() > 253 || (numeric && host.parse::<Ipv4Addr>().is_err()) {
        return Err(wrong());
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp(Address {
            host: host.to_owned(),
            port,
        })
    }

    #[test]
    fn case_23_addresses_of_every_form_work() {
        for (url, host, port) in [
            ("mqtt://localhost", "localhost", 1883),
            ("mqtt://localhost:1884", "localhost", 1884),
            ("MQTT://localhost/", "localhost", 1883),
            ("mqtt://[::1]:1883", "::1", 1883),
            ("mqtt://[::1]", "::1", 1883),
            ("mqtts://[fe80::1%25eth0]:8883", "fe80::1%eth0", 8883),
            ("mqtts://[fe80::1%25eth0]", "fe80::1%eth0", 8883),
            ("mqtt://[fe80::1%eth0]", "fe80::1%eth0", 1883),
            ("ws://[::1]/mqtt", "::1", 80),
            (
                "mqtt://broker.example.com.:1883",
                "broker.example.com.",
                1883,
            ),
            ("wss://broker.example.com./mqtt", "broker.example.com.", 443),
            ("mqtt://10.0.0.7", "10.0.0.7", 1883),
            ("mqtt://my_broker", "my_broker", 1883),
        ] {
            let place = parse(url).map(|location| location.place);
            assert_eq!(place, Ok(tcp(host, port)), "{url}");
        }
    }

    #[test]
    fn a_scheme_says_what_is_around_mqtt() {
        for (url, encrypted, websocket) in [
            ("mqtt://x", false, None),
            ("mqtts://x", true, None),
            ("ws://x", false, Some("/")),
            ("WSS://x", true, Some("/")),
            ("ws://x:80?a=b", false, Some("/?a=b")),
            ("wss://x/mqtt/v5?a=b", true, Some("/mqtt/v5?a=b")),
        ] {
            let location = parse(url).unwrap();
            assert_eq!(location.encrypted, encrypted, "{url}");
            assert_eq!(location.websocket.as_deref(), websocket, "{url}");
        }
    }

    #[test]
    fn a_unix_socket_has_one_path() {
        for (url, path) in [
            ("mqtt+unix:///run/mosquitto.sock", "/run/mosquitto.sock"),
            ("mqtt+unix:////run//./m@1 2%20", "/run/m@1 2%20"),
        ] {
            let location = parse(url).unwrap();
            assert_eq!(location.place, Place::Unix(PathBuf::from(path)), "{url}");
            assert!(!location.encrypted && location.websocket.is_none());
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_apart() {
        use UrlProblem::{
            Brackets, Host, NoHost, NoScheme, Path, Port, RequestPath, Scheme, UnixPath,
            UnixPathTooLong, UserInfo,
        };
        let long = format!("mqtt+unix:///{}", "x".repeat(107));
        for (url, problem) in [
            ("localhost:1883", NoScheme),
            ("tcp://x", Scheme("tcp".into())),
            ("SSL://x", Scheme("ssl".into())),
            ("unix:///run/x", Scheme("unix".into())),
            ("mqtt+unix://run/x", UnixPath),
            ("mqtt+unix://u:p@run/x", UserInfo),
            ("mqtt+unix:///run/", UnixPath),
            ("mqtt+unix:///", UnixPath),
            (long.as_str(), UnixPathTooLong),
            ("mqtt://u:p@x", UserInfo),
            ("mqtts://u:p@/%#@x", UserInfo),
            ("wss://x/u:p@y", UserInfo),
            ("mqtt://", NoHost),
            ("mqtt://:1883", NoHost),
            ("ws:///mqtt", NoHost),
            ("mqtt://::1", Brackets),
            ("mqtt://[::1", Brackets),
            ("mqtt://[fe80::1%25]", Host("fe80::1%25".into())),
            ("mqtt://[::g]", Host("::g".into())),
            ("mqtt://a b", Host("a b".into())),
            ("mqtt://010.0.0.256", Host("010.0.0.256".into())),
            ("mqtt://x:0", Port("0".into())),
            ("mqtt://x:65536", Port("65536".into())),
            ("mqtt://x:+1", Port("+1".into())),
            ("mqtt://[::1]1883", Port("1883".into())),
            ("mqtt://x/path", Path),
            ("mqtts://x?y", Path),
            ("ws://x/a b", RequestPath),
            ("ws://x/a#b", RequestPath),
            ("ws://x/ä", RequestPath),
        ] {
            assert_eq!(parse(url), Err(problem), "{url}");
        }
    }

    #[test]
    fn a_proxy_has_a_port_and_nothing_behind_it() {
        use UrlProblem::{NoHost, ProxyPath, ProxyPort, ProxyScheme, UserInfo};
        let found = proxy("HTTP://[::1]:3128/").map(|address| address.to_string());
        assert_eq!(found, Ok("[::1]:3128".to_owned()));
        for (url, problem) in [
            ("proxy:3128", ProxyScheme),
            ("https://proxy:3128", ProxyScheme),
            ("http://proxy", ProxyPort),
            ("http://u:p@proxy:3128", UserInfo),
            ("http://proxy:3128/x", ProxyPath),
            ("http://:3128", NoHost),
        ] {
            assert_eq!(proxy(url), Err(problem), "{url}");
        }
    }
}
