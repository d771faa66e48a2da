//! Gives packets with a reason code that the client library does not know one that it knows.
//!
//! The library closes the connection on a reason code it has no name for. The standard lets a
//! broker send codes of a later version, and brokers do send codes of their own; that is a verdict
//! about one message (I03), not a reason to lose the connection.

use super::marker::Marker;
use super::property;
use super::v311;
use super::wire;

/// How many characters of a reason string or a server reference are kept.
const LONGEST_TEXT: usize = 256;

/// What a whole packet from the broker shall become; `None` when it may pass as it is.
///
/// `packet` begins with its fixed header, whose length is `header`.
pub(super) fn reshape(packet: &[u8], header: usize, marker: &Marker) -> Option<Vec<u8>> {
    let (first, body) = (*packet.first()?, packet.get(header..)?);
    match first >> 4 {
        wire::PUBACK | wire::PUBREC => acknowledgement(first, body, 0x83, &PUBACK_CODES, marker),
        wire::PUBCOMP => acknowledgement(first, body, 0x92, &PUBCOMP_CODES, marker),
        wire::PUBREL => release(first, body),
        wire::CONNACK => connection_answer(packet, header, body),
        wire::SUBACK => subscription_answer(packet, header, body, &SUBACK_CODES),
        wire::UNSUBACK => subscription_answer(packet, header, body, &UNSUBACK_CODES),
        wire::DISCONNECT if *body.first()? != 0x04 => {
            with_known_code(packet, header, &DISCONNECT_CODES)
        }
        _ => None,
    }
}

