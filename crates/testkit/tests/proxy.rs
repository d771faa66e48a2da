//! The proxy, between the raw client and the scripted broker.

use std::io;
use std::time::{Duration, Instant};

use bridge_testkit::{Cut, Proxy, Publish, RawClient, ScriptedBroker, wait_until};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn bytes_pass_both_ways() {
    let broker = ScriptedBroker::accepting().await;
    let proxy = Proxy::start(broker.port()).await;
    let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
    let payload = vec![7; 1 << 20];
    let code = client.publish(Publish::new("t", payload.clone())).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(broker.publishes()[0].publish.payload, payload);
    client.disconnect().await.unwrap();
    wait_until("the end is passed on", SOON, || {
        broker.open_connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_cut_ends_the_open_connections_and_no_other() {
    let broker = ScriptedBroker::accepting().await;
    let proxy = Proxy::start(broker.port()).await;
    for (how, kind) in [
        (Cut::Reset, io::ErrorKind::ConnectionReset),
        (Cut::Finish, io::ErrorKind::UnexpectedEof),
    ] {
        let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
        proxy.cut(how);
        let error = client.recv(SOON).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{how:?}: {error}");
    }
    wait_until("the broker sees it", SOON, || {
        broker.open_connections() == 0
    })
    .await;
    assert_eq!((proxy.connections(), broker.connections()), (2, 2));
}

#[tokio::test]
async fn a_stalled_line_holds_the_bytes_and_delivers_them_later() {
    let broker = ScriptedBroker::accepting().await;
    let proxy = Proxy::start(broker.port()).await;
    let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
    proxy.stall();
    let publish = client.publish(Publish::new("t", "held"));
    timeout(A_WHILE, publish).await.unwrap_err();
    assert_eq!((broker.publish_count(), broker.open_connections()), (0, 1));
    proxy.resume();
    wait_until("it arrives", SOON, || broker.publish_count() == 1).await;
    client.ping().await.unwrap();

    proxy.stall_answers();
    timeout(A_WHILE, client.publish(Publish::new("t", "unanswered")))
        .await
        .unwrap_err();
    wait_until("it arrives all the same", SOON, || {
        broker.publish_count() == 2
    })
    .await;
    proxy.resume();
    client.ping().await.unwrap();
}

#[tokio::test]
async fn a_delay_makes_bytes_late_and_not_fewer() {
    let broker = ScriptedBroker::accepting().await;
    let proxy = Proxy::start(broker.port()).await;
    let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
    proxy.delay(Duration::from_millis(50));
    let began = Instant::now();
    client.ping().await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(100));
    let messages = (0..1_000).map(|n| Publish::new("t", n.to_string()));
    let report = client.publish_all(messages, 1_000).await;
    report.expect_all_accepted();
    // One after the other they would take 100 s.
    assert!(
        report.elapsed < Duration::from_secs(50),
        "pipelined: {:?}",
        report.elapsed
    );
}

#[tokio::test]
async fn refused_connections_are_refused_and_the_open_ones_live() {
    let broker = ScriptedBroker::accepting().await;
    let mut proxy = Proxy::start(broker.port()).await;
    let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
    proxy.refuse().await;
    let error = RawClient::connect(proxy.port(), "d").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    client.ping().await.unwrap();
    proxy.accept().await;
    RawClient::connect(proxy.port(), "d").await.unwrap();
}

#[tokio::test]
async fn what_is_stalled_when_the_line_is_cut_arrives_nowhere_though_it_goes_on_at_once() {
    let broker = ScriptedBroker::accepting().await;
    let proxy = Proxy::start(broker.port()).await;
    for _ in 0..20 {
        let mut client = RawClient::connect(proxy.port(), "c").await.unwrap();
        proxy.stall();
        let lost = client.publish(Publish::new("t", "lost"));
        timeout(Duration::from_millis(20), lost).await.unwrap_err();
        proxy.cut(Cut::Reset);
        proxy.resume();
        client.until_closed(SOON).await.unwrap();
    }
    wait_until("the broker sees it", SOON, || {
        broker.open_connections() == 0
    })
    .await;
    assert_eq!(broker.publish_count(), 0);
}
