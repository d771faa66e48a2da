//! What the last seconds were like: rates, and the shape of the curves.

use std::collections::VecDeque;
use std::time::Duration;

use super::story::Snapshot;

/// One bar of a sparkline stands for this long.
const BAR: Duration = Duration::from_millis(500);
/// How many bars are kept.
const BARS: usize = 60;
/// What the sensors publish in the time of a bar.
const USUAL: u64 = 100;
/// Over how long a rate is taken.
const WINDOW: Duration = Duration::from_secs(1);

/// The recent past.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trend {
    recent: VecDeque<Point>,
    bars: VecDeque<Bar>,
    bar_began: Option<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    at: Duration,
    published: u64,
    delivered: u64,
}

#[derive(Debug, Clone, Copy)]
struct Bar {
    published: u64,
    delivered: u64,
    queued: u64,
}

impl Trend {
    /// Takes note of how things are.
    pub(crate) fn note(&mut self, now: &Snapshot) {
        let point = Point {
            at: now.at,
            published: now.published.all(),
            delivered: now.ledger.delivered,
        };
        self.recent.push_back(point);
        while self
            .recent
            .get(1)
            .is_some_and(|next| point.at.saturating_sub(next.at) >= WINDOW)
        {
            self.recent.pop_front();
        }
        let began = *self.bar_began.get_or_insert(point);
        if point.at.saturating_sub(began.at) >= BAR {
            self.bars.push_back(Bar {
                published: point.published.saturating_sub(began.published),
                delivered: point.delivered.saturating_sub(began.delivered),
                queued: now.ledger.queued,
            });
            if self.bars.len() > BARS {
                self.bars.pop_front();
            }
            self.bar_began = Some(point);
        }
    }

    /// Messages per second that are published, and that are delivered.
    pub(crate) fn rates(&self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return (0, 0);
        };
        let millis = u64::try_from(last.at.saturating_sub(first.at).as_millis()).unwrap_or(0);
        let rate = |before: u64, after: u64| {
            let messages = after.saturating_sub(before) * 1000;
            (messages + millis / 2).checked_div(millis).unwrap_or(0)
        };
        (
            rate(first.published, last.published),
            rate(first.delivered, last.delivered),
        )
    }

    /// The bars of what was published, the latest last; at most `width`.
    pub(crate) fn published(&self, width: usize) -> impl Iterator<Item = u64> + Clone {
        self.latest(width).map(|bar| bar.published)
    }

    /// The bars of what was delivered.
    pub(crate) fn delivered(&self, width: usize) -> impl Iterator<Item = u64> + Clone {
        self.latest(width).map(|bar| bar.delivered)
    }

    /// The bars of what waited.
    pub(crate) fn queued(&self, width: usize) -> impl Iterator<Item = u64> + Clone {
        self.latest(width).map(|bar| bar.queued)
    }

    /// The bar that is full in the curves of rates: the highest, or twice what is usual.
    pub(crate) fn full_rate(&self) -> u64 {
        let highest = self.bars.iter().map(|bar| bar.published.max(bar.delivered));
        highest.max().unwrap_or(0).max(2 * USUAL)
    }

    /// The bar that is full in the curve of the queue: the highest.
    pub(crate) fn full_queue(&self) -> u64 {
        self.bars.iter().map(|bar| bar.queued).max().unwrap_or(0)
    }

    fn latest(&self, width: usize) -> impl Iterator<Item = &Bar> + Clone {
        self.bars.iter().skip(self.bars.len().saturating_sub(width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 messages a second are published, and delivered with 300 a second from second 2 on.
    fn after(tenths: u64) -> Trend {
        let mut trend = Trend::default();
        for tenth in 0..=tenths {
            let mut now = Snapshot {
                at: Duration::from_millis(100 * tenth),
                ..Snapshot::default()
            };
            now.published.readings = 20 * tenth;
            now.ledger.delivered = 30 * tenth.saturating_sub(20);
            now.ledger.queued = now.published.readings.saturating_sub(now.ledger.delivered);
            trend.note(&now);
        }
        trend
    }

    #[test]
    fn rates_are_those_of_the_last_second() {
        assert_eq!(after(0).rates(), (0, 0));
        assert_eq!(after(10).rates(), (200, 0));
        assert_eq!(after(25).rates(), (200, 150));
        assert_eq!(after(40).rates(), (200, 300));
    }

    #[test]
    fn a_bar_is_half_a_second() {
        let trend = after(30);
        assert_eq!(trend.published(60).collect::<Vec<_>>(), [100; 6]);
        assert_eq!(
            trend.delivered(60).collect::<Vec<_>>(),
            [0, 0, 0, 0, 150, 150]
        );
        assert_eq!(trend.queued(3).collect::<Vec<_>>(), [400, 350, 300]);
    }

    #[test]
    fn the_past_is_bounded() {
        assert_eq!(after(1000).queued(1000).count(), BARS);
    }
}
