//! How fast it goes: counters looked at every other second, and their slope over the last ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bridge_core::BindingKey;
use prometheus::proto::MetricFamily;

/// So many looks are kept; the rate is over their span.
const LOOKS: usize = 6;

/// What a binding has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Messages that it was given.
    pub(crate) received: u64,
    /// Messages that its destination accepted.
    pub(crate) delivered: u64,
    /// Those of them that came from the queue.
    pub(crate) replayed: u64,
    /// Messages that became dead letters.
    pub(crate) dead_lettered: u64,
    /// Messages that a policy dropped.
    pub(crate) dropped: u64,
}

/// The same per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PerSecond {
    pub(crate) received: f64,
    pub(crate) delivered: f64,
    pub(crate) replayed: f64,
    pub(crate) dead_lettered: f64,
    pub(crate) dropped: f64,
}

type Sample = BTreeMap<BindingKey, Counts>;

/// The last looks.
#[derive(Debug, Default)]
pub(crate) struct Rates(VecDeque<(Duration, Sample)>);

impl Rates {
    /// Takes a look at `now`.
    pub(crate) fn look(&mut self, now: Duration, metrics: &[MetricFamily]) {
        if self.0.len() >= LOOKS {
            self.0.pop_front();
        }
        self.0.push_back((now, counts(metrics)));
    }

    /// How fast `binding` goes; `None` before there were two looks.
    pub(crate) fn of(&self, binding: &BindingKey) -> Option<PerSecond> {
        let ((from, first), (to, last)) = (self.0.front()?, self.0.back()?);
        let seconds = to.saturating_sub(*from).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        // One that was not there at the first look has counted from zero since.
        let first = first.get(binding).copied().unwrap_or_default();
        let last = last.get(binding)?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a difference within seconds is far below 2^52"
        )]
        let slope = |pick: fn(&Counts) -> u64| {
            let difference = pick(last).saturating_sub(pick(&first));
            (difference as f64 / seconds * 10.0).round() / 10.0
        };
        Some(PerSecond {
            received: slope(|counts| counts.received),
            delivered: slope(|counts| counts.delivered),
            replayed: slope(|counts| counts.replayed),
            dead_lettered: slope(|counts| counts.dead_lettered),
            dropped: slope(|counts| counts.dropped),
        })
    }

    /// What `binding` had done at the latest look.
    pub(crate) fn totals(&self, binding: &BindingKey) -> Option<Counts> {
        self.0.back()?.1.get(binding).copied()
    }
}

fn counts(metrics: &[MetricFamily]) -> Sample {
    let mut sample = Sample::new();
    for family in metrics {
        let pick: fn(&mut Counts) -> &mut u64 = match family.name() {
            "bridge_received_total" => |counts| &mut counts.received,
            "bridge_delivered_total" => |counts| &mut counts.delivered,
            "bridge_queue_replayed_total" => |counts| &mut counts.replayed,
            "bridge_queue_dead_lettered_total" => |counts| &mut counts.dead_lettered,
            "bridge_dropped_total" => |counts| &mut counts.dropped,
            _ => continue,
        };
        for metric in family.get_metric() {
            let label = |name: &str| {
                let mut labels = metric.get_label().iter();
                labels
                    .find(|label| label.name() == name)?
                    .value()
                    .parse()
                    .ok()
            };
            let (Some(route), Some(binding)) = (label("route"), label("binding")) else {
                continue;
            };
            let counts = sample.entry(BindingKey::new(route, binding)).or_default();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an integer counter, which only goes up"
            )]
            let value = metric.get_counter().get_value() as u64;
            *pick(counts) += value;
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts, Registry};

    use super::*;

    #[test]
    fn a_rate_is_the_slope_over_the_last_looks() {
        let registry = Registry::new();
        let counter = |name: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, "x"), labels).unwrap();
            registry.register(Box::new(counter.clone())).unwrap();
            counter
        };
        let received = counter("bridge_received_total", &["route", "binding"]);
        let dropped = counter("bridge_dropped_total", &["route", "binding", "policy"]);
        let key: BindingKey = "all/out".parse().unwrap();
        let mut rates = Rates::default();
        assert_eq!(rates.of(&key), None);
        for second in 0..20 {
            received.with_label_values(&["all", "out"]).inc_by(3);
            dropped.with_label_values(&["all", "out", "a"]).inc_by(1);
            dropped.with_label_values(&["all", "out", "b"]).inc_by(1);
            rates.look(Duration::from_secs(second), &registry.gather());
        }
        let rate = rates.of(&key).unwrap();
        assert_eq!(
            (rate.received, rate.dropped, rate.delivered),
            (3.0, 2.0, 0.0)
        );
        assert_eq!(rates.totals(&key).unwrap().received, 60);
        for second in 20..30 {
            rates.look(Duration::from_secs(second), &registry.gather());
        }
        assert_eq!(rates.of(&key), Some(PerSecond::default()));
        assert_eq!(rates.of(&"all/other".parse().unwrap()), None);
    }
}
