//! What is known of every message, and what may have doubled one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use bridge_core::{BindingKey, ReadLimit, Store as _, View};
use bridge_queue::{Journal, JournalOptions};
use bridge_testkit::{Metrics, Tally, number_of};

use crate::feeding::expires;

/// How many messages Mosquitto keeps open to one client, unless told otherwise.
const SOURCE_WINDOW: u64 = 20;
/// How many settles the journal keeps in memory, at most, before it writes them.
const UNWRITTEN_SETTLES: u64 = 4_096;
const VIEWS: [View; 3] = [View::Queue, View::Deferred, View::DeadLetters];

/// What may have made messages come twice, and what was done so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    pub(crate) events: BTreeMap<&'static str, u32>,
    explained: u64,
    unanswered: u64,
    redelivered: u64,
    expired: u64,
    dropped: BTreeMap<String, u64>,
}

impl Books {
    pub(crate) fn event(&mut self, what: &'static str) {
        *self.events.entry(what).or_default() += 1;
    }

    /// Adds the counters of a process that is about to end.
    pub(crate) fn close_process(&mut self, metrics: &Metrics) {
        let count = |name, labels: &[(&str, &str)]| metrics.whole(name, labels).unwrap_or(0);
        let unanswered = count("bridge_publish_unanswered_total", &[("binding", "out")]);
        let redelivered = count("bridge_source_redelivered_total", &[]);
        self.unanswered += unanswered;
        self.redelivered += redelivered;
        self.explained += unanswered + redelivered;
        let expired = [("binding", "out"), ("policy", "expired")];
        self.expired += count("bridge_dropped_total", &expired);
        for sample in metrics.samples() {
            let Some((_, policy)) = sample.labels.iter().find(|(name, _)| name == "policy") else {
                continue;
            };
            let Some((_, binding)) = sample.labels.iter().find(|(name, _)| name == "binding")
            else {
                continue;
            };
            if sample.name == "bridge_dropped_total" {
                let labels = [("binding", binding.as_str()), ("policy", policy.as_str())];
                let sum = self
                    .dropped
                    .entry(format!("{binding} {policy}"))
                    .or_default();
                *sum += count("bridge_dropped_total", &labels);
            }
        }
    }

    /// A kill: what the source had open comes again, and of what waits in the journal some may have
    /// been delivered without a record of it.
    pub(crate) fn kill(&mut self, waiting: u64) {
        self.explained += 3 * SOURCE_WINDOW + waiting.min(UNWRITTEN_SETTLES);
    }
}

/// Where each message is in the end.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) books: Books,
    pub(crate) elapsed: Duration,
    pub(crate) fed: u64,
    pub(crate) tally: Tally,
    /// The numbers in each view of the binding `out`.
    pub(crate) waiting: [Vec<u64>; 3],
    /// What the offline commands say of these views.
    pub(crate) told: [u64; 3],
}

/// The numbers of what waits at `binding`, by view.
pub(crate) async fn waiting(folder: &Path, binding: &str) -> [Vec<u64>; 3] {
    let (journal, report) = Journal::open(folder, JournalOptions::default()).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    let key: BindingKey = binding.parse().unwrap();
    let limit = ReadLimit {
        entries: usize::MAX,
        bytes: u64::MAX,
    };
    let mut numbers: [Vec<u64>; 3] = Default::default();
    for (view, numbers) in VIEWS.into_iter().zip(&mut numbers) {
        for entry in journal.read(&key, view, None, limit).await.unwrap() {
            let payload = entry.message.unwrap().message.payload.clone();
            numbers.push(number_of(&payload).unwrap());
        }
    }
    journal.close();
    numbers
}

impl Outcome {
    /// How often each number is in a place of the binding; which ones neither arrived nor are in
    /// one: those that may have expired, and those that are lost.
    fn places(&self) -> (BTreeMap<u64, u32>, Vec<u64>, Vec<u64>) {
        let mut places: BTreeMap<u64, u32> = BTreeMap::new();
        for number in self.waiting.iter().flatten() {
            *places.entry(*number).or_default() += 1;
        }
        let missing = self.tally.missing(self.fed);
        let nowhere = missing.into_iter().filter(|n| !places.contains_key(n));
        let (expired, lost) = nowhere.partition(|number| expires(*number));
        (places, expired, lost)
    }

