//! One connection: the client library's event loop in a task of its own, under guard.
//!
//! The loop is made for one connection and dropped with it, so the library never reconnects and
//! never sends anything again by itself. Its `poll` is not safe to cancel: it runs in a task that
//! does nothing else, and that is aborted only to throw the whole loop away.

mod welcome;
mod words;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bridge_core::{Closing, Message, ReasonCode};
use rumqttc::mqttbytes::Error as MqttError;
use rumqttc::mqttbytes::v5::{
    ConnectProperties, DisconnectProperties, DisconnectReasonCode, Packet,
};
use rumqttc::{
    AckMode, AsyncClient, Broker, ConnectionError, Event, EventLoop, MqttOptions, PublishNotice,
    PublishOptions, StateError, ValidatedTopic,
};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use crate::approach::{Approach, Way};
use crate::convert::to_wire_qos;
use crate::dial::{DialError, closed};
use crate::gate::Pass;
use crate::guard::{Flush, Guarded, Marker, Rules, Said, Violation, Witness};
use crate::keys::KeyError;
use crate::packet::{self, Policies};
use crate::stats::Standing;
use crate::status::Status;
use crate::{Protocol, SessionConfig, memory};

pub(crate) use welcome::{Serves, Welcome};

/// The most messages that may be unanswered: the library's cost per answer grows with it.
const MAX_WINDOW: u16 = 256;
/// How many requests the library takes before it flushes.
const BATCH: usize = 128;
/// Topic aliases that a broker may use towards us; the library resolves them.
const TOPIC_ALIASES: u16 = 64;
/// How much longer a packet may be in MQTT 5 than in MQTT 3.1.1.
const ROOM_TO_TRANSLATE: u32 = 128;
/// How long each way of saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What follows a connection's events. Everything is called from the connection's own task, and
/// dropped when nothing will come any more; the library then still holds what is unanswered.
pub(crate) trait Handler: Send + 'static {
    /// The CONNACK has come; nothing after it has been looked at yet.
    fn connected(&mut self, welcome: &Welcome);
    /// Something came or went.
    fn handle(&mut self, event: Event) -> impl Future<Output = ()> + Send;
}

/// What a connection is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Publishing: clean start, nothing left behind.
    Write,
    /// Reading.
    Read {
        /// Seconds for which the broker keeps the session; `None` begins anew each time.
        keep: Option<u32>,
        /// Packet ids of QoS 2 messages that were acknowledged and not yet released.
        releasing: Vec<u16>,
    },
}

