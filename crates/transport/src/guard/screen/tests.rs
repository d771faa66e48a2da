//! What the guard lets through, and in what shape.

use super::*;

fn screen(maximum: u32) -> (Screen, Arc<Witness>, Marker) {
    let (witness, marker) = (Arc::new(Witness::default()), Marker::new(7));
    let screen = Screen::new(Protocol::V5, maximum, marker.clone(), Arc::clone(&witness));
    (welcomed(screen), witness, marker)
}

/// The CONNACK has come, and QoS 1 messages with the ids 1 to 3 have gone out.
fn welcomed(mut screen: Screen) -> Screen {
    let connack: &[u8] = match screen.protocol {
        Protocol::V5 => &[0x20, 3, 0, 0, 0],
        Protocol::V311 => &[0x20, 2, 0, 0],
    };
    through(&mut screen, connack, 9).unwrap();
    for id in 1..=3 {
        screen.outgoing(Step::Id(0x32, id));
    }
    screen
}

/// Feeds bytes in pieces and collects what is cleared.
fn through(screen: &mut Screen, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Violation> {
    let mut out = Vec::new();
    for piece in bytes.chunks(piece) {
        screen.buffer(piece.len()).extend_from_slice(piece);
        screen.examine()?;
        out.extend_from_slice(screen.cleared());
        let all = screen.cleared().len();
        screen.consume(all);
    }
    Ok(out)
}

fn publish(topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    wire::write_text(&mut body, topic);
    body.extend_from_slice(&[0, 1, 0]);
    body.extend_from_slice(payload);
    let mut packet = vec![0x32];
    wire::write_length(&mut packet, body.len());
    packet.append(&mut body);
    packet
}

#[test]
fn what_is_in_order_passes_unchanged_however_it_is_cut() {
    let mut bytes = publish(b"a/b", &[7; 300]);
    bytes.extend_from_slice(&[0x40, 2, 0, 1, 0xD0, 0, 0x40, 3, 0, 2, 0x87]);
    bytes.extend(publish(b"", b"by alias"));
    for piece in 1..bytes.len() {
        let (mut screen, _, _) = screen(1024);
        assert_eq!(
            through(&mut screen, &bytes, piece).unwrap(),
            bytes,
            "{piece}"
        );
    }
}

#[test]
fn an_invalid_topic_is_replaced_and_its_neighbours_pass() {
    for bad in [&b"a\0b"[..], b"a/#", b"+", &[0xC3, 0x28]] {
        let mut bytes = publish(b"before", b"1");
        bytes.extend(publish(bad, b"payload"));
        bytes.extend(publish(b"after", b"2"));
        for piece in [1, 2, 3, 5, bytes.len()] {
            let (mut screen, _, marker) = screen(1024);
            let mut expected = publish(b"before", b"1");
            expected.extend(publish(marker.topic().as_bytes(), b""));
            expected.extend(publish(b"after", b"2"));
            assert_eq!(through(&mut screen, &bytes, piece).unwrap(), expected);
        }
    }
}

#[test]
fn an_unknown_code_amid_others_is_reshaped_however_it_is_cut() {
    let bytes = [0x40, 2, 0, 1, 0x40, 3, 0, 2, 0xE5, 0x40, 2, 0, 3];
    let (mut first, _, _) = screen(1024);
    let whole = through(&mut first, &bytes, bytes.len()).unwrap();
    assert!(whole.starts_with(&[0x40, 2, 0, 1, 0x40]));
    assert!(whole.ends_with(&[0x40, 2, 0, 3]));
    for piece in 1..bytes.len() {
        let (mut screen, _, _) = screen(1024);
        assert_eq!(through(&mut screen, &bytes, piece).unwrap(), whole);
    }
}

proptest::proptest! {
    #[test]
    fn i25_any_bytes_cut_anywhere_come_to_the_same_and_never_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        // Types that are looked at, with a plausible length, more often than chance has them.
        kind in 2_u8..15,
        length in 0_u8..40,
        piece in 1_usize..20,
    ) {
        let mut bytes = bytes;
        bytes.splice(0..0, [kind << 4, length]);
        let (mut first, _, _) = screen(100);
        let (mut second, _, _) = screen(100);
        let whole = through(&mut first, &bytes, bytes.len());
        let pieces = through(&mut second, &bytes, piece);
        proptest::prop_assert_eq!(whole, pieces);
    }
}

