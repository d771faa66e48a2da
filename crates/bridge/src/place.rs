//! Where a bridge that runs is asked: a host with its port, as a URL or a configuration names it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// A listener of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Whether it speaks TLS.
    pub(crate) encrypted: bool,
    /// The host as it stands in a URL, in brackets where it is an IPv6 address.
    host: String,
    port: u16,
    /// Known where no name has to be looked up, in the order in which they are tried.
    addresses: Vec<SocketAddr>,
}

impl Place {
    /// `http://host:port` or `https://host:port`, with the usual port where it is left out, and
    /// nothing behind it but a slash. `None` for anything else.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        let (encrypted, rest) = match url.strip_prefix("http://") {
            Some(rest) => (false, rest),
            None => (true, url.strip_prefix("https://")?),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let usable = |c: char| c.is_ascii_graphic() && !"/?#@\\".contains(c);
        if !authority.chars().all(usable) {
            return None;
        }
        // The last colon, unless it is one of an IPv6 address in brackets.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, if encrypted { 443 } else { 80 }),
        };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_host = match bracketed {
            Some(ip) => ip.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', '[', ']']),
        };
        is_host.then(|| Self {
            encrypted,
            host: host.to_owned(),
            port,
            addresses: Vec::new(),
        })
    }

    /// Where this machine reaches a listener of its own: one that listens everywhere listens on
    /// the loopback too. `[::]` takes IPv4 as well where IPv6 is switched off but for the name.
    pub(crate) fn of_listener(listen: SocketAddr, encrypted: bool) -> Self {
        let at = |ip: IpAddr| SocketAddr::new(ip, listen.port());
        let (first, rest) = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST.into(), None),
            IpAddr::V6(ip) if ip.is_unspecified() => (
                Ipv6Addr::LOCALHOST.into(),
                Some(at(Ipv4Addr::LOCALHOST.into())),
            ),
            ip => (ip, None),
        };
        Self {
            encrypted,
            host: match first {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            },
            port: listen.port(),
            addresses: [at(first)].into_iter().chain(rest).collect(),
        }
    }

    /// Host and port, for the header `Host`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The host as a certificate names it.
    pub(crate) fn server_name(&self) -> &str {
        let inner = self.host.strip_prefix('[');
        let inner = inner.and_then(|rest| rest.strip_suffix(']'));
        inner.unwrap_or(&self.host)
    }

    /// Every address that it has, to be tried in this order. Looks its name up.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.clone());
        }
        Ok((self.server_name(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_asked_on_the_loopback() {
        let asked = |listen: &str| -> Vec<String> {
            let place = Place::of_listener(listen.parse().unwrap(), false);
            let addresses = place.addresses().unwrap();
            addresses.iter().map(ToString::to_string).collect()
        };
        assert_eq!(asked("0.0.0.0:9090"), ["127.0.0.1:9090"]);
        assert_eq!(asked("[::]:9090"), ["[::1]:9090", "127.0.0.1:9090"]);
        assert_eq!(asked("127.0.0.2:9090"), ["127.0.0.2:9090"]);
        assert_eq!(asked("[::1]:9090"), ["[::1]:9090"]);
    }

    #[test]
    fn a_url_names_a_host_and_nothing_else() {
        let shown = |url: &str| Place::of_url(url).unwrap().to_string();
        assert_eq!(shown("http://127.0.0.1:9090"), "http://127.0.0.1:9090");
        assert_eq!(shown("http://[::1]:9090/"), "http://[::1]:9090");
        assert_eq!(shown("http://[::1]"), "http://[::1]:80");
        assert_eq!(shown("http://127.0.0.1"), "http://127.0.0.1:80");
        assert_eq!(shown("https://bridge.local/"), "https://bridge.local:443");
        for wrong in [
            "127.0.0.1:9090",
            "ftp://127.0.0.1:9090",
            "http://",
            "http:///",
            "http://:80",
            "http://127.0.0.1:9090/readyz",
            "http://user@127.0.0.1",
            "http://127.0.0.1:9090\r\nx: y",
            "http://127.0.0.1:http",
            "http://::1:9090x",
            "http://::1:9090",
            "http://[::g]:1",
        ] {
            assert_eq!(Place::of_url(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_certificate_names_an_address_without_brackets() {
        let place = Place::of_url("https://[::1]:8443").unwrap();
        assert_eq!(place.server_name(), "::1");
        assert_eq!(place.authority(), "[::1]:8443");
    }
}
