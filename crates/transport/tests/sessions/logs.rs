//! One line for each change of state, and none for each attempt.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use bridge_core::{QoS, Sink, Source};
use bridge_testkit::{Behaviour, ConnAck, Cut, Proxy, ScriptedBroker, wait_until};
use bridge_transport::{Credentials, Password, Secret, Tls, Trust};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

use crate::common::{DEADLINE, config, message, publish, subscribed, up, writer};

/// What the bridge logs on this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<Line>>>);

thread_local! {
    static LISTENING: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

impl Lines {
    /// Listens to this thread from now on; each test has its own.
    ///
    /// One subscriber for the whole process: with one for each thread, whether an event is of
    /// interest may be asked, and remembered, on a thread that has none.
    pub(crate) fn listen() -> Self {
        static EARS: Once = Once::new();
        EARS.call_once(|| subscriber::set_global_default(Ears).unwrap());
        let lines = Self::default();
        LISTENING.set(Some(lines.clone()));
        lines
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().map(|line| line.name.clone()).collect()
    }

    /// How each line of that name was meant.
    pub(crate) fn levels(&self, name: &str) -> Vec<Level> {
        let lines = self.0.lock().unwrap();
        let named = lines.iter().filter(|line| line.name == name);
        named.map(|line| line.level).collect()
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().unwrap();
        lines.iter().map(|line| line.text.as_str()).collect()
    }
}

struct Ears;

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bridge_transport")
    }

    fn event(&self, event: &Event<'_>) {
        LISTENING.with_borrow(|listening| {
            if let Some(Lines(lines)) = listening {
                let mut line = Line {
                    level: *event.metadata().level(),
                    name: String::new(),
                    text: String::new(),
                };
                event.record(&mut line);
                lines.lock().unwrap().push(line);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Debug)]
struct Line {
    level: Level,
    /// The stable name.
    name: String,
    /// All fields.
    text: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        if field.name() == "event" {
            value.trim_matches('"').clone_into(&mut self.name);
        }
        self.text.push_str(&value);
        self.text.push(' ');
    }
}

#[tokio::test]
async fn an_outage_is_one_line_however_many_attempts_it_takes() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::accepting().await;
    let mut proxy = Proxy::start(broker.port()).await;
    let writer = writer(config(proxy.port(), "w"));
    up(&writer, 0).await;
    proxy.refuse().await;
    proxy.cut(Cut::Finish);
    wait_until("many attempts fail", DEADLINE, || {
        writer.stats().connect_failures > 5
    })
    .await;
    proxy.accept().await;
    up(&writer, 1).await;
    writer.close().await;
    assert_eq!(
        lines.names(),
        [
            "session_connected",
            "session_connection_lost",
            "session_connect_failed",
            "session_connected",
            "session_closed"
        ]
    );
}

#[tokio::test]
async fn an_outage_of_two_brokers_is_one_line_for_each_and_the_log_says_which_one_is_used() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::accepting().await;
    let mut first = Proxy::start(broker.port()).await;
    let mut second = Proxy::start(broker.port()).await;
    first.refuse().await;
    second.refuse().await;
    let mut settings = config(first.port(), "w");
    settings.brokers.rest = config(second.port(), "w").brokers.iter().cloned().collect();
    let writer = writer(settings);
    wait_until("both are tried again and again", DEADLINE, || {
        writer.stats().connect_failures > 5
    })
    .await;
    second.accept().await;
    up(&writer, 0).await;
    writer.close().await;
    assert_eq!(
        lines.names(),
        [
            "session_connect_failed",
            "session_connect_failed",
            "session_connected",
            "session_closed"
        ]
    );
    let used = format!("mqtt://127.0.0.1:{}", second.port());
    let away = format!("mqtt://127.0.0.1:{}", first.port());
    let text = lines.text();
    let (before, after) = text.rsplit_once(&used).unwrap();
    assert!(before.contains(&away) && !after.contains(&away), "{text}");
}

#[tokio::test]
async fn a_broker_that_is_not_verified_is_warned_of_at_each_start() {
    let lines = Lines::listen();
    let mut settings = config(1, "w");
    settings.brokers.first.tls = Some(Tls {
        trust: Trust::InsecureSkipVerify,
        ..Tls::default()
    });
    let writer = writer(settings);
    wait_until("an attempt fails", DEADLINE, || {
        writer.stats().connect_failures > 0
    })
    .await;
    writer.close().await;
    assert_eq!(
        lines.names(),
        ["session_broker_not_verified", "session_connect_failed"]
    );
    assert!(lines.text().contains("tls.insecure_skip_verify"));
}

