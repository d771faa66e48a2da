//! An exclusive session is connected only while it is permitted, and writes nothing behind the
//! fence (I18).

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Backoff, Clock, Link, ManualClock, NotAdmitted, Permit, QoS, Sink, Source, SourceState,
    SystemClock, Timestamp, Unanswered,
};
use bridge_testkit::{
    AckKind, Behaviour, ConnAck, Packet, Publish, Reply, ScriptedBroker, ScriptedPermit, wait_until,
};
use bridge_transport::{Reader, SessionConfig, Writer, WriterIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{
    DEADLINE, admit, code, config, message, next, publish, subscription, up, within,
};
use crate::logs::Lines;

const LONG: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(20);

struct Stage {
    broker: ScriptedBroker,
    permit: Arc<ScriptedPermit>,
    clock: Arc<dyn Clock>,
}

impl Stage {
    async fn new(behaviour: Behaviour) -> Self {
        Self {
            broker: ScriptedBroker::behaving(behaviour).await,
            permit: Arc::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    fn writer(&self) -> Writer {
        Writer::start_with_permit(
            config(self.broker.port(), "w"),
            WriterIdentity::ClientId,
            self.clock.clone(),
            self.permit.clone(),
        )
    }

    fn reader(&self) -> Reader {
        Reader::start_with_permit(
            config(self.broker.port(), "r"),
            vec![subscription("t", QoS::ExactlyOnce)],
            self.clock.clone(),
            self.permit.clone(),
        )
    }

    /// For a long time.
    fn grant(&self, token: u64) {
        self.permit.grant(token, LONG, GRACE);
    }

    /// It has come to its end, and there is time for a goodbye.
    fn let_lapse(&self, token: u64) {
        self.permit.grant(token, self.clock.monotonic(), GRACE);
    }

    /// How many connections said goodbye.
    fn goodbyes(&self) -> usize {
        let packets = self.broker.packets();
        let goodbyes = packets
            .iter()
            .filter(|(_, packet)| matches!(packet, Packet::Disconnect(_)));
        goodbyes.count()
    }

    async fn no_connection_is_open(&self) {
        wait_until("the connection is closed", DEADLINE, || {
            self.broker.open_connections() == 0
        })
        .await;
    }

    fn acks(&self) -> Vec<(usize, AckKind, u16)> {
        let packets = self.broker.packets().into_iter();
        packets
            .filter_map(|(connection, packet)| match packet {
                Packet::Ack(ack) => Some((connection, ack.kind, ack.id)),
                _ => None,
            })
            .collect()
    }
}

/// A clock that stands still: a process that is stopped notices nothing, and then all at once.
fn stopped(stage: &mut Stage) -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    stage.clock = clock.clone();
    clock
}

async fn down(writer: &Writer) {
    within("the link goes down", async {
        let mut link = writer.link();
        while link != Link::Down {
            link = writer.changed(link).await;
        }
    })
    .await;
}

async fn state(reader: &Reader, wanted: SourceState) {
    within("the state is reached", async {
        let mut state = reader.state();
        while state != wanted {
            state = reader.state_changed(state).await;
        }
    })
    .await;
}

#[tokio::test]
async fn i18_it_connects_when_it_is_permitted_and_not_before() {
    let lines = Lines::listen();
    let stage = Stage::new(Behaviour::new()).await;
    let (reader, writer) = (stage.reader(), stage.writer());
    wait_until("both wait", DEADLINE, || {
        let told = lines.names();
        told.iter()
            .filter(|name| *name == "session_standby")
            .count()
            == 2
    })
    .await;
    // What is none is not waited for: half a second is as good as for ever.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.broker.connections(), 0);
    assert!(matches!(
        writer
            .publish(message("t", "early", QoS::AtLeastOnce))
            .await,
        Err(NotAdmitted::LinkDown)
    ));
    stage.grant(1);
    up(&writer, 0).await;
    state(&reader, SourceState::Subscribed).await;
    assert_eq!(stage.broker.connections(), 2);
    reader.close().await;
    writer.close().await;
}

#[tokio::test]
async fn i18_it_steps_down_with_last_answers_and_a_goodbye_and_comes_back_in_the_same_process() {
    let lines = Lines::listen();
    let stage = Stage::new(Behaviour::new()).await;
    stage.grant(1);
    let (reader, writer) = (stage.reader(), stage.writer());
    let epoch = up(&writer, 0).await;
    state(&reader, SourceState::Subscribed).await;
    let under_way = admit(&writer, message("t", "last", QoS::AtLeastOnce)).await;
    stage.let_lapse(1);
    assert!(code(&within("its answer comes", under_way).await).get() < 0x80);
    down(&writer).await;
    state(&reader, SourceState::Down).await;
    stage.no_connection_is_open().await;
    assert_eq!(stage.goodbyes(), 2);
    assert!(
        stage.permit.now().may_write(1, stage.clock.monotonic()),
        "all of it before the fence"
    );
    assert_eq!(stage.broker.connections(), 2, "and nobody tries again");
    wait_until("both stand by", DEADLINE, || {
        let told = lines.names().into_iter();
        told.filter(|name| name == "session_standby").count() >= 2
    })
    .await;

    stage.grant(2);
    up(&writer, epoch).await;
    state(&reader, SourceState::Subscribed).await;
    publish(&writer, message("t", "again", QoS::AtLeastOnce)).await;
    let told = lines.names();
    for event in [
        "session_stepped_down",
        "session_standby",
        "session_admitted",
    ] {
        let count = told.iter().filter(|name| *name == event).count();
        assert!(count >= 2, "{event}: {told:?}");
    }
    assert!(!told.contains(&"session_connection_lost".to_owned()));
    reader.close().await;
    writer.close().await;
}

#[tokio::test]
async fn i18_what_is_not_answered_when_it_steps_down_is_no_fault_of_the_message() {
    let stage = Stage::new(Behaviour::new().reply(|_| Reply::Silence)).await;
    stage.grant(1);
    let writer = stage.writer();
    up(&writer, 0).await;
    let under_way = admit(&writer, message("t", "1", QoS::AtLeastOnce)).await;
    wait_until("it is sent", DEADLINE, || stage.broker.publish_count() == 1).await;
    let now = stage.clock.monotonic();
    stage.permit.grant(1, now, Duration::from_secs(1));
    let answer = within("it is told", under_way).await;
    assert_eq!(answer, Answer::Unanswered(Unanswered::SteppedDown));
    writer.close().await;
}

#[tokio::test]
async fn i18_without_time_for_a_goodbye_the_connection_is_cut() {
    let stage = Stage::new(Behaviour::new()).await;
    stage.grant(1);
    let (reader, writer) = (stage.reader(), stage.writer());
    up(&writer, 0).await;
    state(&reader, SourceState::Subscribed).await;
    stage.permit.withhold();
    down(&writer).await;
    state(&reader, SourceState::Down).await;
    stage.no_connection_is_open().await;
    assert_eq!(stage.goodbyes(), 0);
    reader.close().await;
    writer.close().await;
}

/// A broker that accepts one connection, and does not close it.
async fn one_peer(stage: &Stage, listener: TcpListener) -> (Writer, TcpStream) {
    let writer = Writer::start_with_permit(
        config(listener.local_addr().unwrap().port(), "w"),
        WriterIdentity::ClientId,
        stage.clock.clone(),
        stage.permit.clone(),
    );
    let (mut peer, _) = within("it connects", listener.accept()).await.unwrap();
    let mut connect = vec![0; 1024];
    let length = within("CONNECT comes", peer.read(&mut connect)).await;
    connect.truncate(length.unwrap());
    assert_eq!(connect.first(), Some(&0x10));
    (writer, peer)
}

/// What the operating system has not sent yet, and would, is thrown away: else a CONNECT could
/// arrive behind that of the next holder.
#[tokio::test]
async fn i18_an_attempt_that_is_given_up_is_cut() {
    let stage = Stage::new(Behaviour::new()).await;
    for stop in [false, true] {
        stage.grant(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (writer, mut peer) = one_peer(&stage, listener).await;
        if stop {
            within("it stops", writer.close()).await;
        } else {
            stage.let_lapse(1);
        }
        let end = within("it is closed", peer.read(&mut [0; 1024])).await;
        assert_eq!(
            end.unwrap_err().kind(),
            ErrorKind::ConnectionReset,
            "{stop}"
        );
        writer.close().await;
    }
}

/// It has been said, and nothing tells that it was read.
#[tokio::test]
async fn i18_a_goodbye_that_is_not_heard_out_ends_in_a_cut() {
    let stage = Stage::new(Behaviour::new()).await;
    for stop in [false, true] {
        stage.grant(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (writer, mut peer) = one_peer(&stage, listener).await;
        peer.write_all(&[0x20, 3, 0, 0, 0]).await.unwrap();
        up(&writer, 0).await;
        let closing = async {
            if stop {
                writer.close().await;
            } else {
                stage.let_lapse(1);
            }
        };
        let reading = async {
            let mut read = Vec::new();
            let end = peer.read_to_end(&mut read).await;
            (read, end)
        };
        let ((), (read, end)) =
            within("it is closed", async { tokio::join!(closing, reading) }).await;
        assert_eq!(read.first(), Some(&0xE0), "a goodbye: {read:?}");
        assert_eq!(
            end.unwrap_err().kind(),
            ErrorKind::ConnectionReset,
            "{stop}"
        );
        writer.close().await;
    }
}

#[tokio::test]
async fn i18_a_connection_belongs_to_one_token() {
    let stage = Stage::new(Behaviour::new()).await;
    stage.grant(1);
    let writer = stage.writer();
    let epoch = up(&writer, 0).await;
    stage.grant(2);
    up(&writer, epoch).await;
    assert_eq!((stage.broker.connections(), stage.goodbyes()), (2, 0));
    writer.close().await;
}

/// The permit lapses while the process is stopped: nothing in it has noticed when it goes on.
#[tokio::test]
async fn i18_behind_the_fence_nothing_is_published() {
    let mut stage = Stage::new(Behaviour::new()).await;
    let clock = stopped(&mut stage);
    stage.grant(1);
    let writer = stage.writer();
    up(&writer, 0).await;
    publish(&writer, message("t", "before", QoS::AtLeastOnce)).await;
    clock.advance(LONG + GRACE);
    let late = admit(&writer, message("t", "behind", QoS::AtLeastOnce)).await;
    let answer = within("it is told", late).await;
    assert_eq!(answer, Answer::Unanswered(Unanswered::NeverSent));
    down(&writer).await;
    stage.no_connection_is_open().await;
    assert_eq!((stage.broker.publish_count(), stage.goodbyes()), (1, 0));
    assert_eq!(stage.broker.connections(), 1);
    writer.close().await;
    assert_eq!(stage.broker.connections(), 1);
}

#[tokio::test]
async fn i18_behind_the_fence_nothing_is_acknowledged() {
    let messages = [1, 2].map(|id| Publish::new("t", id.to_string()).id(id));
    let mut stage = Stage::new(Behaviour::new().after_subscribe(messages)).await;
    let clock = stopped(&mut stage);
    stage.grant(1);
    let reader = stage.reader();
    let (first, second) = (next(&reader).await, next(&reader).await);
    first.acknowledge.settled();
    wait_until("the first is acknowledged", DEADLINE, || {
        stage.acks().len() == 1
    })
    .await;
    clock.advance(LONG + GRACE);
    second.acknowledge.settled();
    state(&reader, SourceState::Down).await;
    stage.no_connection_is_open().await;
    assert_eq!(stage.acks(), [(0, AckKind::PubAck, 1)]);
    assert_eq!((stage.broker.connections(), stage.goodbyes()), (1, 0));
    reader.close().await;
}

/// A stop in order is no leave to write.
#[tokio::test]
async fn i18_behind_the_fence_there_is_no_goodbye_either() {
    let mut stage = Stage::new(Behaviour::new()).await;
    let clock = stopped(&mut stage);
    stage.grant(1);
    let (reader, writer) = (stage.reader(), stage.writer());
    up(&writer, 0).await;
    state(&reader, SourceState::Subscribed).await;
    clock.advance(LONG + GRACE);
    within("both are closed", async {
        reader.close().await;
        writer.close().await;
    })
    .await;
    stage.no_connection_is_open().await;
    assert_eq!(stage.goodbyes(), 0);
}

/// A broker that sends a message of QoS 2 on each connection, each under the same packet id, as one
/// that it has sent before.
async fn reusing_a_packet_id() -> Stage {
    let broker = ScriptedBroker::start(|mut connection| async move {
        let number = connection.number();
        connection.expect_connect().await;
        let connack = ConnAck::with_session(number > 0);
        connection.send_packet(&Packet::ConnAck(connack)).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        let mut message = Publish::new("t", number.to_string()).qos(2).id(5);
        message.dup = number > 0;
        connection.publish(message).await;
        assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 5);
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    Stage {
        broker,
        permit: Arc::default(),
        clock: Arc::new(SystemClock::new()),
    }
}

/// Takes and settles the next message, which is the one of that connection.
async fn settle(stage: &Stage, reader: &Reader, connection: usize) {
    let delivery = next(reader).await;
    assert_eq!(delivery.message.payload, connection.to_string());
    delivery.acknowledge.settled();
    wait_until("it is acknowledged", DEADLINE, || {
        stage.acks().len() == connection + 1
    })
    .await;
}

/// Someone else had the session meanwhile, and the broker gave the packet id to another message.
#[tokio::test]
async fn what_was_known_of_the_session_before_it_stepped_down_is_not_taken_for_true() {
    let stage = reusing_a_packet_id().await;
    stage.grant(1);
    let reader = stage.reader();
    for connection in 0..2 {
        settle(&stage, &reader, connection).await;
        stage.let_lapse(1);
        state(&reader, SourceState::Down).await;
        stage.no_connection_is_open().await;
        stage.grant(2);
    }
    reader.close().await;
}

/// The same where the lease went to another and came back between two connections.
#[tokio::test]
async fn what_was_known_of_the_session_in_an_earlier_tenure_is_not_taken_for_true() {
    let stage = reusing_a_packet_id().await;
    stage.grant(1);
    let second = Duration::from_secs(1);
    let patient = SessionConfig {
        backoff: Backoff::try_new(second, second).unwrap(),
        ..config(stage.broker.port(), "r")
    };
    let reader = Reader::start_with_permit(
        patient,
        vec![subscription("t", QoS::ExactlyOnce)],
        stage.clock.clone(),
        stage.permit.clone(),
    );
    settle(&stage, &reader, 0).await;
    stage.broker.close_all();
    state(&reader, SourceState::Down).await;
    stage.permit.withhold();
    stage.grant(3);
    settle(&stage, &reader, 1).await;
    reader.close().await;
}
