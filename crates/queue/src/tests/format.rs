//! The chapter on the format says what the code does.

use std::collections::BTreeMap;

use bridge_core::DeferInfo;

use crate::frame::{self, FIRST_OF_BATCH, Kind};
use crate::head::Head;
use crate::record::encode_deferral;
use crate::segment::{FRAMES_AT, HEADER, Header, MAGIC, SECOND_HEADER_AT, Salt, VERSION};

const CHAPTER: &str = include_str!("../../../../docs/src/journal-format.md");

/// The rows of the table whose first line is `heading`, as cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = CHAPTER.split_once(heading).expect(heading);
    rest.lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Offset and length of each field of the table that follows `section`.
fn fields(section: &str) -> BTreeMap<&'static str, (usize, usize)> {
    let (_, rest) = CHAPTER.split_once(section).expect(section);
    let (_, rest) = rest
        .split_once("| at | bytes | field | meaning |\n")
        .unwrap();
    rest.lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let len = cells[1].parse().unwrap_or(0);
            (cells[2], (cells[0].parse().unwrap(), len))
        })
        .collect()
}

#[test]
fn the_chapter_says_where_a_segments_parts_begin() {
    let places: Vec<usize> = table("| what | at |\n")
        .iter()
        .map(|row| row[1].parse().unwrap())
        .collect();
    assert_eq!(places, [0, SECOND_HEADER_AT, FRAMES_AT]);
}

#[test]
fn the_chapter_says_how_a_header_is_laid_out() {
    let fields = fields("## A segment");
    let header = Header {
        first_seq: 0x0102_0304,
        salt: Salt::new([0xAB; 16]),
    };
    let bytes = header.encode_area();
    let field = |name: &str| {
        let (at, len) = fields[name];
        &bytes[at..at + len]
    };
    assert_eq!(field("magic"), MAGIC);
    assert!(CHAPTER.contains(std::str::from_utf8(&MAGIC).unwrap()));
    assert_eq!(field("version"), VERSION.to_le_bytes());
    assert_eq!(field("first_seq"), header.first_seq.to_le_bytes());
    assert_eq!(field("salt"), [0xAB; 16]);
    let (at, len) = fields["crc"];
    assert_eq!(at + len, HEADER);
    assert_eq!(field("crc"), crc32c::crc32c(&bytes[..at]).to_le_bytes());
}

#[test]
fn the_chapter_says_how_a_frame_is_laid_out() {
    let fields = fields("## A frame");
    let salt = Salt::new([1; 16]);
    let mut bytes = Vec::new();
    frame::append(&mut bytes, &salt, 77, Kind::Settle, true, |out| {
        out.extend_from_slice(b"body");
    });
    let field = |name: &str| {
        let (at, len) = fields[name];
        &bytes[at..at + len]
    };
    assert_eq!(field("len"), (bytes.len() as u32 - 8).to_le_bytes());
    let mut crc = crc32c::crc32c_append(crc32c::crc32c(&[1; 16]), field("len"));
    crc = crc32c::crc32c_append(crc, &bytes[fields["seq"].0..]);
    assert_eq!(field("crc"), crc.to_le_bytes());
    assert_eq!(field("seq"), 77_u64.to_le_bytes());
    assert_eq!(field("kind"), [Kind::Settle as u8 | FIRST_OF_BATCH]);
    assert_eq!(&bytes[fields["body"].0..], b"body");
    assert_eq!(frame::OVERHEAD, fields["body"].0);
}

#[test]
fn the_chapter_says_how_the_head_is_laid_out() {
    let fields = fields("## The head");
    let head = Head {
        segment: 0x0102,
        next: 0x0304,
        told: vec![5, 6],
    };
    let bytes = head.encode();
    let field = |name: &str| {
        let (at, len) = fields[name];
        &bytes[at..at + len]
    };
    assert_eq!(field("magic"), crate::head::MAGIC);
    assert_eq!(field("version"), crate::head::VERSION.to_le_bytes());
    assert_eq!(field("segment"), head.segment.to_le_bytes());
    assert_eq!(field("next"), head.next.to_le_bytes());
    assert_eq!(field("count"), 2_u32.to_le_bytes());
    let end = fields["told"].0 + 16;
    assert_eq!(bytes[end - 8..end], 6_u64.to_le_bytes());
    assert_eq!(bytes[end..], crc32c::crc32c(&bytes[..end]).to_le_bytes());
}

#[test]
fn the_chapter_names_every_kind() {
    let written: Vec<(u8, String)> = table("| kind | name | body |\n")
        .iter()
        .map(|row| (row[0].parse().unwrap(), row[1].to_owned()))
        .collect();
    let known: Vec<(u8, String)> = Kind::ALL
        .into_iter()
        .map(|(kind, name)| (kind as u8, name.to_owned()))
        .collect();
    assert_eq!(written, known);
}

#[test]
fn the_chapter_numbers_every_reason() {
    for row in table("| reason | number |\n").iter().skip(1) {
        let mut out = Vec::new();
        let info = DeferInfo {
            reason: row[0].parse().unwrap(),
            ..super::refused()
        };
        encode_deferral(&mut out, "", 0, &info);
        assert_eq!(out[9].to_string(), row[1], "{}", row[0]);
    }
}
