//! Which sessions are at one broker, and what is sent where others can read it: as far as can be
//! told from the text.

use std::net::IpAddr;

use bridge_transport::{Address, Brokers, Endpoint, Place};

/// Every place at which a session may connect. Two sessions that share one are at one broker, and
/// those that share none are not: a host with two ports may have two brokers, and often has.
pub(super) fn brokers(brokers: &Brokers) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for endpoint in brokers.iter() {
        let place = broker(endpoint);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// One of them.
pub(super) fn broker(endpoint: &Endpoint) -> String {
    let address = match &endpoint.place {
        Place::Unix(path) => return path.display().to_string(),
        Place::Tcp(address) => address,
    };
    let host = if is_loopback(address) {
        "localhost".to_owned()
    } else {
        bare(address)
    };
    let broker = format!("{host}:{}", address.port);
    match &endpoint.proxy {
        // What is local to a proxy on another machine is not on ours.
        Some(proxy) if is_loopback(address) && !is_loopback(&proxy.address) => {
            format!(
                "{broker} of {}:{}",
                bare(&proxy.address),
                proxy.address.port
            )
        }
        _ => broker,
    }
}

/// Whether what is sent there crosses a network unencrypted.
pub(super) fn in_the_clear(endpoint: &Endpoint) -> bool {
    match (&endpoint.place, &endpoint.tls) {
        (Place::Unix(_), _) | (_, Some(_)) => false,
        (Place::Tcp(address), None) => {
            let proxy = endpoint.proxy.as_ref();
            !is_loopback(address) || proxy.is_some_and(|proxy| !is_loopback(&proxy.address))
        }
    }
}

/// Whether what is sent there stays on this machine.
pub(super) fn is_loopback(address: &Address) -> bool {
    let host = bare(address);
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The host as any spelling of it reads.
fn bare(address: &Address) -> String {
    address.host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::check::url;
    use bridge_transport::HttpProxy;

    fn endpoint(text: &str) -> Endpoint {
        let location = url::parse(text).unwrap();
        Endpoint {
            place: location.place,
            tls: location.encrypted.then(bridge_transport::Tls::default),
            websocket: None,
            proxy: None,
        }
    }

    fn through(text: &str, proxy: &str) -> Endpoint {
        let proxy = HttpProxy {
            address: url::proxy(proxy).unwrap(),
            credentials: None,
        };
        Endpoint {
            proxy: Some(proxy),
            ..endpoint(text)
        }
    }

    #[test]
    fn one_broker_has_many_addresses() {
        let broker = |text| broker(&endpoint(text));
        assert_eq!(broker("mqtt://localhost"), broker("mqtt://127.0.0.1:1883"));
        assert_eq!(broker("mqtt://[::1]"), broker("mqtt://LOCALHOST."));
        assert_eq!(broker("mqtt://A.example."), broker("mqtt://a.example"));
        assert_eq!(broker("ws://a:1883/x"), broker("mqtt://a"));
        assert_eq!(broker("mqtt+unix:///a//b"), broker("mqtt+unix:///a/b"));
        assert_ne!(broker("mqtt://a"), broker("mqtt://a:1884"));
    }

    #[test]
    fn a_proxy_leads_to_the_same_broker_unless_that_is_local_to_it() {
        let proxy = "http://proxy:3128";
        let through = |text, proxy| broker(&through(text, proxy));
        assert_eq!(through("mqtt://a", proxy), broker(&endpoint("mqtt://a")));
        assert_ne!(
            through("mqtt://localhost", proxy),
            broker(&endpoint("mqtt://localhost"))
        );
        assert_eq!(
            through("mqtt://localhost", "http://127.0.0.1:3128"),
            broker(&endpoint("mqtt://localhost"))
        );
    }

    #[test]
    fn what_crosses_a_network_unencrypted_is_known() {
        for (text, clear) in [
            ("mqtt://a", true),
            ("ws://a", true),
            ("mqtts://a", false),
            ("wss://a", false),
            ("mqtt://localhost", false),
            ("ws://[::1]", false),
            ("mqtt+unix:///run/x", false),
        ] {
            assert_eq!(in_the_clear(&endpoint(text)), clear, "{text}");
        }
        assert!(in_the_clear(&through("mqtt://localhost", "http://proxy:1")));
        assert!(!in_the_clear(&through(
            "mqtt://localhost",
            "http://[::1]:1"
        )));
        assert!(!in_the_clear(&through("mqtts://a", "http://proxy:1")));
    }
}