const PUBACK_CODES: [u8; 9] = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const PUBCOMP_CODES: [u8; 2] = [0x00, 0x92];
const SUBACK_CODES: [u8; 12] = [
    0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
];
const UNSUBACK_CODES: [u8; 7] = [0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const CONNACK_CODES: [u8; 22] = [
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97,
    0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
];
const DISCONNECT_CODES: [u8; 28] = [
    0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96,
    0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];

/// PUBACK, PUBREC and PUBCOMP: packet id, reason code, properties; the last two may be absent.
fn acknowledgement(
    first: u8,
    body: &[u8],
    refused: u8,
    known: &[u8],
    marker: &Marker,
) -> Option<Vec<u8>> {
    let code = *body.get(2)?;
    if known.contains(&code) {
        return None;
    }
    let properties = match body.get(3..) {
        None | Some([]) => &[][..],
        Some(rest) => {
            let (length, at) = wire::read_length(rest).ok()??;
            rest.get(at..at.checked_add(length)?)?
        }
    };
    let mut extended = properties.to_vec();
    extended.push(wire::USER_PROPERTY);
    wire::write_text(&mut extended, marker.property().as_bytes());
    wire::write_text(&mut extended, format!("{code:02x}").as_bytes());

    let mut reshaped = body.get(..2)?.to_vec();
    reshaped.push(if code >= 0x80 { refused } else { 0x00 });
    wire::write_length(&mut reshaped, extended.len());
    reshaped.extend_from_slice(&extended);
    Some(framed(first, &reshaped))
}

/// PUBREL: whatever its reason code, it wants a PUBCOMP (MQTT 5 §4.3.3). The library sends none
/// for any code but success.
fn release(first: u8, body: &[u8]) -> Option<Vec<u8>> {
    match body.get(2)? {
        0x00 => None,
        _ => Some(framed(first, body.get(..2)?)),
    }
}

/// CONNACK: whether the session is present, reason code, properties.
fn connection_answer(packet: &[u8], header: usize, body: &[u8]) -> Option<Vec<u8>> {
    let [_, code, rest @ ..] = body else {
        return None;
    };
    if *code == 0 {
        return None;
    }
    if !rest.is_empty() {
        return with_known_code(packet, header + 1, &CONNACK_CODES);
    }
    let code = v311::connect_code(*code).unwrap_or(*code);
    let known = if CONNACK_CODES.contains(&code) {
        code
    } else {
        0x80
    };
    Some(framed(0x20, &[0, known, 0]))
}

/// Reason code and reason string of a CONNACK's body.
///
/// A broker that knows only MQTT 3.1.1 answers in that, so that any client understands. To us it
/// says that it does not know MQTT 5.
pub(super) fn connection_reason(body: &[u8]) -> (u8, Option<String>) {
    if let [_, code] = body
        && let Some(code) = v311::connect_code(*code)
        && code != 0
    {
        return (code, Some("the answer is in MQTT 3.1.1".to_owned()));
    }
    reason(body.get(1..).unwrap_or_default())
}

/// The same packet with 0x80 at that place, unless the code there is known.
fn with_known_code(packet: &[u8], at: usize, known: &[u8]) -> Option<Vec<u8>> {
    if known.contains(packet.get(at)?) {
        return None;
    }
    let mut reshaped = packet.to_vec();
    *reshaped.get_mut(at)? = 0x80;
    Some(reshaped)
}

/// SUBACK and UNSUBACK: packet id, properties, one reason code for each filter.
fn subscription_answer(packet: &[u8], header: usize, body: &[u8], known: &[u8]) -> Option<Vec<u8>> {
    let (length, at) = wire::read_length(body.get(2..)?).ok()??;
    let codes_at = header + 2 + at + length;
    if packet
        .get(codes_at..)?
        .iter()
        .all(|code| known.contains(code))
    {
        return None;
    }
    let mut reshaped = packet.to_vec();
    for code in reshaped.get_mut(codes_at..)? {
        if !known.contains(code) {
            *code = 0x80;
        }
    }
    Some(reshaped)
}

fn framed(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    wire::write_length(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

/// Reason code and reason string of a DISCONNECT's or CONNACK's body from the code on.
pub(super) fn reason(from_code: &[u8]) -> (u8, Option<String>) {
    let Some((code, rest)) = from_code.split_first() else {
        return (0x00, None);
    };
    (*code, text_property(rest, wire::REASON_STRING))
}

/// The server that a DISCONNECT or CONNACK names instead of the one that sent it; the body from
/// the reason code on.
pub(super) fn server_reference(from_code: &[u8]) -> Option<String> {
    text_property(from_code.get(1..)?, wire::SERVER_REFERENCE)
}

/// The beginning of a property that is a text, if there is one; it is meant for a log.
fn text_property(from_properties: &[u8], wanted: u8) -> Option<String> {
    let (mut rest, _) = property::split(from_properties)?;
    while let Some((property, after)) = property::next(rest) {
        if property.id == wanted {
            let text = String::from_utf8_lossy(property.value.get(2..)?).into_owned();
            return Some(text.chars().take(LONGEST_TEXT).collect());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker() -> Marker {
        Marker::new(7)
    }

    /// The one user property that a reshaped acknowledgement without others has.
    fn marked_code(packet: &[u8]) -> u8 {
        let text = String::from_utf8_lossy(packet);
        let at = text.find(marker().property()).expect("no marker");
        let value = &text[at + marker().property().len() + 2..][..2];
        u8::from_str_radix(value, 16).unwrap()
    }

    #[test]
    fn i03_every_unknown_code_of_an_acknowledgement_is_replaced_and_remembered() {
        for (first, refused, known) in [
            (0x40, 0x83, &PUBACK_CODES[..]),
            (0x50, 0x83, &PUBACK_CODES[..]),
            (0x70, 0x92, &PUBCOMP_CODES[..]),
        ] {
            for code in 0..=u8::MAX {
                let reshaped = reshape(&[first, 3, 0x12, 0x34, code], 2, &marker());
                if known.contains(&code) {
                    assert_eq!(reshaped, None, "{code:02x} is known");
                    continue;
                }
                let packet = reshaped.unwrap();
                assert_eq!(packet[0], first);
                assert_eq!(usize::from(packet[1]), packet.len() - 2);
                assert_eq!(packet[2..4], [0x12, 0x34]);
                assert_eq!(packet[4], if code < 0x80 { 0 } else { refused });
                assert_eq!(marked_code(&packet), code);
            }
        }
    }

    #[test]
    fn properties_of_a_reshaped_acknowledgement_stay() {
        let mut body = vec![0, 1, 0xE5, 5, wire::REASON_STRING, 0, 2, b'n', b'o'];
        let mut packet = vec![0x40, u8::try_from(body.len()).unwrap()];
        packet.append(&mut body);
        let reshaped = reshape(&packet, 2, &marker()).unwrap();
        assert_eq!(reshaped[6..11], [wire::REASON_STRING, 0, 2, b'n', b'o']);
        assert_eq!(marked_code(&reshaped), 0xE5);
    }

    #[test]
    fn acknowledgements_without_a_code_pass() {
        assert_eq!(reshape(&[0x40, 2, 0, 1], 2, &marker()), None);
    }

    #[test]
    fn a_release_always_gets_its_answer() {
        assert_eq!(reshape(&[0x62, 2, 0, 9], 2, &marker()), None);
        assert_eq!(reshape(&[0x62, 3, 0, 9, 0], 2, &marker()), None);
        for code in [0x92, 0xE5] {
            let reshaped = reshape(&[0x62, 4, 0, 9, code, 0], 2, &marker());
            assert_eq!(reshaped, Some(vec![0x62, 2, 0, 9]));
        }
    }

    #[test]
    fn unknown_codes_of_subscriptions_read_as_refused() {
        let packet = [0x90, 6, 0, 1, 0, 0x01, 0xE5, 0x42];
        let reshaped = reshape(&packet, 2, &marker());
        assert_eq!(reshaped, Some(vec![0x90, 6, 0, 1, 0, 0x01, 0x80, 0x80]));
        assert_eq!(reshape(&[0xB0, 4, 0, 1, 0, 0x11], 2, &marker()), None);
    }

    #[test]
    fn an_unknown_disconnect_code_becomes_unspecified() {
        assert_eq!(
            reshape(&[0xE0, 1, 0xE5], 2, &marker()),
            Some(vec![0xE0, 1, 0x80])
        );
        assert_eq!(reshape(&[0xE0, 1, 0x8E], 2, &marker()), None);
        assert_eq!(reshape(&[0xE0, 0], 2, &marker()), None);
    }

    #[test]
    fn a_reason_string_is_found_behind_other_properties() {
        let body = [0x8E, 8, 0x11, 0, 0, 0, 1, wire::REASON_STRING, 0, 0];
        assert_eq!(reason(&body), (0x8E, Some(String::new())));
        assert_eq!(reason(&[]), (0x00, None));
        assert_eq!(reason(&[0x87]), (0x87, None));
        assert_eq!(reason(&[0x87, 3, 0xEE, 1, 2]), (0x87, None));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for first in 0..=u8::MAX {
            for packet in [
                &[first][..],
                &[first, 0],
                &[first, 3, 0xFF, 0xFF, 0xFF],
                &[first, 1, 9],
            ] {
                let _ = reshape(packet, 2, &marker());
            }
        }
    }
}
