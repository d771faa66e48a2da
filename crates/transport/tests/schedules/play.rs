//! One schedule from its seed to the reckoning.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Backoff, Message, Name, NotAdmitted, QoS, ReasonCode, Sink, SystemClock, Topic,
    Unanswered,
};
use bridge_testkit::{Cut, Proxy, ScriptedBroker, wait_until};
use bridge_transport::{
    Address, Brokers, Endpoint, Protocol, SessionConfig, Writer, WriterIdentity,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::broker::{self, Attempt, Mood};
use crate::chance::Chance;

/// How long anything may take before a schedule says that it does not happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What came about in a schedule, counted: whatever is never seen was not tested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) connections: usize,
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
    pub(crate) may_have_been_sent: usize,
    pub(crate) never_sent: usize,
    /// Of those that may have been sent, those that never arrived.
    pub(crate) lost: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.may_have_been_sent += other.may_have_been_sent;
        self.never_sent += other.never_sent;
        self.lost += other.lost;
    }
}

/// What is decided before a schedule begins.
struct Plan {
    /// Nothing that the client writes is thrown away on its way, so that the truth about every
    /// message is known: the broker reads all of each connection, and no proxy is between.
    exact: bool,
    /// A window takes a while to be written, on a busy machine too.
    bulky: bool,
    protocol: Protocol,
    window: u16,
    messages: Vec<(QoS, usize)>,
    /// After so many attempts everything is given up, if at all.
    give_up: Option<Attempt>,
    /// With a goodbye, or simply dropped.
    goodbye: bool,
    mischief: u64,
}

impl Plan {
    fn draw(chance: &mut Chance) -> Self {
        let exact = chance.percent(50);
        // More than all buffers on the way can hold.
        let bulky = chance.percent(4);
        let count = if bulky { 12 } else { chance.between(5, 30) };
        let messages = (0..count)
            .map(|_| {
                let qos = match chance.below(5) {
                    0 => QoS::AtMostOnce,
                    1 | 2 => QoS::AtLeastOnce,
                    _ => QoS::ExactlyOnce,
                };
                // Now and then one that is written in many pieces.
                let large = bulky || !exact && chance.percent(3);
                (qos, if large { 400_000 } else { 20 })
            })
            .collect();
        Self {
            exact,
            bulky,
            protocol: if chance.percent(30) {
                Protocol::V311
            } else {
                Protocol::V5
            },
            window: if bulky {
                30
            } else {
                u16::try_from(chance.between(1, 30)).unwrap()
            },
            messages,
            give_up: chance
                .percent(40)
                .then(|| Attempt::try_from(chance.below(count)).unwrap()),
            goodbye: chance.percent(60),
            mischief: chance.between(0, if bulky { 3 } else { 6 }),
        }
    }

    fn config(&self, port: u16) -> SessionConfig {
        let ms = Duration::from_millis;
        SessionConfig {
            protocol: self.protocol,
            answer_timeout: ms(if self.bulky { 2_000 } else { 150 }),
            max_in_flight: NonZeroU16::new(self.window).unwrap(),
            ..session(port, "w")
        }
    }
}

/// A session of little patience.
pub(crate) fn session(port: u16, client_id: &str) -> SessionConfig {
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port,
    };
    let ms = Duration::from_millis;
    SessionConfig {
        connect_timeout: ms(200),
        write_timeout: ms(100),
        backoff: Backoff::try_new(ms(1), ms(5)).unwrap(),
        ..SessionConfig::new(
            Name::parse("plant").unwrap(),
            Brokers::one(Endpoint::tcp(address)),
            client_id,
        )
    }
}

/// Plays the schedule of that seed.
pub(crate) async fn play(seed: u64) -> Tally {
    let mut chance = Chance::new(seed);
    let plan = Plan::draw(&mut chance);
    let mood = Mood::new(chance.branch(1), plan.exact, plan.mischief);
    let broker = broker::start(&mood).await;
    let proxy = if plan.exact {
        None
    } else {
        Some(Proxy::start(broker.port()).await)
    };
    let port = proxy.as_ref().map_or(broker.port(), Proxy::port);
    let writer = Arc::new(Writer::start(
        plan.config(port),
        WriterIdentity::ClientId,
        Arc::new(SystemClock::new()),
    ));
    let disturbing = async {
        if let Some(mut proxy) = proxy {
            disturb(&mut proxy, chance.branch(2)).await;
            mood.calm_down();
            // It lives as long as what goes through it.
            Some(proxy)
        } else {
            None
        }
    };
    let (answers, proxy) = tokio::join!(publish_all(&plan, &writer), disturbing);
    if plan.goodbye {
        timeout(DEADLINE, writer.close()).await.expect("it closes");
    }
    let stats = writer.stats();
    drop(writer);
    wait_until("every connection has ended", DEADLINE, || {
        broker.open_connections() == 0
    })
    .await;
    drop(proxy);

    assert_eq!(
        (stats.admitted, stats.answered + stats.unanswered),
        (answers.len() as u64, answers.len() as u64),
        "each admitted message is counted once"
    );
    Tally {
        connections: broker.connections(),
        ..reckon(&plan, &mood, &broker, &answers, stats.connection_losses)
    }
}

