//! Messages that carry their number, and the tally of those that came.

use bytes::Bytes;

use crate::codec::Publish;

/// Digits of the number at the front of a payload.
const DIGITS: usize = 12;
/// Numbers go round these topics, so that order is seen across topics.
const TOPICS: u64 = 8;

/// The QoS 1 message of that number, of `size` bytes (at least 12), on one of a few topics below
/// `topic`.
pub fn numbered(topic: &str, number: u64, size: usize) -> Publish {
    Publish::new(
        format!("{topic}/{}", number % TOPICS),
        payload(number, size),
    )
}

/// The number, and filler that only this number has.
fn payload(number: u64, size: usize) -> Bytes {
    let mut payload = format!("{number:0DIGITS$}").into_bytes();
    let filler = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    payload.extend(filler.iter().cycle().take(size.saturating_sub(DIGITS)));
    payload.into()
}

/// What came of numbered messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often each number came, what our own broker sent us again left out.
    times: Vec<u32>,
    distinct: u64,
    duplicates: u64,
    redelivered: u64,
    out_of_order: u64,
    damaged: u64,
}

impl Tally {
    /// Counts one arrival.
    pub fn record(&mut self, message: &Publish) {
        let Some(number) = number_of(&message.payload) else {
            self.damaged += 1;
            return;
        };
        let index = usize::try_from(number).expect("a number that was given out");
        let last = self.times.len();
        if index >= last {
            self.times.resize(index + 1, 0);
        }
        if self.times[index] == 0 {
            self.distinct += 1;
            self.out_of_order += u64::from(index < last);
        } else if message.dup {
            // The flag is between the broker and us: it sends again what we have not answered.
            self.redelivered += 1;
            return;
        } else {
            self.duplicates += 1;
        }
        self.times[index] += 1;
    }

    /// How many different numbers have come.
    pub const fn distinct(&self) -> u64 {
        self.distinct
    }

    /// How many came although they had come before.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// How many the broker that we read from sent again on its own account.
    pub const fn redelivered(&self) -> u64 {
        self.redelivered
    }

    /// How many came for the first time after a higher number.
    pub const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// How many had a payload that was never sent.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// The numbers below `count` that have not come.
    pub fn missing(&self, count: u64) -> Vec<u64> {
        let came = |number: &u64| {
            let index = usize::try_from(*number).unwrap_or(usize::MAX);
            self.times.get(index).is_some_and(|times| *times > 0)
        };
        (0..count).filter(|number| !came(number)).collect()
    }
}

/// The number of a payload, when the payload is what is sent with that number.
pub fn number_of(bytes: &Bytes) -> Option<u64> {
    let digits = str::from_utf8(bytes.get(..DIGITS)?).ok()?;
    let number = digits.parse().ok()?;
    (payload(number, bytes.len()) == bytes).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: &[u64]) -> Tally {
        let mut tally = Tally::default();
        for number in numbers {
            tally.record(&numbered("t", *number, 32));
        }
        tally
    }

    #[test]
    fn what_came_once_and_in_order_leaves_nothing_to_say() {
        let tally = tally(&[0, 1, 2]);
        assert_eq!((tally.distinct(), tally.duplicates()), (3, 0));
        assert_eq!((tally.out_of_order(), tally.damaged()), (0, 0));
        assert_eq!(tally.missing(3), Vec::<u64>::new());
        assert_eq!(tally.missing(5), [3, 4]);
    }

    #[test]
    fn a_window_that_comes_again_is_duplicates_and_no_disorder() {
        let tally = tally(&[0, 1, 2, 1, 2, 3]);
        assert_eq!((tally.distinct(), tally.duplicates()), (4, 2));
        assert_eq!(tally.out_of_order(), 0);
    }

    #[test]
    fn a_first_arrival_after_a_higher_number_is_disorder() {
        assert_eq!(tally(&[0, 2, 1]).out_of_order(), 1);
    }

    #[test]
    fn what_our_broker_sends_again_is_told_from_what_came_twice() {
        let mut tally = tally(&[0]);
        let mut again = numbered("t", 0, 32);
        again.dup = true;
        tally.record(&again);
        assert_eq!((tally.duplicates(), tally.redelivered()), (0, 1));
    }

    #[test]
    fn a_changed_payload_is_damage() {
        let mut tally = Tally::default();
        let mut payload = payload(7, 64).to_vec();
        payload[40] ^= 1;
        tally.record(&Publish::new("t/7", payload));
        tally.record(&Publish::new("t/7", "short"));
        assert_eq!((tally.damaged(), tally.distinct()), (2, 0));
    }
}
