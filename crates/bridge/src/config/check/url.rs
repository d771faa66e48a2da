//! A broker's URL: `mqtt://host[:port]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bridge_transport::{Address, Brokers, Place};

use crate::config::problem::UrlProblem;

/// MQTT over plain TCP.
const DEFAULT_PORT: u16 = 1883;

/// Where the broker is.
pub(super) fn parse(text: &str) -> Result<Address, UrlProblem> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlProblem::NoScheme)?;
    // Before anything else, so that no later error can hold a part of a password.
    if rest.contains('@') {
        return Err(UrlProblem::UserInfo);
    }
    match scheme.to_ascii_lowercase().as_str() {
        "mqtt" => {}
        scheme @ ("mqtts" | "ws" | "wss" | "unix") => {
            return Err(UrlProblem::NotYet(scheme.to_owned()));
        }
        _ => return Err(UrlProblem::Scheme(scheme.to_owned())),
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err(UrlProblem::Path);
    }
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
        None => DEFAULT_PORT,
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
fn name(host: &str) -> Result<String, UrlProblem> {
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

/// Which broker a session prefers, as far as can be told from the text: two sessions with the
/// same are at the same broker.
pub(super) fn broker(brokers: &Brokers) -> String {
    let address = match &brokers.first.place {
        Place::Tcp(address) => address,
        Place::Unix(path) => return path.display().to_string(),
    };
    let host = address.host.trim_end_matches('.').to_ascii_lowercase();
    let host = if is_loopback(address) {
        "localhost".to_owned()
    } else {
        host
    };
    format!("{host}:{}", address.port)
}

/// Whether what is sent there stays on this machine.
pub(super) fn is_loopback(address: &Address) -> bool {
    let host = address.host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge_transport::Endpoint;

    #[test]
    fn case_23_addresses_of_every_form_work() {
        for (url, host, port) in [
            ("mqtt://localhost", "localhost", 1883),
            ("mqtt://localhost:1884", "localhost", 1884),
            ("MQTT://localhost/", "localhost", 1883),
            ("mqtt://[::1]:1883", "::1", 1883),
            ("mqtt://[::1]", "::1", 1883),
            ("mqtt://[fe80::1%25eth0]:8883", "fe80::1%eth0", 8883),
            ("mqtt://[fe80::1%eth0]", "fe80::1%eth0", 1883),
            (
                "mqtt://broker.example.com.:1883",
                "broker.example.com.",
                1883,
            ),
            ("mqtt://10.0.0.7", "10.0.0.7", 1883),
            ("mqtt://my_broker", "my_broker", 1883),
        ] {
            let expected = Address {
                host: host.to_owned(),
                port,
            };
            assert_eq!(parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_apart() {
        use UrlProblem::{Brackets, Host, NoHost, NoScheme, NotYet, Path, Port, Scheme, UserInfo};
        for (url, problem) in [
            ("localhost:1883", NoScheme),
            ("mqtts://x", NotYet("mqtts".into())),
            ("unix:///run/x", NotYet("unix".into())),
            ("tcp://x", Scheme("tcp".into())),
            ("mqtt://u:p@x", UserInfo),
            ("mqtts://u:p@/%#@x", UserInfo),
            ("mqtt://", NoHost),
            ("mqtt://:1883", NoHost),
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
            ("mqtt://x?y", Path),
        ] {
            assert_eq!(parse(url), Err(problem), "{url}");
        }
    }

    #[test]
    fn one_broker_has_many_addresses() {
        let broker = |url| broker(&Brokers::one(Endpoint::tcp(parse(url).unwrap())));
        assert_eq!(broker("mqtt://localhost"), broker("mqtt://127.0.0.1:1883"));
        assert_eq!(broker("mqtt://[::1]"), broker("mqtt://LOCALHOST."));
        assert_eq!(broker("mqtt://A.example."), broker("mqtt://a.example"));
        assert_ne!(broker("mqtt://a"), broker("mqtt://a:1884"));
    }
}
