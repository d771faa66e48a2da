//! The real broker, held to what its handle promises.

use std::time::Duration;

use bridge_testkit::{ClientOptions, Mosquitto, Publish, RawClient};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn it_starts_stops_and_starts_again_on_its_port() {
    let mut broker = Mosquitto::start().await;
    let port = broker.port();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    broker.stop().await;
    TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
    broker.restart().await;
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    broker.kill().await;
    TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
    broker.restart().await;
    assert_eq!(broker.log().matches(" running").count(), 3);
}

#[tokio::test]
async fn a_dropped_broker_is_gone() {
    let broker = Mosquitto::start().await;
    let port = broker.port();
    drop(broker);
    bridge_testkit::wait_for("the port is closed", SOON, async || {
        TcpStream::connect(("127.0.0.1", port)).await.err()
    })
    .await;
}

#[tokio::test]
async fn a_new_acl_judges_the_next_message_of_an_open_connection() {
    let broker = Mosquitto::builder()
        .acl("topic readwrite good\n")
        .start()
        .await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    let bad = || Publish::new("bad", "x");
    assert_eq!(client.publish(bad()).await.unwrap(), 0x87);
    broker.reload("topic readwrite #\n").await;
    // Nobody is subscribed.
    assert_eq!(client.publish(bad()).await.unwrap(), 0x10);
    broker.reload("topic readwrite good\n").await;
    assert_eq!(client.publish(bad()).await.unwrap(), 0x87);
}

#[tokio::test]
async fn users_need_their_password() {
    let broker = Mosquitto::builder().users([("u", "p")]).start().await;
    let as_user = |password: &str| ClientOptions::new("c").user("u", password);
    as_user("p").connect(broker.port()).await.unwrap();
    let error = as_user("q").connect(broker.port()).await.unwrap_err();
    assert!(error.to_string().contains("0x87"), "{error}");
    RawClient::connect(broker.port(), "c").await.unwrap_err();
}

#[tokio::test]
async fn a_paused_broker_keeps_the_line_and_does_not_answer() {
    let broker = Mosquitto::start().await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    broker.pause();
    timeout(Duration::from_millis(300), client.ping())
        .await
        .unwrap_err();
    broker.resume();
    client.ping().await.unwrap();
}

#[tokio::test]
async fn a_persistent_broker_keeps_a_session_over_a_restart() {
    let mut broker = Mosquitto::builder().persistence(true).start().await;
    let options = ClientOptions::new("reader").resumed(Duration::from_secs(600));
    let mut reader = options.clone().connect(broker.port()).await.unwrap();
    assert!(!reader.connack().session_present);
    assert_eq!(reader.subscribe(&[("t", 1)]).await.unwrap(), [1]);
    reader.disconnect().await.unwrap();

    let mut writer = RawClient::connect(broker.port(), "w").await.unwrap();
    let messages = (0..2_000).map(|n| Publish::new("t", n.to_string()));
    writer
        .publish_all(messages, 100)
        .await
        .expect_all_accepted();
    broker.restart().await;

    let mut reader = options.connect(broker.port()).await.unwrap();
    assert!(reader.connack().session_present);
    let received = reader.collect(2_000, SOON).await.unwrap();
    for (n, message) in received.iter().enumerate() {
        assert_eq!(message.text(), n.to_string());
    }
}

#[tokio::test]
async fn limits_are_those_that_were_asked_for() {
    let broker = Mosquitto::builder()
        .max_inflight_messages(7)
        .message_size_limit(10)
        .start()
        .await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    assert_eq!(client.receive_maximum(), 7);
    let code = client.publish(Publish::new("t", "longer than ten")).await;
    assert_eq!(code.unwrap(), 0x95);
}

#[tokio::test]
#[should_panic(expected = "no_such_setting")]
async fn a_broker_that_does_not_start_fails_the_test_with_its_log() {
    Mosquitto::builder()
        .config_line("no_such_setting 1")
        .start()
        .await;
}