/// Breaks the line a few times, and leaves it whole.
async fn disturb(proxy: &mut Proxy, mut chance: Chance) {
    let ms = Duration::from_millis;
    for _ in 0..chance.between(0, 5) {
        sleep(ms(chance.between(1, 25))).await;
        match chance.below(6) {
            0 => proxy.cut(Cut::Finish),
            1 | 2 => proxy.cut(Cut::Reset),
            3 => {
                proxy.stall();
                sleep(ms(chance.between(1, 250))).await;
                if chance.percent(50) {
                    proxy.cut(Cut::Reset);
                }
                proxy.resume();
            }
            4 => {
                proxy.stall_answers();
                sleep(ms(chance.between(1, 200))).await;
                proxy.resume();
            }
            _ => {
                // As a broker that starts again: nobody gets in for a while.
                proxy.refuse().await;
                proxy.cut(Cut::Reset);
                sleep(ms(chance.between(1, 40))).await;
                proxy.accept().await;
            }
        }
    }
}

/// Publishes each message until it is answered, or up to where the plan gives up. What came of
/// each attempt, by its number.
async fn publish_all(plan: &Plan, writer: &Arc<Writer>) -> HashMap<Attempt, (QoS, Answer)> {
    let mut open: VecDeque<(QoS, usize)> = plan.messages.iter().copied().collect();
    let mut answers = HashMap::new();
    let mut running: JoinSet<(Attempt, (QoS, usize), Answer)> = JoinSet::new();
    let mut attempts: Attempt = 0;
    let work = async {
        loop {
            let given_up = plan.give_up.is_some_and(|at| attempts >= at);
            while let Some(ended) = running.try_join_next() {
                settle(ended.unwrap(), &mut answers, &mut open);
            }
            match open.front().copied() {
                Some(message) if !given_up => {
                    match writer.publish(encode(attempts, message)).await {
                        Ok(admitted) => {
                            open.pop_front();
                            let attempt = attempts;
                            attempts += 1;
                            running.spawn(async move { (attempt, message, admitted.await) });
                        }
                        Err(NotAdmitted::LinkDown) => sleep(Duration::from_millis(1)).await,
                        Err(NotAdmitted::Refused(why)) => panic!("refused: {why}"),
                    }
                }
                _ if given_up => break,
                _ => match running.join_next().await {
                    Some(ended) => settle(ended.unwrap(), &mut answers, &mut open),
                    None => break,
                },
            }
        }
        if plan.give_up.is_some() && plan.goodbye {
            writer.close().await;
        }
    };
    timeout(DEADLINE, work)
        .await
        .expect("every message is answered at last");
    // What was given up ends as well: by the goodbye, or by the deadline of its answer.
    let rest = async {
        while let Some(ended) = running.join_next().await {
            settle(ended.unwrap(), &mut answers, &mut open);
        }
    };
    timeout(DEADLINE, rest).await.expect("every future ends");
    answers
}

fn settle(
    (attempt, message, answer): (Attempt, (QoS, usize), Answer),
    answers: &mut HashMap<Attempt, (QoS, Answer)>,
    open: &mut VecDeque<(QoS, usize)>,
) {
    if matches!(answer, Answer::Unanswered(_)) {
        open.push_back(message);
    }
    let before = answers.insert(attempt, (message.0, answer));
    assert!(before.is_none(), "attempt {attempt} ended twice");
}

fn encode(attempt: Attempt, (qos, size): (QoS, usize)) -> Message {
    let mut payload = attempt.to_be_bytes().to_vec();
    payload.resize(size, 0x5A);
    let mut message = Message::new(Topic::parse("t").unwrap(), payload);
    message.qos = qos;
    message
}

/// Compares what the writer has told with what the broker knows.
fn reckon(
    plan: &Plan,
    mood: &Mood,
    broker: &ScriptedBroker,
    answers: &HashMap<Attempt, (QoS, Answer)>,
    connections_lost: u64,
) -> Tally {
    let mut tally = Tally::default();
    let mut seen = HashSet::new();
    let mut last: HashMap<usize, Attempt> = HashMap::new();
    for received in broker.publishes() {
        let attempt = broker::attempt_of(&received.publish);
        assert!(seen.insert(attempt), "attempt {attempt} was sent twice");
        let before = last.insert(received.connection, attempt);
        assert!(
            before < Some(attempt),
            "attempt {attempt} came after {before:?} on connection {}",
            received.connection
        );
    }
    for (attempt, (qos, answer)) in answers {
        let arrived = seen.contains(attempt);
        if let Answer::Answered { code, .. } = answer {
            if *qos == QoS::AtMostOnce {
                assert_eq!(*code, ReasonCode::SUCCESS, "attempt {attempt}");
                assert!(arrived || !plan.exact, "attempt {attempt} was not written");
            } else {
                let said = mood.said(*attempt).map(ReasonCode::new);
                assert_eq!(said, Some(*code), "the answer to attempt {attempt}");
            }
            let refused = code.is_refusal();
            tally.refused += usize::from(refused);
            tally.accepted += usize::from(!refused);
        } else if *answer == Answer::Unanswered(Unanswered::NeverSent) {
            assert!(
                !arrived,
                "attempt {attempt} was sent, and the writer denies it"
            );
            tally.never_sent += 1;
        } else {
            assert_eq!(*answer, Answer::Unanswered(Unanswered::MayHaveBeenSent));
            tally.may_have_been_sent += 1;
            tally.lost += usize::from(!arrived);
        }
    }
    // A client whose patience ran out may have ended in the middle of a message: by a stall, or
    // as this machine gave the broker no time.
    let by_the_client = connections_lost.saturating_sub(mood.leaves() as u64);
    let cut_short = mood.stalls() + usize::try_from(by_the_client).unwrap();
    assert!(
        !plan.exact || tally.lost <= cut_short,
        "{} were not sent, and the writer is not sure; {cut_short} may have been cut short",
        tally.lost,
    );
    tally
}
