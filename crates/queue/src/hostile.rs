//! Folders of hostile files, made of bytes that a fuzzer thought of: opening one must neither panic
//! nor take memory or time out of proportion, and what is put afterwards must be there.
//!
//! Bytes alone never get past a checksum. So besides raw files there are segments whose headers and
//! checksums are right and whose records are hostile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_core::{
    BindingKey, Destination, Message, MessageId, Name, Placement, Store as _, StoredMessage,
    Timestamp, Topic, View,
};

use crate::disk::{Disk, Layout};
use crate::frame::{self, Kind};
use crate::head::Head;
use crate::segment::{Header, Salt};
use crate::sim::SimDisk;
use crate::{Holder, Journal, JournalOptions, OpenError, Snapshot};

/// Makes a folder of `input`, opens it, stores a message in it, and finds that one again.
pub fn open(input: &[u8]) {
    let disk = folder_of(input);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let root = root();
    match Snapshot::on(shared.clone(), &root, Holder::Nobody) {
        Err(OpenError::NewerFormat { .. }) => return,
        snapshot => drop(snapshot.expect("it can be looked into").verify()),
    }
    let options = JournalOptions {
        segment_bytes: 16 << 10,
        reserve_bytes: 1 << 10,
        slack_bytes: 16 << 10,
        ..JournalOptions::default()
    };
    let again = || Journal::open_on(shared.clone(), &root, options, None);
    let (journal, first) = match again() {
        Err(OpenError::NewerFormat { .. }) => return,
        // Nothing else is a reason not to open, on a disk that works.
        opened => opened.expect("it opens"),
    };
    let key = BindingKey::new(name("hostile"), name("probe"));
    let before = journal.usage(&key).queue.entries;
    // The answer is waited for by closing.
    drop(journal.put(
        probe(),
        vec![Destination {
            binding: key.clone(),
            placement: Placement::Queue,
        }],
    ));
    journal.close();
    let full = journal.stats().write_failures > 0;
    drop(journal);
    let (journal, report) = again().expect("it was opened before");
    assert_eq!(report.lost_records(), 0, "{first:?} and then {report:?}");
    let after = journal.usage(&key).queue.entries;
    assert!(full || after == before + 1, "{before} and then {after}");
    journal.close();
    let mut snapshot = Snapshot::on(shared, &root, Holder::Nobody).expect("as before");
    let newest = snapshot.entries(&key, View::Queue).pop();
    if !full {
        let newest = snapshot.read(&key, newest.expect("it is there"));
        let message = newest.expect("it is there").message;
        assert_eq!(message.expect("it is whole"), probe());
    }
}

fn root() -> PathBuf {
    PathBuf::from("/data")
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn probe() -> Arc<StoredMessage> {
    Arc::new(StoredMessage {
        id: MessageId::from_bytes([9; 16]),
        cause: None,
        session: name("probe"),
        received: Timestamp::from_millis(1),
        message: Message::new(Topic::parse("probe").expect("a topic"), vec![1, 2, 3]),
    })
}

/// Takes a fuzzer's bytes apart; where they end, everything is zero.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }
}

fn folder_of(input: &[u8]) -> SimDisk {
    let disk = SimDisk::default();
    let layout = Layout::new(&root());
    let mut input = Input(input);
    let mut last = Vec::new();
    for _ in 0..32 {
        if input.0.is_empty() {
            break;
        }
        let what = input.byte();
        let place = input.byte();
        let path = place_of(&layout, place);
        match what % 4 {
            0 => {
                let len = input.short();
                last = input.bytes(len).to_vec();
            }
            1 => last = segment(&mut input, u64::from(place >> 3) * 16 + 1),
            2 => {
                let keep = input.short();
                last.truncate(keep);
            }
            _ => {
                let head = Head {
                    segment: input.short() as u64,
                    next: input.short() as u64,
                    told: vec![input.short() as u64],
                };
                disk.put(&layout.head(), head.encode());
                continue;
            }
        }
        disk.put(&path, last.clone());
    }
    disk
}

fn place_of(layout: &Layout, place: u8) -> PathBuf {
    let first_seq = u64::from(place >> 3) * 16 + 1;
    let segment = layout.segment(first_seq);
    match place & 7 {
        0 => layout.head(),
        1 => segment.with_extension("misnamed"),
        2 => layout.quarantine().join("a.bad"),
        3 => layout.reserve(),
        _ => segment,
    }
}

/// A segment whose header and checksums are right.
fn segment(input: &mut Input<'_>, first_seq: u64) -> Vec<u8> {
    let salt = Salt::new([7; 16]);
    let mut bytes = Header { first_seq, salt }.encode_area();
    let mut seq = first_seq;
    for _ in 0..input.byte() {
        if input.0.is_empty() {
            break;
        }
        let kind = input.byte();
        let (named, _) = Kind::ALL[usize::from(kind & 0x7f) % Kind::ALL.len()];
        seq = seq.saturating_add(u64::from(input.byte() >> 6));
        let len = input.short();
        let body = input.bytes(len).to_vec();
        frame::append(&mut bytes, &salt, seq, named, kind & 0x80 != 0, |out| {
            out.extend_from_slice(&body);
        });
        seq = seq.saturating_add(1);
    }
    bytes
}