    /// What is wrong; nothing, when all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let (places, expired, lost) = self.places();
        let mut faults = Vec::new();
        if !lost.is_empty() {
            faults.push(format!("{} messages are nowhere: {lost:?}", lost.len()));
        }
        // More than are counted may be gone: the source drops what expires before it is fetched.
        let counted = self.books.expired;
        if counted > expired.len() as u64 + self.books.explained {
            let gone = expired.len();
            faults.push(format!("{counted} are counted as expired, {gone} are gone"));
        }
        let doubled = self.doubled(&places);
        if doubled > self.books.explained {
            let explained = self.books.explained;
            faults.push(format!("{doubled} came twice, {explained} are explained"));
        }
        let strangers = self.tally.distinct() + self.tally.missing(self.fed).len() as u64;
        if strangers != self.fed || self.tally.damaged() > 0 {
            faults.push("messages came that were never sent".to_owned());
        }
        let kept = [0, 1, 2].map(|view| self.waiting.get(view).map_or(0, Vec::len) as u64);
        if kept != self.told {
            faults.push(format!("told {:?} offline, kept {kept:?}", self.told));
        }
        faults
    }

    /// How many came twice, are in two places, or came and are in a place.
    fn doubled(&self, places: &BTreeMap<u64, u32>) -> u64 {
        let missing = self.tally.missing(self.fed);
        let in_two = places.iter().map(|(number, times)| {
            let came = missing.binary_search(number).is_err();
            u64::from(*times) + u64::from(came) - 1
        });
        self.tally.duplicates() + in_two.sum::<u64>()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (places, expired, lost) = self.places();
        let [queued, deferred, dead] = &self.waiting;
        writeln!(
            f,
            "{:.0} s: {:?}",
            self.elapsed.as_secs_f64(),
            self.books.events
        )?;
        writeln!(
            f,
            "published {} = arrived {} + waiting or dead {} + expired {} (some at the source) + \
             lost {}",
            self.fed,
            self.tally.distinct(),
            self.fed - self.tally.distinct() - (expired.len() + lost.len()) as u64,
            expired.len(),
            lost.len(),
        )?;
        writeln!(
            f,
            "queued {}, deferred {}, dead letters {}; twice {}, explained up to {}: unanswered {}, \
             redelivered by the source {}, the rest by kills",
            queued.len(),
            deferred.len(),
            dead.len(),
            self.doubled(&places),
            self.books.explained,
            self.books.unanswered,
            self.books.redelivered,
        )?;
        write!(f, "dropped: {:?}", self.books.dropped)
    }
}

#[cfg(test)]
mod tests {
    use bridge_testkit::numbered;

    use super::*;

    /// Six messages, of which 0 to 2 arrived; 5 expires.
    fn outcome(dead: &[u64]) -> Outcome {
        let mut tally = Tally::default();
        for number in 0..3 {
            tally.record(&numbered("soak", number, 64));
        }
        let books = Books {
            expired: 1,
            ..Books::default()
        };
        Outcome {
            books,
            elapsed: Duration::ZERO,
            fed: 6,
            tally,
            told: [0, 0, dead.len() as u64],
            waiting: [vec![], vec![], dead.to_vec()],
        }
    }

    #[test]
    fn a_message_that_is_nowhere_or_in_two_places_is_a_fault() {
        assert_eq!(outcome(&[3, 4]).faults(), [""; 0]);
        assert_eq!(outcome(&[3]).faults(), ["1 messages are nowhere: [4]"]);
        for doubled in [&[2, 3, 4][..], &[3, 3, 4]] {
            let faults = outcome(doubled).faults();
            assert_eq!(faults, ["1 came twice, 0 are explained"]);
        }
        let mut told = outcome(&[3, 4]);
        told.told = [0, 0, 1];
        assert_eq!(told.faults().len(), 1);
        let mut miscounted = outcome(&[3, 4]);
        miscounted.books.expired = 2;
        let faults = miscounted.faults();
        assert_eq!(faults, ["2 are counted as expired, 1 are gone"]);
    }
}
