//! Many redrives of the same dead letters at once, through cut connections and kills.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_testkit::{Chance, Cut, Mosquitto, Proxy, wait_for};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::sent::Sent;
use super::{Night, PATIENCE, size};
use crate::admin::Admin;

/// How many calls there are, half of them of one client and half of another.
const CALLS: usize = 200;
/// How many entries each client takes at a time beside that.
const FEW: usize = 20;
/// How often the bridge is killed.
const KILLS: usize = 2;
/// How often a line is cut before the last kill, and after it.
const CUTS: usize = 4;
/// Between two looks, and before a call that had no answer is made again.
const PACE: Duration = Duration::from_millis(1);

/// What a call was told in the end.
struct Answer {
    /// How many kills there had been before.
    kills: usize,
    asked: usize,
    status: u16,
    body: Value,
    /// What had come to the destination when the answer was there.
    sent: Sent,
}

/// One of the clients, cheap to clone.
#[derive(Clone)]
struct Client {
    admin: Admin,
    /// Calls wait for what becomes of the messages.
    waits: bool,
    destination: Arc<Mosquitto>,
    kills: Arc<AtomicUsize>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Client {
    /// Redrives `ids`, and keeps what is answered.
    async fn redrive(&self, ids: &[String]) {
        let body = json!({ "ids": ids }).to_string();
        let query = if self.waits { "?wait=20" } else { "" };
        let path = format!("/dead-letters/redrive{query}");
        let (status, body) = until_answered(self.admin, &path, &body).await;
        let answer = Answer {
            kills: self.kills.load(Ordering::SeqCst),
            asked: ids.len(),
            status,
            body,
            sent: Sent::read(&self.destination.log(), "bridge-cloud"),
        };
        self.answers.lock().unwrap().push(answer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i21_of_200_redrives_of_the_same_dead_letters_exactly_one_moves_each_whatever_breaks() {
    let count = size("BRIDGE_REDRIVE_ENTRIES", 400);
    let mut night = Night::with_dead_letters(count).await;
    let letters = night.dead_letters().await;
    assert_eq!(letters.len(), count);
    let lines = [
        Proxy::start(night.admin.port()).await,
        Proxy::start(night.admin.port()).await,
    ];
    let kills = Arc::new(AtomicUsize::new(0));
    let answers = Arc::new(Mutex::new(Vec::new()));
    let clients = [(0, false), (1, true)].map(|(line, waits): (usize, bool)| Client {
        admin: Admin(lines[line].port()),
        waits,
        destination: night.destination.clone(),
        kills: kills.clone(),
        answers: answers.clone(),
    });
    let ids: Arc<[String]> = letters.keys().cloned().collect();
    // Answers that come before a kill are to be true after it. Before the first one only so many
    // are asked for that it comes in the middle, however fast the machine is.
    let may_ask = Arc::new(Semaphore::new(count / FEW / 2));
    let mut small_calls = JoinSet::new();
    for client in clients.clone() {
        let (ids, may_ask) = (ids.clone(), may_ask.clone());
        small_calls.spawn(async move {
            for few in ids.chunks(FEW) {
                may_ask.acquire().await.unwrap().forget();
                client.redrive(few).await;
            }
        });
    }
    let mut chance = Chance::new(20);
    wait_for("an answer", PATIENCE, async || {
        (!answers.lock().unwrap().is_empty()).then_some(())
    })
    .await;
    let left = night.kill().await;
    kills.fetch_add(1, Ordering::SeqCst);
    assert!(0 < left && left < count as u64, "{left} of {count}");
    night.relaunch().await;

    let before = night.journal_bytes();
    let mut calls = JoinSet::new();
    for call in 0..CALLS {
        let (client, ids) = (clients[call % 2].clone(), ids.clone());
        calls.spawn(async move { client.redrive(&ids).await });
    }
    may_ask.add_permits(2 * count);
    let all_lines = [&lines[0], &lines[1], &night.line];
    // Moves are in the journal first: to ask a bridge that is so busy would take too long.
    cut_at_random(&all_lines, &mut chance, || night.journal_bytes() > before).await;
    let left = night.kill().await;
    kills.fetch_add(1, Ordering::SeqCst);
    night.relaunch().await;
    println!("{left} were left after the last kill");
    // From now on every call is answered.
    cut_at_random(&[&night.line], &mut chance, || {
        while let Some(ended) = calls.try_join_next() {
            ended.unwrap();
        }
        calls.is_empty()
    })
    .await;
    while let Some(ended) = small_calls.join_next().await {
        ended.unwrap();
    }
    night.all_came(count).await;
    let metrics = night.bridge.metrics().await;
    let moved = metrics.whole("bridge_redrive_total", &[("outcome", "moved")]);
    assert_eq!(moved.unwrap_or(0), left, "moves since the last kill");
    let answers = answers.lock().unwrap();
    assert!(answers.len() >= CALLS);
    let told = are_true(&answers, &letters);
    assert!(told >= left, "{told} of {left} moves were told");
}

/// Makes a call until it is answered: a connection that breaks says nothing of what was done.
async fn until_answered(admin: Admin, path: &str, body: &str) -> (u16, Value) {
    let end = Instant::now() + 4 * PATIENCE;
    loop {
        // A call that is given up may have moved some, and nobody is told of those.
        let answer = admin.try_ask_within(4 * PATIENCE, "POST", path, body).await;
        match answer {
            Ok(answer) if [200, 207].contains(&answer.status) => {
                return (answer.status, serde_json::from_str(&answer.body).unwrap());
            }
            // Too many are under way.
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.body),
            Err(error) => assert!(Instant::now() < end, "no answer: {error}"),
        }
        sleep(PACE).await;
    }
}

/// Cuts those lines now and then until it is `enough`.
async fn cut_at_random(lines: &[&Proxy], chance: &mut Chance, mut enough: impl FnMut() -> bool) {
    let end = Instant::now() + 4 * PATIENCE;
    let mut next = Instant::now() + Duration::from_millis(chance.below(400));
    let mut made = 0;
    while !enough() {
        assert!(Instant::now() < end, "waited in vain");
        if made < CUTS && Instant::now() >= next {
            let how = [Cut::Reset, Cut::Finish][usize::from(chance.below(2) == 1)];
            let line = usize::try_from(chance.below(lines.len() as u64)).unwrap();
            lines[line].cut(how);
            made += 1;
            next += Duration::from_millis(20 + chance.below(800));
        }
        sleep(PACE).await;
    }
}

/// Sees that the answers agree with each other and with what came; says of how many moves they tell.
fn are_true(answers: &[Answer], letters: &BTreeMap<String, String>) -> u64 {
    let mut moved: BTreeMap<&str, u32> = BTreeMap::new();
    let mut now: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for answer in answers {
        let results = answer.body["results"].as_array().unwrap();
        assert_eq!(results.len(), answer.asked);
        let mut of_this = 0;
        let sent = answer.sent.topics();
        for result in results {
            let text = |field: &str| result[field].as_str();
            let id = text("id").unwrap();
            let topic = letters[id].as_str();
            match text("outcome").unwrap() {
                "moved" => {
                    of_this += 1;
                    *moved.entry(id).or_default() += 1;
                    match text("verdict") {
                        Some("delivered") => assert!(sent.contains(topic), "{result}"),
                        None | Some("queued") => {}
                        Some(other) => panic!("{other}: {result}"),
                    }
                }
                "already_redriven" => {}
                // What the killed process did is not remembered.
                "not_found" => {
                    assert!(answer.kills > 0, "{result}");
                    continue;
                }
                other => panic!("{other}: {result}"),
            }
            now.entry(id)
                .or_default()
                .insert(text("message_id").unwrap());
        }
        assert_eq!(answer.body["moved"], of_this);
        let all = of_this == answer.asked;
        assert_eq!(answer.status, if all { 200 } else { 207 });
    }
    for (id, times) in &moved {
        assert_eq!(*times, 1, "{id} was moved by more than one");
    }
    for (id, told) in &now {
        assert_eq!(told.len(), 1, "{id} became {told:?}");
    }
    let before = answers.iter().filter(|answer| answer.kills < KILLS).count();
    let told = moved.len();
    println!("{told} moves were told, {before} answers came before the last kill");
    told as u64
}