#[test]
fn a_packet_that_is_too_large_is_found_out_by_its_header_alone() {
    let (mut screen, _, _) = screen(100);
    let result = through(&mut screen, &[0x30, 0xFF, 0xFF, 0x7F], 4);
    let size = 2_097_151 + 4;
    assert_eq!(result, Err(Violation::TooLarge { size, maximum: 100 }));
}

#[test]
fn what_a_disconnect_said_is_remembered_as_it_was_sent() {
    let (mut screen, witness, _) = screen(100);
    let out = through(&mut screen, &[0xE0, 1, 0xE5], 1).unwrap();
    assert_eq!(out, [0xE0, 1, 0x80]);
    let (code, _) = witness.disconnect().unwrap();
    assert_eq!(code.get(), 0xE5);
}

fn translating(maximum: u32) -> (Screen, Marker) {
    let marker = Marker::new(7);
    let screen = Screen::new(Protocol::V311, maximum, marker.clone(), Arc::default());
    (welcomed(screen), marker)
}

fn publish_311(topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    wire::write_text(&mut body, topic);
    body.extend_from_slice(&[0, 1]);
    body.extend_from_slice(payload);
    let mut packet = vec![0x32];
    wire::write_length(&mut packet, body.len());
    packet.append(&mut body);
    packet
}

#[test]
fn what_comes_in_3_1_1_is_translated_however_it_is_cut() {
    let mut bytes = publish_311(b"a/b", &[7; 120]);
    bytes.extend(publish_311(b"a/#", b"payload"));
    bytes.extend(publish_311(b"", b"payload"));
    bytes.extend(publish_311(b"large", &[7; 1000]));
    bytes.extend(publish_311(b"after", b""));
    bytes.extend([0x40, 2, 0, 1, 0xD0, 0]);
    for piece in 1..bytes.len() {
        let (mut screen, marker) = translating(200);
        let mut expected = publish(b"a/b", &[7; 120]);
        expected.extend(publish(marker.topic().as_bytes(), b""));
        expected.extend(publish(marker.topic().as_bytes(), b""));
        expected.extend(publish(marker.too_large().as_bytes(), b""));
        expected.extend(publish(b"after", b""));
        expected.extend([0x40, 2, 0, 1, 0xD0, 0]);
        let out = through(&mut screen, &bytes, piece).unwrap();
        assert_eq!(out, expected, "in pieces of {piece}");
        assert!(screen.raw.is_empty() && screen.translated.is_empty());
    }
}

#[test]
fn what_is_too_large_on_3_1_1_is_never_held() {
    let (mut screen, _) = translating(100);
    // The largest packet that can be framed, of which a part comes.
    let mut bytes = vec![0x32, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, b't', 0, 1];
    bytes.resize(1 << 20, 0);
    through(&mut screen, &bytes, 16 * 1024).unwrap();
    assert!(
        screen.raw.capacity() <= 64 * 1024,
        "{}",
        screen.raw.capacity()
    );
    assert_eq!(screen.skipped, 268_435_455 + 5 - (1 << 20));
}

/// A PUBLISH with these properties.
fn with_properties(topic: &[u8], properties: &[&[u8]], payload: &[u8]) -> Vec<u8> {
    let properties = properties.concat();
    let mut body = Vec::new();
    wire::write_text(&mut body, topic);
    body.extend_from_slice(&[0, 1]);
    wire::write_length(&mut body, properties.len());
    body.extend_from_slice(&properties);
    body.extend_from_slice(payload);
    let mut packet = vec![0x32];
    wire::write_length(&mut packet, body.len());
    packet.append(&mut body);
    packet
}

const ALIAS: &[u8] = &[0x23, 0, 5];
const EXPIRY: &[u8] = &[0x02, 0, 0, 0, 9];
const IDENTIFIER: &[u8] = &[0x0B, 0x80, 1];