/// Inputs that make the folder of a real journal, in parts and as a whole.
pub fn seeds() -> Vec<Vec<u8>> {
    let disk = SimDisk::default();
    let options = JournalOptions {
        segment_bytes: 16 << 10,
        reserve_bytes: 1 << 10,
        ..JournalOptions::default()
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (journal, _) = Journal::open_on(shared, &root(), options, None).expect("an empty folder");
    for number in 0..40_u8 {
        let key = |binding| BindingKey::new(name("route"), name(binding));
        let to = ["a", "b"].map(|binding| Destination {
            binding: key(binding),
            placement: Placement::Queue,
        });
        let message = StoredMessage {
            id: MessageId::from_bytes([number; 16]),
            message: Message::new(Topic::parse("t").expect("a topic"), vec![number; 300]),
            ..(*probe()).clone()
        };
        drop(journal.put(Arc::new(message), to.to_vec()));
    }
    journal.close();
    let mut whole = Vec::new();
    let mut seeds = Vec::new();
    let layout = Layout::new(&root());
    for (path, bytes) in disk.files() {
        if path.parent() != Some(Path::new(&layout.journal())) {
            continue;
        }
        let first_seq = path.file_stem().and_then(|stem| stem.to_str());
        let first_seq = first_seq.and_then(|stem| u64::from_str_radix(stem, 16).ok());
        let place = (first_seq.unwrap_or(1) / 16).min(31) as u8;
        let mut seed = vec![0, place << 3 | 4];
        seed.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes());
        seed.extend_from_slice(&bytes[..bytes.len().min(usize::from(u16::MAX))]);
        whole.extend_from_slice(&seed);
        seeds.push(seed);
        // Its frames as hostile records with right checksums.
        if let Ok((header, _)) = Header::find(&bytes) {
            let mut framed = vec![1, place << 3 | 4, 255];
            let mut at = crate::segment::FRAMES_AT;
            while let Some(frame) = bytes.get(at..).and_then(|b| frame::parse(b, &header.salt)) {
                let kind = Kind::ALL.iter().position(|(kind, _)| *kind == frame.kind);
                framed.push(kind.unwrap_or_default() as u8 | if frame.first { 0x80 } else { 0 });
                framed.push(0);
                framed
                    .extend_from_slice(&u16::try_from(frame.body.len()).unwrap_or(0).to_le_bytes());
                framed.extend_from_slice(frame.body);
                at += frame.len;
            }
            seeds.push(framed);
        }
    }
    seeds.push(whole);
    seeds
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sim::Random;

    fn quickly(input: &[u8]) {
        let start = Instant::now();
        open(input);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?} for {input:?}");
    }

    #[test]
    fn i25_folders_of_hostile_files_open_quickly_and_without_a_panic() {
        let seeds = seeds();
        let mut random = Random::new(25);
        for seed in &seeds {
            quickly(seed);
        }
        for _ in 0..600 {
            let mut input = seeds[random.below(seeds.len() as u64) as usize].clone();
            for _ in 0..=random.below(8) {
                let from = random.below(input.len() as u64) as usize;
                let to = input.len().min(from + random.below(64) as usize);
                match random.below(5) {
                    0 => input[from] = random.below(256) as u8,
                    1 => input[from..to].fill(0xff),
                    2 => drop(input.drain(from..to)),
                    3 => {
                        let other = &seeds[random.below(seeds.len() as u64) as usize];
                        let part = &other[..other.len().min(to - from)];
                        input.splice(from..from, part.iter().copied());
                    }
                    _ => input[from..to].reverse(),
                }
                if input.is_empty() {
                    break;
                }
            }
            quickly(&input);
        }
    }

    #[test]
    fn i25_noise_behind_right_checksums_opens_without_a_panic() {
        let mut random = Random::new(26);
        for _ in 0..800 {
            let mut input = Vec::new();
            for _ in 0..=random.below(4) {
                input.extend([random.below(4) as u8, random.below(256) as u8]);
                input.push(1 + random.below(12) as u8);
                for _ in 0..12 {
                    let len = random.below(40);
                    input.extend([
                        random.below(256) as u8,
                        random.below(80) as u8,
                        len as u8,
                        0,
                    ]);
                    // Small numbers are counts and lengths that may be right.
                    let most = if random.one_in(2) { 4 } else { 256 };
                    input.extend((0..len).map(|_| random.below(most) as u8));
                }
            }
            quickly(&input);
        }
    }
}
