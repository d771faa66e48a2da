//! Configurations that stop the start, and secrets that are never shown.

use std::fs;

use bridge_testkit::{
    BridgeConfig, BridgeProcess, ClientOptions, Installation, Mosquitto, Publish, ScriptedBroker,
};

use crate::setup::{BRIDGE, PATIENCE};

/// Runs the bridge with a config that it refuses; what it prints.
async fn refused(installation: &Installation) -> String {
    let mut bridge: BridgeProcess = installation.bridge(BRIDGE).spawn();
    let status = bridge.wait().await;
    assert_eq!(status.code(), Some(1), "{}", bridge.output());
    assert_eq!(bridge.stdout(), "");
    bridge.stderr()
}

#[tokio::test]
async fn case_10_everything_in_both_directions_is_refused_before_anything_connects() {
    let one = ScriptedBroker::accepting().await;
    let other = ScriptedBroker::accepting().await;
    let installation = Installation::with(|_| {
        format!(
            "bridge: {{ id: storm }}\n\
             data_dir: data\n\
             sessions:\n\
             \x20 one: {{ url: \"{}\", client_id: one }}\n\
             \x20 other: {{ url: \"{}\", client_id: other }}\n\
             routes:\n\
             \x20 there:\n\
             \x20   from: {{ session: one, topics: [\"#\"] }}\n\
             \x20   bindings: {{ out: {{ session: other }} }}\n\
             \x20 back:\n\
             \x20   from: {{ session: other, topics: [\"#\"] }}\n\
             \x20   bindings: {{ out: {{ session: one }} }}\n",
            one.url(),
            other.url()
        )
    });
    let printed = refused(&installation).await;
    for word in ["there", "back", "bridge.yaml:", "circle"] {
        assert!(printed.contains(word), "{word} is not in:\n{printed}");
    }
    assert_eq!((one.connections(), other.connections()), (0, 0));
}

#[tokio::test]
async fn case_33_a_password_of_any_characters_works_and_is_never_shown() {
    const PLANT: &str = "s3cret@:/%#?&=+~'\"\\{}plant";
    const CLOUD: &str = "s3cret@:/%#[]!cloud ключ";
    let source = Mosquitto::builder()
        .users([("plant@7", PLANT)])
        .start()
        .await;
    let destination = Mosquitto::builder().users([("cloud", CLOUD)]).start().await;
    let config = BridgeConfig::between(source.url(), destination.url())
        .plant("username: \"plant@7\"")
        .plant("password: \"${PLANT_PASSWORD}\"")
        .cloud("username: cloud")
        .cloud("password_file: cloud.password");
    let installation = Installation::new(&config);
    let folder = installation.config_path();
    let password_file = folder.parent().unwrap().join("cloud.password");
    fs::write(password_file, format!("{CLOUD}\n")).unwrap();
    let mut bridge = installation
        .bridge(BRIDGE)
        .env("PLANT_PASSWORD", PLANT)
        .args(["--log", "trace"])
        .start()
        .await;

    let client = ClientOptions::new("subscriber").user("cloud", CLOUD);
    let mut subscriber = client.connect(destination.port()).await.unwrap();
    subscriber.subscribe(&[("#", 1)]).await.unwrap();
    let client = ClientOptions::new("publisher").user("plant@7", PLANT);
    let mut publisher = client.connect(source.port()).await.unwrap();
    assert_eq!(publisher.publish(Publish::new("t", "x")).await.unwrap(), 0);
    assert_eq!(subscriber.recv(PATIENCE).await.unwrap().text(), "x");

    // A broker that turns us away is where a password would be shown by mistake.
    bridge.sigterm();
    assert!(bridge.wait().await.success(), "{}", bridge.output());
    let printed = bridge.output();
    assert!(
        printed.contains("127.0.0.1"),
        "nothing is logged:\n{printed}"
    );
    for secret in ["s3cret", &PLANT[6..], &CLOUD[6..]] {
        assert!(!printed.contains(secret), "{secret} is in:\n{printed}");
    }
}

#[tokio::test]
async fn case_33_a_wrong_password_is_not_shown_either() {
    let source = Mosquitto::builder()
        .users([("plant", "right")])
        .start()
        .await;
    let destination = Mosquitto::start().await;
    let config = BridgeConfig::between(source.url(), destination.url())
        .plant("username: plant")
        .plant("password: wr0ng-s3cret");
    let installation = Installation::new(&config);
    let bridge = installation
        .bridge(BRIDGE)
        .ready_path("/livez")
        .args(["--log", "trace"])
        .start()
        .await;
    bridge_testkit::wait_for("the broker turns us away", PATIENCE, async || {
        let failures = bridge.metrics().await;
        let failures = failures.whole(
            "bridge_mqtt_session_connect_failures_total",
            &[("session", "plant")],
        );
        (failures? > 1).then_some(())
    })
    .await;
    assert_eq!(bridge.get("/readyz").await.unwrap().status, 503);
    let printed = bridge.output();
    assert!(printed.contains("plant"), "{printed}");
    assert!(!printed.contains("wr0ng"), "{printed}");
}

#[tokio::test]
async fn case_33_a_url_with_user_info_is_refused_with_the_remedy_and_not_shown() {
    let config = BridgeConfig::between(
        "\"mqtt://plant:s3cret%40x@127.0.0.1:1883\"",
        "mqtt://127.0.0.1:1884",
    );
    let printed = refused(&Installation::new(&config)).await;
    for word in ["sessions.plant.url", "username", "password"] {
        assert!(printed.contains(word), "{word} is not in:\n{printed}");
    }
    assert!(!printed.contains("s3cret"), "{printed}");
}