#[test]
fn a_message_with_a_text_that_is_none_keeps_its_topic_and_alias_alone() {
    let unsound: &[u8] = &[0x26, 0, 1, b'a', 0, 2, 0xC3, 0x28];
    let bytes = with_properties(b"t", &[EXPIRY, unsound, ALIAS], b"payload");
    for piece in 1..=bytes.len() {
        let (mut screen, _, marker) = screen(1024);
        let mut mark = Vec::new();
        marker.write_unsound(&mut mark);
        let expected = with_properties(b"t", &[ALIAS, &mark], b"");
        assert_eq!(through(&mut screen, &bytes, piece).unwrap(), expected);
        let name = [marker_name(&mark)];
        let why = marker.set_aside(b"t", name.iter());
        assert_eq!(why, Some(super::super::SetAside::InvalidProperties));
    }
}

/// The name of a user property without a value.
fn marker_name(property: &[u8]) -> String {
    let (name, _) = wire::read_text(&property[1..]).unwrap();
    String::from_utf8(name.to_vec()).unwrap()
}

#[test]
fn an_invalid_topic_keeps_its_alias() {
    let (mut screen, _, marker) = screen(1024);
    let bytes = with_properties(b"a/#", &[EXPIRY, ALIAS], b"payload");
    let expected = with_properties(marker.topic().as_bytes(), &[ALIAS], b"");
    assert_eq!(through(&mut screen, &bytes, 5).unwrap(), expected);
}

#[test]
fn subscription_identifiers_go_no_further() {
    let bytes = with_properties(b"t", &[IDENTIFIER, EXPIRY, IDENTIFIER, ALIAS], &[7; 500]);
    let expected = with_properties(b"t", &[EXPIRY, ALIAS], &[7; 500]);
    for piece in [1, 2, 3, 7, 100, bytes.len()] {
        let (mut screen, _, _) = screen(1024);
        assert_eq!(through(&mut screen, &bytes, piece).unwrap(), expected);
    }
}

#[test]
fn properties_that_are_none_end_the_connection() {
    let malformed = Err(Violation::Malformed { packet: "PUBLISH" });
    for properties in [&[0x02, 0][..], &[0x26, 0, 9], &[0xEE], &[0x11, 0, 0, 0, 1]] {
        let (mut screen, _, _) = screen(1024);
        let bytes = with_properties(b"t", &[properties], b"payload");
        assert_eq!(through(&mut screen, &bytes, 1), malformed);
    }
    // Longer than the packet.
    let (mut screen, _, _) = screen(1024);
    let bytes = [0x32, 8, 0, 1, b't', 0, 1, 200, 1, 0];
    assert_eq!(through(&mut screen, &bytes, 1), malformed);
    let (mut screen, _, _) = screen_of(1024);
    assert_eq!(
        through(&mut screen, &[0x36, 5, 0, 1, b't', 0, 1], 1),
        malformed
    );
}

fn screen_of(maximum: u32) -> (Screen, Arc<Witness>, Marker) {
    screen(maximum)
}

#[test]
fn a_code_that_makes_the_packet_too_large_comes_without_the_broker_s_words() {
    let mut bytes = vec![0x40, 84, 0, 2, 0xE5, 80, wire::REASON_STRING, 0, 77];
    bytes.resize(86, b'x');
    let (mut screen, _, marker) = screen(100);
    let out = through(&mut screen, &bytes, 9).unwrap();
    assert!(out.len() < 86 && out.starts_with(&[0x40]));
    let (mut roomy, _, _) = screen_of(1000);
    assert!(through(&mut roomy, &bytes, 9).unwrap().len() > 86);
    let text = String::from_utf8_lossy(&out).into_owned();
    assert!(text.contains(marker.property()));
}

