//! Whether packets of a broker have the form that MQTT 5 §3 gives them.
//!
//! The client library passes over some that have not, and over an answer with them.

use super::property;
use super::wire;

/// Whether a whole packet, no PUBLISH, is well-formed; a type that no broker sends is not.
pub(super) fn is_well_formed(first: u8, body: &[u8]) -> bool {
    let (kind, flags) = (first >> 4, first & 0x0F);
    if flags != if kind == wire::PUBREL { 2 } else { 0 } {
        return false;
    }
    match (kind, body) {
        // So says a broker that knows only MQTT 3.1.1 that it does; and some omit what is empty.
        (wire::CONNACK, [_, 1..=5 | 0x80..])
        | (wire::PUBACK | wire::PUBREC | wire::PUBREL | wire::PUBCOMP, [_, _] | [_, _, _])
        | (wire::PINGRESP, [])
        | (wire::DISCONNECT, [] | [_]) => true,
        (wire::CONNACK, [0 | 1, 0 | 0x80.., properties @ ..])
        | (
            wire::PUBACK | wire::PUBREC | wire::PUBREL | wire::PUBCOMP,
            [_, _, _, properties @ ..],
        )
        | (wire::DISCONNECT, [_, properties @ ..]) => property::split(properties)
            .is_some_and(|(all, rest)| rest.is_empty() && property::are_well_formed(all)),
        (wire::SUBACK | wire::UNSUBACK, [_, _, properties @ ..]) => property::split(properties)
            .is_some_and(|(all, codes)| !codes.is_empty() && property::are_well_formed(all)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &[(u8, &[u8])] = &[
        (0x20, &[1, 0, 0]),
        (0x20, &[0, 0x87, 5, 0x1F, 0, 2, b'n', b'o']),
        (0x20, &[0, 1]),
        (0x40, &[0, 1]),
        (0x50, &[0, 1, 0x87]),
        (0x62, &[0, 1, 0x92, 0]),
        (0x70, &[0, 1, 0x92, 3, 0x1F, 0, 0]),
        (0x90, &[0, 1, 0, 2]),
        (0xB0, &[0, 1, 3, 0x1F, 0, 0, 0, 0x11]),
        (0xD0, &[]),
        (0xE0, &[]),
        (0xE0, &[0x8E]),
        (0xE0, &[0x8E, 0]),
    ];

    #[test]
    fn what_the_standard_allows_is_well_formed_and_its_flags_are_fixed() {
        for (first, body) in RIGHT {
            assert!(is_well_formed(*first, body), "{first:02x} {body:?}");
            for flags in (0..16).filter(|flags| *flags != first & 0x0F) {
                assert!(!is_well_formed(first & 0xF0 | flags, body));
            }
        }
    }

    #[test]
    fn what_is_too_long_or_too_short_is_not() {
        for (first, body) in [
            (0x20, &[0][..]),
            (0x20, &[0, 0]),
            (0x20, &[2, 0, 0]),
            (0x20, &[0, 1, 0]),
            (0x20, &[0, 0, 0, 0]),
            (0x20, &[0, 0, 1]),
            (0x40, &[0]),
            (0x40, &[0, 1, 0, 0, 0]),
            (0x40, &[0, 1, 0, 0x80]),
            (0x50, &[0, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),
            (0x62, &[0, 1, 0, 3, 0x1F, 0, 1]),
            (0x70, &[0, 1, 0, 1, 0xEE]),
            (0x90, &[0, 1, 0]),
            (0x90, &[0, 1]),
            (0xB0, &[0, 1, 9, 0]),
            (0xD0, &[0]),
            (0xE0, &[0, 0, 0]),
            (0x00, &[]),
            (0x10, &[]),
            (0xF0, &[0x18]),
        ] {
            assert!(!is_well_formed(first, body), "{first:02x} {body:?}");
        }
    }
}
