//! Medians, and how far the values lie apart.

use serde_json::{Value, json};

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(*values.get(middle.checked_sub(1)?)?, upper)
        } else {
            upper
        };
        Some(Self {
            median,
            min: *values.first()?,
            max: *values.last()?,
        })
    }

    /// `median (min–max)`.
    pub(super) fn shown(self, precision: usize) -> String {
        let [median, min, max] =
            [self.median, self.min, self.max].map(|value| grouped(value, precision));
        format!("{median} ({min}–{max})")
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// A number of that many decimals, its thousands separated.
pub(super) fn grouped(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$}");
    let (whole, decimals) = match text.find('.') {
        Some(point) => text.split_at(point),
        None => (text.as_str(), ""),
    };
    let mut shown = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let follow = whole.len() - index;
        if index > 0 && follow.is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + decimals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        for (values, expected) in [
            (vec![3.0, 1.0, 2.0], Some((2.0, 1.0, 3.0))),
            (vec![4.0, 1.0, 2.0, 3.0], Some((2.5, 1.0, 4.0))),
            (vec![7.0], Some((7.0, 7.0, 7.0))),
            (vec![], None),
        ] {
            let spread = Spread::of(values).map(|s| (s.median, s.min, s.max));
            assert_eq!(spread, expected);
        }
    }

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(grouped(1_234_567.4, 0), "1,234,567");
        assert_eq!(grouped(999.96, 1), "1,000.0");
        assert_eq!(grouped(0.5, 2), "0.50");
        let spread = Spread::of([1_000.0, 2_000.0, 3_000.0]).unwrap();
        assert_eq!(spread.shown(0), "2,000 (1,000–3,000)");
    }
}
