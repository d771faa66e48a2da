//! When a certificate ends: the one field that is read of it (RFC 5280 §4.1.2.5).

use bridge_core::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version of a certificate, which the first one has not.
const VERSION: u8 = 0xa0;

/// The instant after which that certificate (DER) is worth nothing; `None` when it is none.
pub(super) fn of(certificate: &[u8]) -> Option<Timestamp> {
    let mut certificate = Der(certificate).enter(SEQUENCE)?;
    let mut signed = certificate.enter(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.enter(VERSION)?;
    }
    signed.enter(INTEGER)?; // the serial number
    signed.enter(SEQUENCE)?; // the algorithm of the signature
    signed.enter(SEQUENCE)?; // the issuer
    let mut validity = signed.enter(SEQUENCE)?;
    validity.next()?; // not before
    let (kind, not_after) = validity.next()?;
    instant(kind, not_after)
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that a certificate may have.
fn instant(kind: u8, text: &[u8]) -> Option<Timestamp> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            // RFC 5280 §4.1.2.5.1.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let [month, day, hour, minute, second] = rest
        .chunks(2)
        .map(number)
        .collect::<Option<Vec<_>>>()?
        .try_into()
        .ok()?;
    let small = |value: i16| i8::try_from(value).ok();
    let day = Date::new(year, small(month)?, small(day)?).ok()?;
    let time = Time::new(small(hour)?, small(minute)?, small(second)?, 0).ok()?;
    let instant = day.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
    let millis = instant.timestamp().as_millisecond();
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

fn number(digits: &[u8]) -> Option<i16> {
    if digits.iter().all(u8::is_ascii_digit) {
        std::str::from_utf8(digits).ok()?.parse().ok()
    } else {
        None
    }
}

/// A run of values in DER (X.690).
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value, of that kind.
    fn enter(&mut self, kind: u8) -> Option<Self> {
        let (found, content) = self.next()?;
        (found == kind).then_some(Self(content))
    }

    /// The next value: its kind, and what it holds.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&kind, rest) = self.0.split_first()?;
        let (&length, mut rest) = rest.split_first()?;
        let length = if length < 0x80 {
            usize::from(length)
        } else {
            let (octets, after) = rest.split_at_checked(usize::from(length & 0x7f))?;
            rest = after;
            // More than four octets is more than any certificate has.
            let octets = (1..=4).contains(&octets.len()).then_some(octets)?;
            octets
                .iter()
                .fold(0, |length, &octet| length << 8 | usize::from(octet))
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((kind, content))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(kind: u8, text: &str) -> Option<String> {
        instant(kind, text.as_bytes()).map(|instant| instant.to_string())
    }

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(
            at(UTC_TIME, "491231235959Z").unwrap(),
            "2049-12-31T23:59:59.000Z"
        );
        assert_eq!(
            at(UTC_TIME, "700101000001Z").unwrap(),
            "1970-01-01T00:00:01.000Z"
        );
        assert_eq!(
            at(GENERALIZED_TIME, "20500101000000Z").unwrap(),
            "2050-01-01T00:00:00.000Z"
        );
        for wrong in [
            "",
            "Z",
            "4912312359Z",
            "491331235959Z",
            "49123123595+Z",
            "é1Z",
        ] {
            assert_eq!(at(UTC_TIME, wrong), None, "{wrong}");
        }
        assert_eq!(at(SEQUENCE, "491231235959Z"), None);
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_certificate_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(of(&bytes), None);
        }
    }
}
