//! The real broker, held to what its handle promises.

use bridge_testkit::Mosquitto;
use tokio::net::TcpStream;

#[tokio::test]
async fn it_starts_stops_and_starts_again_on_its_port() {
    let mut broker = Mosquitto::builder().persistence(true).start().await;
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
