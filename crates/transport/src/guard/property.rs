//! The properties of MQTT 5 §2.2.2, told apart by their shapes.

use super::wire;

/// Payload Format Indicator and what else a PUBLISH may have.
const OF_PUBLISH: [u8; 8] = [
    0x01,
    0x02,
    0x03,
    0x08,
    0x09,
    0x0B,
    0x23,
    wire::USER_PROPERTY,
];
/// Subscription Identifier.
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
/// Topic Alias.
const TOPIC_ALIAS: u8 = 0x23;

/// One property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Property<'a> {
    pub(super) id: u8,
    /// The value as it is on the wire.
    pub(super) value: &'a [u8],
    /// Whether its texts are such as MQTT 5 §1.5.4 allows: UTF-8 without NUL.
    pub(super) sound: bool,
    /// Both of them, as on the wire.
    whole: &'a [u8],
}

/// The property that the bytes begin with, and what comes behind it; `None` when it is none.
pub(super) fn next(bytes: &[u8]) -> Option<(Property<'_>, &[u8])> {
    let (&id, after) = bytes.split_first()?;
    let (length, sound) = match id {
        // One byte: payload format, the requests for information, the availabilities.
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => (1, true),
        // Two bytes: server keep alive, receive maximum, topic alias and its maximum.
        0x13 | 0x21 | 0x22 | TOPIC_ALIAS => (2, true),
        // Four bytes: the expiries, will delay, maximum packet size.
        0x02 | 0x11 | 0x18 | 0x27 => (4, true),
        SUBSCRIPTION_IDENTIFIER => (wire::read_length(after).ok()??.1, true),
        // Data: correlation, authentication.
        0x09 | 0x16 => (2 + wire::read_text(after)?.0.len(), true),
        // A text: content type, response topic, assigned client id, authentication method,
        // response information, server reference, reason string.
        0x03 | 0x08 | 0x12 | 0x15 | 0x1A | wire::SERVER_REFERENCE | wire::REASON_STRING => {
            let (text, _) = wire::read_text(after)?;
            (2 + text.len(), is_sound(text))
        }
        wire::USER_PROPERTY => {
            let (name, rest) = wire::read_text(after)?;
            let (value, _) = wire::read_text(rest)?;
            (
                4 + name.len() + value.len(),
                is_sound(name) && is_sound(value),
            )
        }
        _ => return None,
    };
    let (value, rest) = after.split_at_checked(length)?;
    let property = Property {
        id,
        value,
        sound,
        whole: bytes.get(..=length)?,
    };
    Some((property, rest))
}

fn is_sound(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok() && !text.contains(&0)
}

/// Takes the properties, with their length before them, off the bytes; what is behind them.
/// `None` when they are malformed.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, at) = wire::read_length(bytes).ok()??;
    bytes.get(at..)?.split_at_checked(length)
}

/// Whether these bytes are properties from end to end.
pub(super) fn are_well_formed(mut properties: &[u8]) -> bool {
    while !properties.is_empty() {
        let Some((_, rest)) = next(properties) else {
            return false;
        };
        properties = rest;
    }
    true
}

/// The properties of a PUBLISH, as far as the guard cares.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct OfPublish {
    /// A text in them is none.
    pub(super) unsound: bool,
    /// The topic alias as it is on the wire.
    pub(super) alias: Vec<u8>,
    /// Whether there are subscription identifiers. They say on which of our subscriptions a
    /// message came; we give them no identifiers, and the library miscounts more than one.
    pub(super) has_identifiers: bool,
}

/// Reads the properties of a PUBLISH; `None` when they are malformed.
pub(super) fn of_publish(mut properties: &[u8]) -> Option<OfPublish> {
    let mut found = OfPublish::default();
    while !properties.is_empty() {
        let (property, rest) = next(properties)?;
        if !OF_PUBLISH.contains(&property.id) {
            return None;
        }
        found.unsound |= !property.sound;
        found.has_identifiers |= property.id == SUBSCRIPTION_IDENTIFIER;
        if property.id == TOPIC_ALIAS {
            found.alias = property.whole.to_vec();
        }
        properties = rest;
    }
    Some(found)
}

/// The same without subscription identifiers.
pub(super) fn without_identifiers(mut properties: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(properties.len());
    while let Some((property, rest)) = next(properties) {
        if property.id != SUBSCRIPTION_IDENTIFIER {
            kept.extend_from_slice(property.whole);
        }
        properties = rest;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&[u8]] = &[
        &[0x01, 1],
        &[0x02, 0, 0, 0, 9],
        &[0x03, 0, 1, b'c'],
        &[0x08, 0, 1, b'r'],
        &[0x09, 0, 2, 0, 0xFF],
        &[0x0B, 0x80, 1],
        &[0x23, 0, 3],
        &[0x26, 0, 1, b'a', 0, 0],
    ];

    #[test]
    fn every_property_of_a_publish_is_told_from_the_next() {
        let bytes = ALL.concat();
        let found = of_publish(&bytes).unwrap();
        assert_eq!(found.alias, [0x23, 0, 3]);
        assert!(found.has_identifiers && !found.unsound);
        let kept = without_identifiers(&bytes);
        assert_eq!(kept.len(), bytes.len() - 3);
        assert!(!of_publish(&kept).unwrap().has_identifiers);
        for cut in 1..bytes.len() {
            let at_border = ALL
                .iter()
                .scan(0, |end, property| {
                    *end += property.len();
                    Some(*end)
                })
                .any(|end| end == cut);
            assert_eq!(are_well_formed(&bytes[..cut]), at_border, "cut at {cut}");
        }
    }

    #[test]
    fn a_text_that_is_none_is_unsound_and_data_may_be_anything() {
        for unsound in [
            &[0x03, 0, 1, 0][..],
            &[0x08, 0, 2, 0xC3, 0x28],
            &[0x26, 0, 1, b'a', 0, 1, 0],
            &[0x26, 0, 1, 0xFF, 0, 1, b'a'],
        ] {
            assert!(of_publish(unsound).unwrap().unsound, "{unsound:?}");
        }
        assert!(!of_publish(&[0x09, 0, 1, 0]).unwrap().unsound);
    }

    #[test]
    fn properties_of_other_packets_and_unknown_ones_are_malformed_in_a_publish() {
        for id in (0..=u8::MAX).filter(|id| !OF_PUBLISH.contains(id)) {
            assert_eq!(of_publish(&[id, 0, 0, 0, 0]), None, "{id:02x}");
        }
    }
}