#[tokio::test]
async fn another_reason_is_another_line_and_no_line_holds_a_password() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::behaving(Behaviour::new().connacks(|connection| ConnAck {
        code: match connection {
            0..4 => 0x86,
            4..8 => 0x89,
            _ => 0x00,
        },
        ..ConnAck::default()
    }))
    .await;
    let mut settings = config(broker.port(), "w");
    settings.credentials = Some(Credentials {
        username: "plant-7".to_owned(),
        password: Some(Password::Text(Secret::new("correct horse".to_owned()))),
    });
    assert!(!format!("{settings:?}").contains("correct horse"));
    let writer = writer(settings);
    up(&writer, 0).await;
    assert_eq!(
        lines.names(),
        [
            "session_connect_failed",
            "session_connect_failed",
            "session_connected"
        ]
    );
    assert!(lines.text().contains("bad_user_name_or_password"));
    assert!(lines.text().contains("server_busy"));
    assert!(!lines.text().contains("correct horse"));
    let connect = broker.connects().pop().unwrap();
    assert_eq!(connect.username.as_deref(), Some("plant-7"));
    assert_eq!(connect.password.as_deref(), Some(&b"correct horse"[..]));
}

#[tokio::test]
async fn i26_a_thousand_refusals_are_no_line_of_the_session() {
    let lines = Lines::listen();
    let broker =
        ScriptedBroker::behaving(Behaviour::new().reply(|_| bridge_testkit::Reply::Code(0x87)))
            .await;
    let writer = writer(config(broker.port(), "w"));
    for _ in 0..1000 {
        publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    }
    assert_eq!(lines.names(), ["session_connected"]);
}

#[tokio::test]
async fn a_refused_subscription_is_one_line_however_often_it_is_asked_for() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::behaving(Behaviour::new().suback({
        let asked = std::sync::atomic::AtomicUsize::new(0);
        move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0..5 => 0x87,
            _ => 1,
        }
    }))
    .await;
    let short = Duration::from_millis(10);
    let tuning = bridge_transport::ReaderTuning {
        resubscribe: bridge_core::Backoff::try_new(short, short).unwrap(),
        ..bridge_transport::ReaderTuning::default()
    };
    let reader = bridge_transport::Reader::start_tuned(
        config(broker.port(), "r"),
        vec![crate::common::subscription("t", QoS::AtLeastOnce)],
        crate::common::clock(),
        tuning,
    );
    subscribed(&reader).await;
    reader.close().await;
    assert_eq!(
        lines.names(),
        [
            "session_connected",
            "subscription_refused",
            "subscription_granted",
            "session_closed"
        ]
    );
}

#[tokio::test]
async fn what_the_protocol_cannot_say_is_said_once_at_start() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::accepting().await;
    let mut settings = config(broker.port(), "a-client-id-of-24-bytes-");
    settings.protocol = bridge_transport::Protocol::V311;
    let writer = writer(settings.clone());
    up(&writer, 0).await;
    broker.close_all();
    up(&writer, 1).await;
    let said = |name: &str| lines.names().iter().filter(|n| *n == name).count();
    assert_eq!((said("protocol_without"), said("client_id_long")), (1, 1));
    assert!(
        lines
            .text()
            .contains("refusals,message_expiry,properties,takeover")
    );

    let reader = crate::common::reader(settings, "t");
    subscribed(&reader).await;
    assert_eq!(said("protocol_without"), 2, "what reading loses is another");
    assert!(lines.text().contains("retain_as_published"));
}

#[tokio::test]
async fn a_broker_that_closes_before_it_answers_and_one_that_refuses_are_told_with_a_remedy() {
    let lines = Lines::listen();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let closing = tokio::spawn(async move {
        loop {
            drop(silent.accept().await.unwrap());
        }
    });
    let refusing = Behaviour::new().connacks(|_| ConnAck {
        code: 0x87,
        ..ConnAck::default()
    });
    let refusing = ScriptedBroker::behaving(refusing).await;
    for port in [port, refusing.port()] {
        let writer = writer(config(port, "w"));
        wait_until("an attempt fails", DEADLINE, || {
            writer.stats().connect_failures > 0
        })
        .await;
        writer.close().await;
    }
    closing.abort();
    let text = lines.text();
    assert!(
        text.contains("before the broker had answered; is its port for TLS"),
        "{text}"
    );
    assert!(
        text.contains("not_authorized; are user name and password right"),
        "{text}"
    );
    assert!(!text.contains("Mqtt state"), "{text}");
}