/// Why a connection is not, or is no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    /// We wanted it so.
    #[error("closed by the bridge")]
    Closed,
    /// We had to: the lease is another's, or may be.
    #[error("the session is exclusive, and its lease has ended")]
    SteppedDown,
    /// MQTT 5 §3.2.2.2.
    #[error("the broker refused the connection: {}{}", said(.0), remedy(.0.0))]
    Refused(Said),
    /// MQTT 5 §3.14.
    #[error("the broker disconnected: {}", said(.0))]
    Disconnected(Said),
    /// MQTT 5 §4.11.
    #[error("the broker sends us to another: {}", said(.answer))]
    Redirected {
        /// Its code, 0x9C or 0x9D.
        answer: Said,
        /// The other one, where it named it.
        to: Option<String>,
    },
    /// There is no way to the broker.
    #[error(transparent)]
    Unreachable(#[from] DialError),
    /// What we prove ourselves with is not there.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The network, or the protocol.
    #[error("{}", words::of(.0))]
    Failed(#[from] ConnectionError),
    /// The connection stood, and ended before the CONNACK.
    #[error(
        "the connection was closed before the broker had answered; is its port for TLS \
         (mqtts://) or WebSocket (ws://), or does it speak another version of MQTT (protocol)?"
    )]
    ClosedUnanswered,
    /// MQTT 5 §4.13.
    #[error("{0}")]
    Violated(Violation),
    /// A broker that answers pings and not this.
    #[error("a {what} has gone unanswered for {after:?}")]
    Unanswered {
        /// What was not answered.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The library refuses the settings.
    #[error("the settings make no connection: {0}")]
    Settings(#[from] rumqttc::ClientBuildError),
    /// A defect of ours.
    #[error("the connection's task failed: {0}")]
    Task(#[from] JoinError),
}

fn said((code, text): &Said) -> String {
    match text {
        Some(text) => format!("{code} ({text:?})"),
        None => code.to_string(),
    }
}

/// What is likely to help against a refused connection.
const fn remedy(code: ReasonCode) -> &'static str {
    match code.get() {
        0x84 => "; set protocol to the version that it speaks",
        0x85 => "; it does not take this client_id",
        0x86 | 0x87 => "; are user name and password right, and may this client connect?",
        _ => "",
    }
}

impl Ending {
    /// The same of a connection on which the broker has not answered yet.
    fn before_an_answer(self) -> Self {
        match self {
            Self::Failed(
                ConnectionError::Io(error)
                | ConnectionError::MqttState(StateError::Deserialization(MqttError::Io(error))),
            ) if error.get_ref().is_none() && closed(&error) => Self::ClosedUnanswered,
            Self::Failed(ConnectionError::MqttState(StateError::ConnectionAborted)) => {
                Self::ClosedUnanswered
            }
            other => other,
        }
    }
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: AsyncClient,
    pub(crate) welcome: Welcome,
    driver: Driver,
}

impl Connection {
    /// Dials, connects, and waits for the CONNACK.
    ///
    /// `handler` is made from what the connection is known by, before anything is sent.
    pub(crate) async fn open<H: Handler>(
        config: &SessionConfig,
        approach: &mut Approach,
        client_id: &str,
        purpose: &Purpose,
        status: Option<&Status>,
        handler: impl FnOnce(&AsyncClient, Marker, Arc<Witness>) -> H,
    ) -> Result<Self, Ending> {
        let began = Instant::now();
        let way = approach.open().await?;
        let witness = Arc::new(Witness::default());
        witness.hold(way.stream.hold().map_err(ConnectionError::Io)?);
        let marker = Marker::new(rand::random());
        let mut options = options(config, client_id, purpose, way, status, &marker, &witness);
        options.set_connect_timeout(config.connect_timeout.saturating_sub(began.elapsed()));
        if let Some(status) = status {
            options.set_last_will(status.will());
        }
        let capacity = match purpose {
            Purpose::Write => usize::from(MAX_WINDOW),
            Purpose::Read { .. } => usize::from(config.receive_maximum.get()) + BATCH,
        };
        let (client, event_loop) = AsyncClient::builder(options)
            .capacity(capacity)
            .try_build()?;
        let handler = handler(&client, marker, Arc::clone(&witness));
        let (welcomed, welcome) = oneshot::channel();
        let window = config.max_in_flight.get().min(MAX_WINDOW);
        let task = drive(event_loop, approach.standing(), handler, welcomed, window);
        let mut driver = Driver {
            task: tokio::spawn(task),
            over: false,
            witness,
            pass: approach.pass().clone(),
        };
        match welcome.await {
            Ok(welcome) => Ok(Self {
                client,
                welcome,
                driver,
            }),
            Err(_) => Err(driver.ended().await.before_an_answer()),
        }
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> Ending {
        self.driver.ended().await
    }

    /// Says `farewell` and then goodbye, after what has been handed to the library, and waits for
    /// the end.
    pub(crate) async fn goodbye(mut self, farewell: Option<Message>) {
        self.say_goodbye(farewell, GOODBYE).await;
        let socket = self.driver.witness.let_go();
        let pass = self.driver.pass.clone();
        self.abandon().await;
        if let Some(socket) = socket {
            socket.hear_out(GOODBYE, &pass).await;
        }
    }

    /// The same in the time that `pass` leaves for it; when there is none, the connection is cut.
    pub(crate) async fn step_down(mut self, pass: &Pass, farewell: Option<Message>) {
        // There are three ways of saying it, and closing takes a moment as well.
        let each = (pass.left() / 5).min(GOODBYE);
        let said = !each.is_zero() && self.say_goodbye(farewell, each).await;
        let socket = self.driver.witness.let_go();
        self.abandon().await;
        match socket {
            Some(socket) if said => socket.hear_out(each, pass).await,
            Some(socket) => socket.cut(),
            None => {}
        }
    }

    /// Says it, and says whether it could be said; `each` is how long each way of doing so may
    /// take.
    async fn say_goodbye(&mut self, farewell: Option<Message>, each: Duration) -> bool {
        if let Some(mut farewell) = farewell {
            packet::adapt(&mut farewell, &self.welcome.limits, Policies::LENIENT);
            if let Some(notice) = try_publish(&self.client, farewell) {
                // Time that is up, or a refusal: the birth has told about those.
                let _ = timeout(each, notice.wait_async()).await;
            }
        }
        // The library sends the first only when nothing is unanswered, the second at once. A
        // connection that has just ended, or that takes neither, is dropped: it is over anyway.
        let in_its_turn = timeout(each, async {
            self.client.disconnect().await.is_ok() && self.driver.is_over().await
        });
        if in_its_turn.await.unwrap_or(false) {
            return true;
        }
        let at_once = timeout(each, async {
            self.client.disconnect_now().await.is_ok() && self.driver.is_over().await
        });
        at_once.await.unwrap_or(false)
    }

    /// Goes in order to come again at once: the will stays, for the case that nothing comes of it.
    pub(crate) async fn go_and_return(self) {
        let with_will = DisconnectReasonCode::DisconnectWithWillMessage;
        let properties = DisconnectProperties {
            session_expiry_interval: None,
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        };
        let said = self
            .client
            .disconnect_with_properties(with_will, properties);
        // In its turn if it is taken in time; the rest of the goodbye sees to the end.
        let _ = timeout(GOODBYE, said).await;
        self.goodbye(None).await;
    }

    /// Drops the connection, and ends when nothing of it is left.
    pub(crate) async fn abandon(mut self) {
        self.driver.task.abort();
        self.driver.is_over().await;
    }
}

/// Hands a message of the session's own to the library: the claim on its answer, or `None` when
/// the connection has ended.
pub(crate) fn try_publish(client: &AsyncClient, message: Message) -> Option<PublishNotice> {
    let options = PublishOptions::new(to_wire_qos(message.qos)).retain(message.retain);
    let topic = ValidatedTopic::new(message.topic.as_str()).ok()?;
    client
        .try_publish_tracked(topic, message.payload, options)
        .ok()
}

/// The task that polls. Dropped, it takes the event loop with it.
#[derive(Debug)]
struct Driver {
    task: JoinHandle<ConnectionError>,
    /// The task has been awaited to its end.
    over: bool,
    witness: Arc<Witness>,
    pass: Pass,
}

impl Driver {
    /// Waits for the end, as often as asked.
    async fn is_over(&mut self) -> bool {
        if !self.over {
            self.ended().await;
        }
        true
    }

    /// Waits for the end; to be called no more once it has returned.
    async fn ended(&mut self) -> Ending {
        let result = (&mut self.task).await;
        self.over = true;
        let error = match result {
            Ok(error) => error,
            Err(error) => return Ending::Task(error),
        };
        // The guard has seen the true codes; the library may know them by another name.
        if self.witness.disconnect().is_none()
            && let Some(violation) = self.witness.violation()
        {
            return Ending::Violated(violation);
        }
        let refused = || self.witness.connack().filter(|(code, _)| code.is_refusal());
        match (error, self.witness.disconnect(), refused()) {
            (_, Some(said), _) | (_, None, Some(said)) if is_redirect(said.0) => {
                let to = self.witness.reference();
                Ending::Redirected { answer: said, to }
            }
            (_, Some(said), _) => Ending::Disconnected(said),
            (ConnectionError::RequestsDone, None, _) => Ending::Closed,
            (_, None, Some(said)) => Ending::Refused(said),
            (error, None, None) => Ending::Failed(error),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(socket) = self.witness.let_go() {
            socket.let_go(&self.pass);
        }
    }
}

/// However this ends, `handler` is dropped before `standing`, and that before `event_loop`: the
/// later argument goes first.
async fn drive<H: Handler>(
    mut event_loop: EventLoop,
    mut standing: Standing,
    mut handler: H,
    welcomed: oneshot::Sender<Welcome>,
    window: u16,
) -> ConnectionError {
    let mut welcomed = Some(welcomed);
    loop {
        match event_loop.poll().await {
            Ok(Event::Incoming(Packet::ConnAck(connack))) => {
                // What is stored is read once, while connecting; saved it would be after every
                // packet, and we want none of it.
                event_loop.options.clear_session_store();
                let welcome = Welcome::new(&connack, window);
                // Before anything is sent that is seen elsewhere.
                standing.begins();
                handler.connected(&welcome);
                if let Some(welcomed) = welcomed.take() {
                    // Nobody waits any more: the connection is being dropped.
                    let _ = welcomed.send(welcome);
                }
            }
            Ok(event) => handler.handle(event).await,
            Err(error) => return error,
        }
    }
}

fn options(
    config: &SessionConfig,
    client_id: &str,
    purpose: &Purpose,
    way: Way,
    status: Option<&Status>,
    marker: &Marker,
    witness: &Arc<Witness>,
) -> MqttOptions {
    // The stream is there already; the library is told nothing that it could misread.
    let broker = Broker::tcp("broker", 1883);
    let mut options = MqttOptions::new(client_id, broker);
    let keep_alive = u16::try_from(config.keep_alive.as_secs()).unwrap_or(u16::MAX);
    options
        .set_keep_alive(keep_alive.max(1))
        .set_max_request_batch(BATCH)
        .set_read_batch_size(BATCH);
    if let Some(credentials) = &config.credentials {
        let username = credentials.username.clone();
        match &way.keys.password {
            Some(password) => {
                options.set_credentials(username, password.expose().as_bytes().to_vec())
            }
            None => options.set_username(username),
        };
    }
    let mut properties = ConnectProperties::new();
    properties.max_packet_size = Some(match config.protocol {
        Protocol::V5 => config.max_packet_size,
        // The guard bounds packets as the broker sends them; in MQTT 5 they are longer.
        Protocol::V311 => config.max_packet_size.saturating_add(ROOM_TO_TRANSLATE),
    });
    let flush = match purpose {
        Purpose::Write => {
            options.set_clean_start(true);
            properties.session_expiry_interval = status.and_then(Status::outlives);
            options.set_outgoing_inflight_upper_limit(config.max_in_flight.get().min(MAX_WINDOW));
            Flush::AtOnce
        }
        Purpose::Read { keep, releasing } => {
            options.set_clean_start(keep.is_none());
            options.set_ack_mode(AckMode::Manual);
            options.set_outgoing_inflight_upper_limit(memory::UNANSWERED);
            properties.session_expiry_interval = *keep;
            properties.receive_maximum = Some(config.receive_maximum.get());
            properties.topic_alias_max = Some(TOPIC_ALIASES);
            if let Some(keep) = keep {
                options.set_session_store(memory::Remembered::new(*keep, releasing.clone()));
            }
            Flush::WhenIdle
        }
    };
    options.set_connect_properties(properties);

    let rules = Rules {
        protocol: config.protocol,
        max_packet_size: config.max_packet_size,
        write_timeout: config.write_timeout,
        flush,
        // A little later than the library asks by itself.
        quiet: config.keep_alive + config.keep_alive / 4,
    };
    let guarded = Guarded::new(way.stream, rules, marker.clone(), Arc::clone(witness));
    // The loop is made for one connection, and so is what it connects by.
    let once = Arc::new(Mutex::new(Some(guarded)));
    options.set_socket_connector(move |_, _| {
        let guarded = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::future::ready(guarded.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    });
    options
}

const fn is_redirect(code: ReasonCode) -> bool {
    matches!(code.get(), 0x9C | 0x9D)
}

/// Whether the other side closed the connection, or it was cut, and nothing was said.
pub(crate) fn is_wordless(ending: &Ending) -> bool {
    match ending {
        Ending::Failed(
            ConnectionError::Io(error)
            | ConnectionError::MqttState(
                StateError::Io(error) | StateError::Deserialization(MqttError::Io(error)),
            ),
        ) => closed(error),
        Ending::Failed(ConnectionError::MqttState(StateError::ConnectionAborted)) => true,
        _ => false,
    }
}

/// Whether the broker said that another client took our place.
pub(crate) fn is_takeover(ending: &Ending) -> bool {
    matches!(ending, Ending::Disconnected((code, _)) if code.rule().closing == Closing::TakenOver)
}
