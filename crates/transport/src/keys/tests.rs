use std::fs;
use std::path::Path;

use bridge_testkit::{Authority, Identity};
use data_encoding::BASE64_MIME;
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::*;
use crate::{Address, ClientCertificate, Trust};

pub(super) fn origin(tls: Option<Tls>, password: Option<&Path>) -> Origin {
    let address = Address {
        host: "broker".to_owned(),
        port: 1,
    };
    let endpoint = Endpoint {
        tls,
        ..Endpoint::tcp(address)
    };
    let credentials = password.map(|path| Credentials {
        username: "plant-7".to_owned(),
        password: Some(Password::File(path.to_owned())),
    });
    Origin::new(&endpoint, credentials.as_ref())
}

/// Keys as they are now.
async fn load(origin: &Origin) -> Result<Keys, KeyError> {
    let told = |error: &KeyError| panic!("nothing was in use: {error}");
    Ring::new(origin.clone()).take(told).await
}

pub(super) fn proving(authority: &Authority, client: &Identity) -> Tls {
    Tls {
        trust: Trust::File(authority.certificate()),
        client: Some(ClientCertificate {
            certificate: client.certificate.clone(),
            key: client.key.clone(),
        }),
        ..Tls::default()
    }
}

#[tokio::test]
async fn a_newline_at_its_end_is_not_a_part_of_a_password() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    let origin = origin(None, Some(&path));
    for (written, read) in [
        ("secret", "secret"),
        ("secret\n", "secret"),
        ("secret\r\n", "secret"),
        ("sec ret \n\n", "sec ret \n"),
        ("@:/%#ä", "@:/%#ä"),
    ] {
        fs::write(&path, written).unwrap();
        let keys = load(&origin).await.unwrap();
        assert_eq!(keys.password, Some(Secret::new(read.to_owned())));
    }
}

#[tokio::test]
async fn a_file_that_holds_no_password_is_told_by_its_name() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    let origin = origin(None, Some(&path));
    let told = async || {
        let error = load(&origin).await.unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        error
    };
    assert!(matches!(told().await, KeyError::Unreadable { .. }));
    fs::write(&path, "\n").unwrap();
    assert!(matches!(told().await, KeyError::Empty { .. }));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(told().await, KeyError::NotText { .. }));
    fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
    assert!(matches!(told().await, KeyError::TooLarge { .. }));
}

#[tokio::test]
async fn case_24_a_certificate_and_a_key_that_do_not_belong_together_are_told() {
    let authority = Authority::new();
    let (old, new) = (authority.client("plant-7"), authority.client("plant-7"));
    let origin = origin(Some(proving(&authority, &old)), None);
    load(&origin).await.unwrap();
    old.replace_certificate_with(&new);
    let error = load(&origin).await.unwrap_err();
    assert!(matches!(error, KeyError::HalfPair { .. }), "{error}");
    old.replace_key_with(&new);
    load(&origin).await.unwrap();
}

#[tokio::test]
async fn case_24_the_end_of_a_certificate_is_known() {
    let authority = Authority::new();
    for (year, expected) in [
        (2031, "2031-02-03T00:00:00.000Z"),
        // From 2050 on, a certificate says it in another form.
        (2061, "2061-02-03T00:00:00.000Z"),
    ] {
        let client = authority.client_until("plant-7", year, 2, 3);
        let keys = load(&origin(Some(proving(&authority, &client)), None)).await;
        let expiry = keys.unwrap().certificate_expiry.unwrap();
        assert_eq!(expiry.to_string(), expected);
    }
    let trusting = Some(Tls {
        trust: Trust::File(authority.certificate()),
        ..Tls::default()
    });
    let keys = load(&origin(trusting, None)).await.unwrap();
    assert_eq!(keys.certificate_expiry, None);
}

#[tokio::test]
async fn files_that_are_none_of_certificates_and_keys_are_told() {
    let authority = Authority::new();
    let client = authority.client("plant-7");
    let swapped = Identity {
        certificate: client.key.clone(),
        key: client.certificate.clone(),
    };
    let error = load(&origin(Some(proving(&authority, &swapped)), None)).await;
    assert!(matches!(
        error.unwrap_err(),
        KeyError::NoCertificate { path } if path == client.key
    ));
    let no_key = Identity {
        key: client.certificate.clone(),
        ..client.clone()
    };
    let error = load(&origin(Some(proving(&authority, &no_key)), None)).await;
    assert!(matches!(error.unwrap_err(), KeyError::NoKey { .. }));
    let trust = Some(Tls {
        trust: Trust::File(client.key.clone()),
        ..Tls::default()
    });
    let error = load(&origin(trust, None)).await.unwrap_err();
    assert!(matches!(error, KeyError::NoCertificate { .. }), "{error}");
}

/// The value behind a tag and a length in DER.
fn der(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![kind];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => der.push(length),
        Ok(length) => der.extend([0x81, length]),
        Err(error) => panic!("a key is shorter: {error}"),
    }
    der.extend_from_slice(content);
    der
}

#[tokio::test]
async fn a_key_may_be_in_the_older_form_of_sec_1() {
    let authority = Authority::new();
    let client = authority.client("plant-7");
    let origin = origin(Some(proving(&authority, &client)), None);
    let key = PrivatePkcs8KeyDer::from_pem_file(&client.key).unwrap();
    // PKCS #8 holds the older form whole, as an octet string: it begins with the version 1.
    let inner = [0x02, 0x01, 0x01, 0x04, 0x20];
    let der_of_all = key.secret_pkcs8_der();
    let at = der_of_all
        .windows(inner.len())
        .position(|window| window == inner)
        .unwrap();
    let private = &der_of_all[at + inner.len()..][..32];
    let curve = [
        0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    let public = &der_of_all[der_of_all.len() - 65..];
    let public = der(0xa1, &der(0x03, &[&[0], public].concat()));
    let sec1 = [
        &[0x02, 0x01, 0x01][..],
        &der(0x04, private),
        &curve,
        &public,
    ]
    .concat();
    let pem = format!(
        "-----BEGIN EC PRIVATE KEY-----\n{}-----END EC PRIVATE KEY-----\n",
        BASE64_MIME.encode(&der(0x30, &sec1)).replace('\r', "")
    );
    fs::write(&client.key, pem).unwrap();
    load(&origin).await.unwrap();
}

#[tokio::test]
async fn the_authorities_of_this_machine_are_trusted_where_it_has_any() {
    let loaded = load(&origin(Some(Tls::default()), None)).await;
    match loaded {
        Ok(keys) => assert!(keys.tls.is_some()),
        Err(error) => assert!(error.to_string().contains("tls.ca_file"), "{error}"),
    }
}

#[test]
fn what_was_read_is_not_shown() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "secret").unwrap();
    let contents = origin(None, Some(&path)).read();
    assert!(!format!("{contents:?}").contains("secret"));
    let keys = origin(None, Some(&path)).build(&contents).unwrap();
    assert!(!format!("{keys:?}").contains("secret"));
}
