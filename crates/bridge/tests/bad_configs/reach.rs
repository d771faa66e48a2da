//! How brokers are reached: encryption, a `WebSocket`, proxies, protocols.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bridge_testkit::Authority;

use super::{after, check, check_in, refused, with};

const SESSION: &str = "    client_id: plant-7-up";

/// The good configuration with another URL for its destination and `more` of its fields.
fn cloud(url: &str, more: &str) -> String {
    with("mqtt://localhost:1884", url).replace(SESSION, &format!("{SESSION}\n{more}"))
}

/// The certificate, saying that it is of X.509 version 1 and not 3.
fn version_1(certificate: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(certificate).unwrap();
    let lines: String = text.lines().filter(|line| !line.contains('-')).collect();
    let mut der = BASE64.decode(lines).unwrap();
    let version = der
        .windows(5)
        .position(|five| five == b"\xa0\x03\x02\x01\x02");
    *der.get_mut(version.unwrap() + 4).unwrap() = 0;
    let base64 = BASE64.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n").into_bytes()
}

#[test]
fn encryption() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).unwrap();
    };
    let read = |path: &Path| std::fs::read(path).unwrap();
    let authority = Authority::new();
    let (client, other) = (authority.client("bridge"), authority.client("other"));
    write("ca.pem", &read(&authority.certificate()));
    write("client.pem", &read(&client.certificate));
    write("client.key", &read(&client.key));
    write("other.key", &read(&other.key));
    write("text.pem", b"hunter2\n");
    write(
        "damaged.pem",
        b"-----BEGIN CERTIFICATE-----\nhunter2!\n-----END CERTIFICATE-----\n",
    );
    write(
        "junk.pem",
        b"-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n",
    );
    write(
        "encrypted.key",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\naHVudGVyMg==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    write("version-1.pem", &version_1(&read(&client.certificate)));
    write("large.pem", &vec![b'x'; 1_100_000]);
    let mut all = String::new();
    let tls = |fields: &str| cloud("mqtts://broker", &format!("    tls: {{ {fields} }}"));
    for (name, text) in [
        (
            "with a URL that is not encrypted",
            cloud("mqtt://localhost:1884", "    tls: { ca_file: ca.pem }"),
        ),
        ("no authority", tls("ca_file: missing.pem")),
        ("text for an authority", tls("ca_file: text.pem")),
        ("a key for an authority", tls("ca_file: client.key")),
        ("a damaged authority", tls("ca_file: damaged.pem")),
        ("an authority that is none", tls("ca_file: junk.pem")),
        ("a folder for an authority", tls("ca_file: .")),
        ("an empty path", tls("ca_file: \"\"")),
        ("a large file", tls("ca_file: large.pem")),
        ("a certificate alone", tls("certificate_file: client.pem")),
        ("a key alone", tls("key_file: client.key")),
        (
            "certificate and key the wrong way round",
            tls("certificate_file: client.key, key_file: client.pem"),
        ),
        (
            "the key of another",
            tls("certificate_file: client.pem, key_file: other.key"),
        ),
        (
            "a certificate of X.509 version 1",
            tls("certificate_file: version-1.pem, key_file: client.key"),
        ),
        (
            "a key with a passphrase",
            tls("certificate_file: client.pem, key_file: encrypted.key"),
        ),
        ("a port in a name", tls("server_name: broker:8883")),
        ("an old version", tls("minimum_version: 1.1")),
        ("no protocols", tls("alpn: []")),
        ("an empty protocol", tls("alpn: [\"\"]")),
        (
            "an authority that nobody asks",
            tls("ca_file: ca.pem, insecure_skip_verify: true"),
        ),
        ("the short name of a dangerous field", tls("insecure: true")),
    ] {
        std::fs::write(folder.path().join("bridge.yaml"), text).unwrap();
        let (said, satisfied) = check_in(folder.path(), "bridge.yaml");
        assert!(!satisfied, "{name}: is not refused");
        writeln!(all, "### {name}\n\n{said}").unwrap();
    }
    insta::assert_snapshot!("encryption", all);
    let good = tls("ca_file: ca.pem, certificate_file: client.pem, key_file: client.key");
    std::fs::write(folder.path().join("bridge.yaml"), good).unwrap();
    let (said, satisfied) = check_in(folder.path(), "bridge.yaml");
    assert!(satisfied, "{said}");
}

