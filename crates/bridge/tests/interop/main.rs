//! One suite against every broker that is there. What the book says of a broker
//! (`docs/src/interoperability.md`) is what is seen here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the code of tests: failing loudly is what it is for"
)]

mod chain;
mod embedded;
mod session;
mod suite;

use std::io::{self, Write as _};

use bridge_testkit::{Mosquitto, Nats, Rabbitmq};
use bridge_transport::Protocol;

use chain::messages_pass_through;
use embedded::Embedded;
use session::Place;
use suite::look_at;

const BOOK: &str = include_str!("../../../../docs/src/interoperability.md");
/// Which version of the embedded broker is built in: it does not say so itself.
const LOCK_FILE: &str = include_str!("../../../../Cargo.lock");

/// The embedded broker's name and version, as `mqtt5 0.49.0`.
fn embedded_name() -> String {
    let (_, version) = LOCK_FILE
        .split_once("name = \"mqtt5\"\nversion = \"")
        .expect("the lock file has the broker's version");
    let (version, _) = version.split_once('"').expect("a version in quotes");
    format!("mqtt5 {version}")
}

/// Lets the suite look at a broker, and holds the book to what it has seen.
async fn the_book_is_true(broker: &str, port: u16, protocol: Protocol) {
    let place = Place { port, protocol };
    let seen = look_at(place).await;
    messages_pass_through(place).await;
    let row = seen.row(broker, protocol);
    let known = format!("| {broker} | {protocol} |");
    if BOOK.contains(&known) {
        assert!(BOOK.contains(&row), "the book has another row than\n{row}");
    } else {
        // Past the test harness, which shows what a test prints only when it fails.
        let _ = writeln!(io::stderr(), "this version is not in the book:\n{row}");
    }
}

#[tokio::test]
async fn mosquitto_by_mqtt_5() {
    let broker = Mosquitto::start().await;
    let name = format!("Mosquitto {}", broker.version());
    the_book_is_true(&name, broker.port(), Protocol::V5).await;
}

#[tokio::test]
async fn mosquitto_by_mqtt_3_1_1() {
    let broker = Mosquitto::start().await;
    let name = format!("Mosquitto {}", broker.version());
    the_book_is_true(&name, broker.port(), Protocol::V311).await;
}

#[tokio::test]
async fn the_embedded_broker_by_mqtt_5() {
    let broker = Embedded::start().await;
    the_book_is_true(&embedded_name(), broker.port, Protocol::V5).await;
}

#[tokio::test]
async fn the_embedded_broker_by_mqtt_3_1_1() {
    let broker = Embedded::start().await;
    the_book_is_true(&embedded_name(), broker.port, Protocol::V311).await;
}

#[tokio::test]
async fn rabbitmq_by_mqtt_3_1_1() {
    let Some(broker) = Rabbitmq::start().await else {
        return;
    };
    let name = format!("RabbitMQ {}", broker.version());
    the_book_is_true(&name, broker.port(), Protocol::V311).await;
}

#[tokio::test]
async fn nats_by_mqtt_3_1_1() {
    let Some(broker) = Nats::start().await else {
        return;
    };
    let name = format!("NATS {}", broker.version());
    the_book_is_true(&name, broker.port(), Protocol::V311).await;
}
