//! What the guard lets through, and in what shape.

use super::*;

fn screen(maximum: u32) -> (Screen, Arc<Witness>, Marker) {
    let (witness, marker) = (Arc::new(Witness::default()), Marker::new(7));
    let screen = Screen::new(Protocol::V5, maximum, marker.clone(), Arc::clone(&witness));
    (screen, witness, marker)
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
            expected.extend(publish(marker.topic().as_bytes(), b"payload"));
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