#[test]
fn web_sockets() {
    let headers = |fields: &str| cloud("wss://broker", &format!("    websocket: {fields}"));
    let cases = [
        (
            "headers without a WebSocket",
            cloud(
                "mqtts://broker",
                "    websocket: { headers: { X-A: hunter2 } }",
            ),
        ),
        ("no headers", headers("{ headers: {} }")),
        (
            "a name with a space",
            headers("{ headers: { \"X A\": hunter2 } }"),
        ),
        (
            "a value with a newline",
            headers("{ headers: { X-A: \"hunter2\\nX-B: hunter2\" } }"),
        ),
        ("a number for a value", headers("{ headers: { X-A: 7 } }")),
        (
            "a header of the request itself",
            headers("{ headers: { sec-websocket-key: hunter2 } }"),
        ),
        (
            "a header in two cases",
            headers("{ headers: { X-A: hunter2, x-a: hunter2 } }"),
        ),
        (
            "a file that is not there",
            headers("{ header_files: { X-A: missing } }"),
        ),
        (
            "misspelt headers",
            headers("{ haeders: { Authorization: hunter2 } }"),
        ),
        (
            "a header that proves who we are, in the clear",
            cloud(
                "ws://broker",
                "    websocket: { headers: { Authorization: hunter2 } }",
            ),
        ),
    ];
    insta::assert_snapshot!("web_sockets", refused(cases));
}

#[test]
fn a_header_is_not_shown_of_a_file_that_cannot_be_read() {
    let headers = "    websocket:\n      headers:\n        Authorization: Bearer hunter2\n\tx";
    let (said, satisfied) = check(cloud("wss://broker", headers).as_bytes());
    assert!(!satisfied, "{said}");
}

#[test]
fn proxies() {
    let proxy = |fields: &str| cloud("mqtts://broker", &format!("    proxy: {{ {fields} }}"));
    let cases = [
        ("no URL", proxy("username: u")),
        ("no scheme", proxy("url: \"proxy:3128\"")),
        ("HTTPS", proxy("url: https://proxy:3128")),
        ("no port", proxy("url: http://proxy")),
        (
            "case 33: a password in the URL",
            proxy("url: \"http://u:hunter2@proxy:3128\""),
        ),
        ("a path", proxy("url: http://proxy:3128/x")),
        (
            "a password over plain TCP",
            proxy("url: http://proxy:3128, username: u, password: hunter2"),
        ),
        (
            "a colon in a user name",
            proxy("url: \"http://[::1]:3128\", username: \"u:v\", password: hunter2"),
        ),
        (
            "a password without a user name",
            proxy("url: \"http://[::1]:3128\", password: hunter2"),
        ),
        (
            "to a Unix socket",
            cloud(
                "mqtt+unix:///run/m.sock",
                "    proxy: { url: http://proxy:3128 }",
            ),
        ),
        (
            "to a broker that is local to the proxy, with credentials",
            cloud(
                "mqtt://localhost:1884",
                "    username: u\n    proxy: { url: http://proxy:3128 }",
            ),
        ),
    ];
    insta::assert_snapshot!("proxies", refused(cases));
}

#[test]
fn protocols_and_status() {
    let more = |more: &str| after(SESSION, more);
    let cases = [
        ("another protocol", more("    protocol: 3.1")),
        ("a short protocol", more("    protocol: 311")),
        (
            "an expiry in MQTT 3.1.1",
            more("    protocol: 3.1.1\n    session_expiry: 1h"),
        ),
        (
            "policies in MQTT 3.1.1",
            more(
                "    protocol: 3.1.1\n    on_qos_unavailable: downgrade\n    on_retain_unavailable: strip",
            ),
        ),
        ("another policy", more("    on_qos_unavailable: drop")),
        ("a way back from one broker", more("    fail_back: 5m")),
        ("a status without a topic", more("    status: {}")),
        ("a wildcard in a status", more("    status: { topic: a/# }")),
        (
            "an empty status",
            more("    status: { topic: a, offline: \"\" }"),
        ),
        (
            "two sessions with one status",
            more("    status: { topic: a }")
                .replace("localhost:1884", "localhost:1883")
                .replace(
                    "    client_id: plant-7\n",
                    "    client_id: plant-7\n    status: { topic: a }\n",
                ),
        ),
    ];
    insta::assert_snapshot!("protocols", refused(cases));
}
