//! How the bridge goes, as the API tells it.

use bridge_dlq_admin::{LeaseFacts, LeaseHolder};
use bridge_testkit::{Authority, wait_for};
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE, Setup, TOKEN};

#[tokio::test]
async fn a_bridge_is_shown_with_its_sessions_routes_and_bindings() {
    let fixture = Fixture::start().await;
    fixture.sinks["two"].answer_with(0x99);
    for n in 0..5 {
        fixture.publish("sensors/1", &n.to_string()).await;
    }
    let two = fixture.binding_until("two", "five are dead letters", |binding| {
        binding["dead_letters"]["entries"] == 5
    });
    let two = two.await;
    assert_eq!(two["route"], "telemetry");
    assert_eq!(two["topic"], "out/{topic}");
    assert_eq!(two["blocked"], false);
    let one = fixture.binding_until("one", "five are counted", |binding| {
        binding["totals"]["delivered"] == 5 && binding["rates"].is_object()
    });
    let one = one.await;
    assert_eq!(one["state"], "live");
    assert_eq!(one["dead_letters"]["entries"], 0);
    assert_eq!(fixture.sinks["one"].accepted(), ["0", "1", "2", "3", "4"]);

    let bridge = fixture.get("/api/v1/bridge").await;
    assert_eq!(
        (&bridge["id"], &bridge["version"]),
        (&"test".into(), &"0.0.0".into())
    );
    assert_eq!(
        (&bridge["bindings"], &bridge["dead_letters"]),
        (&3.into(), &5.into())
    );
    assert!(bridge.get("role").is_none(), "no session is exclusive");
    let sessions = fixture.get("/api/v1/sessions").await;
    let plant = &sessions["items"][0];
    assert_eq!(plant["source"]["client_id"], "bridge-plant");
    assert_eq!(plant["source"]["state"], "subscribed");
    assert!(plant.get("destination").is_none());
    assert_eq!(sessions["items"][1]["destination"]["state"], "connected");
    let routes = fixture.get("/api/v1/routes").await;
    assert_eq!(routes["items"][0]["topics"][0], "#");
    assert_eq!(routes["items"][0]["delivery"], "store_and_forward");
    fixture.stop().await;
}

#[tokio::test]
async fn i12_a_blocked_binding_says_with_what_its_head_is_refused_and_since_when() {
    let fixture = Fixture::start().await;
    fixture.sinks["two"].answer_with(0x97);
    fixture.publish("sensors/1", "0").await;
    let refused = fixture.binding_until("two", "it was refused twice", |binding| {
        binding["blocked"] == true && binding["head"]["times"].as_u64() >= Some(2)
    });
    let refused = refused.await;
    let head = &refused["head"];
    assert_eq!(
        (&head["reason"], &head["code"]),
        (&"quota_exceeded".into(), &0x97.into())
    );
    let why = refused["why"].as_str().unwrap();
    let since = head["since"].as_str().unwrap();
    // Both are of RFC 3339 in UTC, so that their order is that of the texts.
    assert!(head["latest"].as_str() >= Some(since), "{head}");
    let times = format!("{} times since {since}; offered again ", head["times"]);
    assert!(
        why.contains("not taken: quota_exceeded (0x97), ") && why.contains(&times),
        "{why}"
    );
    if refused["state"] == "blocked" {
        assert!(head["next_attempt"].as_str() > Some(since), "{head}");
    }
    fixture.sinks["two"].answer_with(0);
    let taken = fixture.binding_until("two", "it was taken", |binding| {
        binding["queue"]["entries"] == 0 && binding["blocked"] == false
    });
    let taken = taken.await;
    assert_eq!((taken.get("why"), taken.get("head")), (None, None));
    fixture.stop().await;
}

#[tokio::test]
async fn an_instance_tells_its_role_and_who_holds_the_lease() {
    let other = LeaseHolder {
        owner: "plant-7-1".to_owned(),
        token: 12,
    };
    for (active, holder, told) in [
        (
            true,
            Some(other.clone()),
            json!(["active", "plant-7-1", 12]),
        ),
        (false, Some(other), json!(["standby", "plant-7-1", 12])),
        (false, None, json!(["standby", null, null])),
    ] {
        let fixture = Fixture::with(Setup {
            lease: Some(LeaseFacts { active, holder }),
            ..Setup::default()
        })
        .await;
        let bridge = fixture.get("/api/v1/bridge").await;
        let found = ["role", "lease_holder", "lease_token"].map(|field| bridge[field].clone());
        assert_eq!(json!(found), told);
        fixture.stop().await;
    }
}

#[tokio::test]
async fn the_api_speaks_tls_with_a_certificate_that_may_be_renewed() {
    let authority = Authority::new();
    let (first, second) = (authority.server(), authority.server());
    let files = bridge_dlq_admin::TlsFiles {
        certificate: first.certificate.clone(),
        key: first.key.clone(),
    };
    let fixture = Fixture::with(Setup {
        tls: Some(files),
        ..Setup::default()
    })
    .await;
    let (shown, answer) = over_tls(&authority, fixture.port).await;
    assert_eq!(shown, first.der());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let second_der = second.der();
    first.replace_key_with(&second);
    first.replace_certificate_with(&second);
    wait_for("the new certificate is shown", PATIENCE, async || {
        let (shown, _) = over_tls(&authority, fixture.port).await;
        (shown == second_der).then_some(())
    })
    .await;
    fixture.stop().await;
}

/// The certificate that is shown, and what is answered.
async fn over_tls(authority: &Authority, port: u16) -> (Vec<u8>, String) {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(authority.certificate()).unwrap();
    roots.add(ca).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let host = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(host, stream).await.unwrap();
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let request = format!(
        "GET /api/v1/bridge HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         authorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Whether the other end says goodbye before it closes is not the matter here.
    let _ = stream.read_to_end(&mut answer).await;
    (shown, String::from_utf8_lossy(&answer).into_owned())
}
