//! Durations and sizes with their unit: `30s`, `1h30m`, `64 KiB`.

use std::fmt::Write as _;
use std::time::Duration;

/// Why a text is not a duration or a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAQuantity {
    /// A number without a unit.
    Bare,
    /// Not of this form.
    Form,
    /// More than can be counted.
    TooMuch,
}

const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// `30s`, `250ms`, `1h30m`: units from large to small, each at most once.
pub(crate) fn duration(text: &str) -> Result<Duration, NotAQuantity> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut last_unit = u64::MAX;
    if bare(text) {
        return Err(NotAQuantity::Bare);
    }
    if text.is_empty() {
        return Err(NotAQuantity::Form);
    }
    while !rest.is_empty() {
        let (number, after) = number(rest)?;
        let length = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, after) = after.split_at_checked(length).ok_or(NotAQuantity::Form)?;
        let unit = unit(&DURATION_UNITS, name)?;
        if unit >= last_unit {
            return Err(NotAQuantity::Form);
        }
        last_unit = unit;
        total = number
            .checked_mul(unit)
            .and_then(|millis| total.checked_add(millis))
            .ok_or(NotAQuantity::TooMuch)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// `64 KiB`, `8MiB`, `500 B`.
pub(crate) fn size(text: &str) -> Result<u64, NotAQuantity> {
    if bare(text) {
        return Err(NotAQuantity::Bare);
    }
    let (number, after) = number(text)?;
    let name = after.strip_prefix(' ').unwrap_or(after);
    number
        .checked_mul(unit(&SIZE_UNITS, name)?)
        .ok_or(NotAQuantity::TooMuch)
}

fn bare(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn number(text: &str) -> Result<(u64, &str), NotAQuantity> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = text.split_at_checked(length).ok_or(NotAQuantity::Form)?;
    if digits.is_empty() {
        return Err(NotAQuantity::Form);
    }
    let number = digits.parse().map_err(|_| NotAQuantity::TooMuch)?;
    Ok((number, after))
}

fn unit(units: &[(&str, u64)], name: &str) -> Result<u64, NotAQuantity> {
    let found = units.iter().find(|(unit, _)| *unit == name);
    found.map(|(_, factor)| *factor).ok_or(NotAQuantity::Form)
}

/// As [`duration`] reads it, shortest form.
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut out = String::new();
    for (name, unit) in DURATION_UNITS.iter().rev() {
        if millis / unit > 0 {
            // Writing into a String cannot fail.
            let _ = write!(out, "{}{name}", millis / unit);
            millis %= unit;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// As [`size`] reads it, in the largest unit that divides it.
pub(crate) fn show_size(bytes: u64) -> String {
    let binary = SIZE_UNITS.iter().take(4).rev();
    for (name, unit) in binary {
        if bytes >= *unit && bytes.is_multiple_of(*unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        for text in [
            "", "s", "1.5s", "-1s", "30 s", "1m1h", "1s1s", "1w", "30S", "1h30", "é",
        ] {
            assert_eq!(duration(text), Err(NotAQuantity::Form), "{text}");
        }
        assert_eq!(duration("30"), Err(NotAQuantity::Bare));
        assert_eq!(
            duration("99999999999999999999s"),
            Err(NotAQuantity::TooMuch)
        );
        assert_eq!(
            duration("18446744073709551615d"),
            Err(NotAQuantity::TooMuch)
        );
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("64 KiB", 65_536),
            ("8 MiB", 8 << 20),
            ("1 GiB", 1 << 30),
            ("500 B", 500),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("10 MB"), Ok(10_000_000));
        for text in [
            "", "MiB", "1.5 MiB", "8 mib", "8  MiB", "8 M", "-1 B", "8 MiB ",
        ] {
            assert_eq!(size(text), Err(NotAQuantity::Form), "{text}");
        }
        assert_eq!(size("1048576"), Err(NotAQuantity::Bare));
        assert_eq!(size("18446744073709551615 KiB"), Err(NotAQuantity::TooMuch));
    }
}