#[test]
fn packets_out_of_turn_are_told_apart() {
    let answers: [(u8, &[u8]); 6] = [
        (0x40, &[0, 9]),
        (0x50, &[0, 1]),
        (0x70, &[0, 2]),
        (0x90, &[0, 3, 0, 0]),
        (0xB0, &[0, 9, 0, 0]),
        (0x62, &[0, 7]),
    ];
    let framed = |first: u8, body: &[u8]| {
        let length = u8::try_from(body.len()).unwrap();
        [&[first, length], body].concat()
    };
    for (first, body) in answers {
        let (mut screen, _, _) = screen(100);
        screen.exchange.publish(0x34, 7);
        let packet = wire::name(first >> 4);
        let id = u16::from(body[1]);
        assert_eq!(
            through(&mut screen, &framed(first, body), 9),
            Err(Violation::Unasked { packet, id })
        );
    }
    for first in [0x00, 0x10, 0x20, 0x82, 0xA2, 0xC0, 0xF0] {
        let (mut screen, _, _) = screen(100);
        let packet = wire::name(first >> 4);
        let unexpected = Err(Violation::Unexpected { packet });
        assert_eq!(through(&mut screen, &[first, 0], 9), unexpected);
    }
    for protocol in [Protocol::V5, Protocol::V311] {
        for first in [0x30, 0x40, 0x50, 0x62, 0x70, 0x90, 0xB0, 0xD0] {
            let mut new = Screen::new(protocol, 100, Marker::new(7), Arc::default());
            let packet = wire::name(first >> 4);
            let too_soon = Err(Violation::TooSoon { packet });
            assert_eq!(through(&mut new, &[first, 0], 9), too_soon);
        }
    }
    let (mut old, _) = translating(100);
    let packet = "DISCONNECT";
    let unexpected = Err(Violation::Unexpected { packet });
    assert_eq!(through(&mut old, &[0xE0, 0], 9), unexpected);
    // Nothing asked for it, and it harms nobody.
    let (mut screen, _, _) = screen_of(100);
    assert_eq!(through(&mut screen, &[0xD0, 0], 9), Ok(vec![0xD0, 0]));
}

#[test]
fn a_broker_without_mqtt_5_is_known_by_its_answer() {
    for (code, expected) in [(1, 0x84), (5, 0x87), (0x87, 0x87), (0xE5, 0xE5)] {
        let witness = Arc::new(Witness::default());
        let mut screen = Screen::new(Protocol::V5, 100, Marker::new(7), Arc::clone(&witness));
        let out = through(&mut screen, &[0x20, 2, 0, code], 1).unwrap();
        let known = if expected == 0xE5 { 0x80 } else { expected };
        assert_eq!(out, [0x20, 3, 0, known, 0]);
        assert_eq!(witness.connack().unwrap().0.get(), expected);
    }
}

/// Conversations that are in order but for some bytes.
fn nearly_right(protocol: Protocol) -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let publish = match protocol {
        Protocol::V5 => |topic: &[u8], payload: &[u8]| {
            with_properties(topic, &[EXPIRY, ALIAS, IDENTIFIER], payload)
        },
        Protocol::V311 => publish_311,
    };
    let packet = prop_oneof![
        ("[a-c/#]{0,9}", prop::collection::vec(any::<u8>(), 0..140))
            .prop_map(move |(topic, payload)| publish(topic.as_bytes(), &payload)),
        (0_u8..5).prop_map(|id| vec![0x40, 2, 0, id]),
        (0_u8..5, any::<u8>()).prop_map(|(id, code)| vec![0x40, 3, 0, id, code]),
        (0_u8..5).prop_map(|id| vec![0x62, 2, 0, id]),
        Just(vec![0xD0, 0]),
        any::<u8>().prop_map(|code| vec![0xE0, 1, code]),
    ];
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::collection::vec(packet, 1..9), flips).prop_map(|(packets, flips)| {
        let mut bytes = packets.concat();
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes
    })
}

/// What comes through is the same however it is cut, and the library can take it.
fn comes_through(mut whole: Screen, mut pieces: Screen, bytes: &[u8], piece: usize) {
    let all = through(&mut whole, bytes, bytes.len());
    assert_eq!(all, through(&mut pieces, bytes, piece));
    let Ok(all) = all else { return };
    let mut stream = BytesMut::from(&all[..]);
    // Packets that are malformed deep inside are left to it.
    while rumqttc::mqttbytes::v5::Packet::read(&mut stream, Some(4096)).is_ok() {}
}

proptest::proptest! {
    #[test]
    fn i25_a_conversation_with_some_wrong_bytes_is_the_same_however_it_is_cut(
        bytes in nearly_right(Protocol::V5),
        piece in 1_usize..20,
    ) {
        comes_through(screen(200).0, screen(200).0, &bytes, piece);
    }

    #[test]
    fn i25_a_conversation_in_3_1_1_with_some_wrong_bytes_is_the_same_however_it_is_cut(
        bytes in nearly_right(Protocol::V311),
        piece in 1_usize..20,
    ) {
        comes_through(translating(200).0, translating(200).0, &bytes, piece);
    }
}
