//! Giving space back: segments with nothing alive are unlinked, and one that is mostly dead is
//! copied forward, a little at a time, so that a dead letter that stays for a month pins no disk.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bridge_core::StoreError;
use tracing::warn;

use crate::draft::Draft;
use crate::effect::Effect;
use crate::fetch::{Address, Info, info_in};
use crate::frame::{Frame, Kind};
use crate::index::{Index, SlotId, Standing};
use crate::record::{
    MessageHead, Placed, Record, SeqRange, encode_deferral, encode_delete, encode_giving_up,
    encode_places, encode_seqs, encode_settle,
};
use crate::run::{Entry, Location};
use crate::segment::Header;
use crate::shared::State;
use crate::walk::{Step, walk};
use crate::window::Window;
use crate::writer::Writer;

/// At most about so many bytes are copied between two batches.
const STRIDE: usize = 256 << 10;
/// How long tidying rests after it failed; twice as long after each further failure.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest rest.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// What tidying is about, between its steps.
#[derive(Debug, Default)]
pub(crate) struct Tidying {
    copying: Option<Copying>,
    /// Segments that hold something which cannot be read: they stay.
    stuck: BTreeSet<u32>,
    /// Until when it rests after a failure.
    not_before: Option<Instant>,
    /// How long the latest rest is, if the latest attempt failed.
    pause: Option<Duration>,
    /// Something was written since it was last looked whether there is space to give back, or
    /// giving it back failed.
    pub(crate) may_be_due: bool,
}

impl Tidying {
    fn is_resting(&self) -> bool {
        self.not_before.is_some_and(|end| end > Instant::now())
    }

    /// When it is to be tried again, with nothing written meanwhile either.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.may_be_due)
    }

    /// Notes whether, after a look, there is something to be done.
    pub(crate) fn looked(&mut self, wanted: bool) {
        self.may_be_due = wanted || (self.may_be_due && self.is_resting());
    }

    /// Rests for a while after a failure. Returns for how long.
    fn rest(&mut self) -> Duration {
        let pause = self.pause.map_or(PAUSE, |last| last.saturating_mul(2));
        let pause = pause.min(LONGEST_PAUSE);
        self.pause = Some(pause);
        self.not_before = Instant::now().checked_add(pause);
        self.may_be_due = true;
        pause
    }
}

/// A segment that is being copied forward.
#[derive(Debug)]
struct Copying {
    id: u32,
    window: Window,
    /// Its frames, and how many of them are done with.
    frames: Vec<Location>,
    done: usize,
}

/// A place at which a message that is copied still is.
struct Alive {
    slot: SlotId,
    placed: Placed,
}

fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Io {
        action: "read",
        place: path.display().to_string(),
        error: error.to_string(),
    }
}

/// Whether the segment to write to ends before it is full, so that it can go: on a full disk it may
/// be all that there is to give back.
fn ends_early(state: &State) -> bool {
    state.stats.full && state.index.segments.last_is_dead_weight()
}

impl Writer {
    /// Whether there is space to give back; looked at after each batch.
    pub(crate) fn wants_to_tidy(&self) -> bool {
        if !self.tidying.may_be_due || self.tidying.is_resting() {
            return false;
        }
        self.tidying.copying.is_some() || {
            let state = self.shared.lock();
            let segments = &state.index.segments;
            let stuck = |id| self.tidying.stuck.contains(&id);
            segments.has_dead()
                || ends_early(&state)
                || segments
                    .worth_copying(self.shared.options.slack_bytes, stuck)
                    .is_some()
        }
    }

    /// One step of tidying. What fails rests for a while: nothing depends on it but space.
    pub(crate) fn tidy(&mut self) {
        if self.tidying.is_resting() {
            return;
        }
        let mut result = self.tidy_step();
        if matches!(result, Err(StoreError::Full { .. })) {
            // What is about to be freed is more than what this takes.
            self.reserve.release();
            result = self.tidy_step();
        }
        self.tidying.not_before = None;
        self.tidying.may_be_due = self.tidying.copying.is_some();
        match result {
            Ok(()) => self.tidying.pause = None,
            Err(error) => {
                self.tidying.copying = None;
                let pause = self.tidying.rest();
                warn!(
                    event = "journal_not_tidied",
                    error = %error,
                    again_in = ?pause,
                    "space of the journal could not be given back; it is tried again"
                );
            }
        }
    }

    fn tidy_step(&mut self) -> Result<(), StoreError> {
        self.retire_dead()?;
        let ends_early = ends_early(&self.shared.lock());
        if ends_early {
            self.begin_segment()?;
        }
        if self.tidying.copying.is_none() {
            self.choose()?;
        }
        self.copy_on()?;
        self.retire_dead()
    }

    /// Unlinks every segment of which nothing is needed.
    fn retire_dead(&mut self) -> Result<(), StoreError> {
        loop {
            let dead = self.shared.lock().index.segments.dead();
            if dead.is_empty() {
                return Ok(());
            }
            self.write_settles()?;
            let mut draft = self.draft()?;
            let seqs: Vec<u64> = dead.iter().map(|(_, first_seq)| *first_seq).collect();
            draft.append(Kind::Retire, |out| encode_seqs(out, &seqs));
            self.commit(&draft)?;
            for (id, first_seq) in dead {
                let path = self.shared.layout.segment(first_seq);
                if let Err(error) = self.shared.disk.remove(&path) {
                    warn!(
                        event = "journal_segment_not_removed",
                        segment = %path.display(),
                        error = %error,
                        "a segment with nothing in it is still there; the next start removes it"
                    );
                }
                let mut state = self.shared.lock();
                state.index.segments.remove(id);
                let segments = &state.index.segments;
                self.fetcher.close_all_but(|id| segments.get(id).is_some());
            }
        }
    }

    /// Tells the disk what it does not know yet. A segment may be dead because of settles that
    /// are only in memory: without it and without them an entry would come back in an earlier
    /// view. They are a batch of their own, as one that is torn may have lost just them.
    fn write_settles(&mut self) -> Result<(), StoreError> {
        let mut draft = self.draft()?;
        let settles = self.shared.lock().take_settles();
        for (slot, seqs) in &settles {
            draft.settle(&self.shared, *slot, seqs.clone());
        }
        let committed = self.commit(&draft);
        let mut state = self.shared.lock();
        match committed {
            Ok(()) => {
                for effect in draft.effects {
                    effect.apply(&mut state.index);
                }
                Ok(())
            }
            Err(error) => {
                state.return_settles(settles);
                Err(error)
            }
        }
    }

    /// Begins to copy a segment, when more bytes are dead than alive.
    fn choose(&mut self) -> Result<(), StoreError> {
        let state = self.shared.lock();
        let segments = &state.index.segments;
        let Some(victim) = segments.worth_copying(self.shared.options.slack_bytes, |id| {
            self.tidying.stuck.contains(&id)
        }) else {
            return Ok(());
        };
        let (id, first_seq, salt) = (victim.id, victim.first_seq, victim.salt);
        let limit = victim.numbers().end;
        drop(state);
        let path = self.shared.layout.segment(first_seq);
        let failed = |error| unreadable(&path, &error);
        let mut window = Window::open(&*self.shared.disk, &path).map_err(failed)?;
        let mut frames = Vec::new();
        walk(&mut window, &Header { first_seq, salt }, limit, |step| {
            let Step::Frame(at, frame) = step else { return };
            if let (Ok(offset), Ok(len)) = (u32::try_from(at), u32::try_from(frame.len)) {
                frames.push(Location {
                    segment: id,
                    offset,
                    len,
                });
            }
        })
        .map_err(failed)?;
        self.tidying.copying = Some(Copying {
            id,
            window,
            frames,
            done: 0,
        });
        Ok(())
    }

    /// Copies what is alive in the next stretch of the segment that is being copied.
    fn copy_on(&mut self) -> Result<(), StoreError> {
        let Some(mut copying) = self.tidying.copying.take() else {
            return Ok(());
        };
        let mut draft = self.draft()?;
        let mut done = copying.done;
        while draft.bytes.len() < STRIDE
            && let Some(location) = copying.frames.get(done)
        {
            done += 1;
            let state = self.shared.lock();
            let Some(segment) = state.index.segments.get(copying.id) else {
                break;
            };
            let (first_seq, salt) = (segment.first_seq, segment.salt);
            drop(state);
            let start = usize::try_from(location.offset).unwrap_or(usize::MAX);
            let frame = copying.window.parse(start, &salt);
            let frame = frame.map_err(|error| {
                let path = self.shared.layout.segment(first_seq);
                unreadable(&path, &error)
            })?;
            if let Some(frame) = frame {
                self.copy_frame(&mut draft, *location, &frame);
            }
        }
        self.commit(&draft)?;
        copying.done = done;
        let mut state = self.shared.lock();
        state.stats.copied_bytes += draft.bytes.len() as u64;
        for effect in draft.effects {
            effect.apply_to_copied(&mut state.index);
        }
        if copying.done < copying.frames.len() {
            drop(state);
            self.tidying.copying = Some(copying);
        } else if !state.index.segments.copied(copying.id) {
            self.tidying.stuck.insert(copying.id);
        }
        Ok(())
    }

    /// Appends what is still needed of one frame.
    fn copy_frame(&mut self, draft: &mut Draft, location: Location, frame: &Frame<'_>) {
        let Ok(record) = Record::decode(frame) else {
            return;
        };
        match record {
            Record::Put {
                seq,
                places,
                message,
            } => {
                let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
                self.copy_message(draft, location, seq, &names, message);
            }
            Record::Redrive {
                binding,
                from,
                message,
            } => {
                self.copy_message(draft, location, frame.seq, &[binding], message);
                self.copy_ending(draft, location.segment, binding, &[one(from)], Kind::Delete);
            }
            Record::Settle { binding, ranges } => {
                self.copy_ending(draft, location.segment, binding, &ranges, Kind::Settle);
            }
            Record::Delete { binding, seq } => {
                self.copy_ending(draft, location.segment, binding, &[one(seq)], Kind::Delete);
            }
            Record::Defer { binding, seq, info } => {
                self.copy_info(draft, location, binding, seq, Kind::Defer, |out| {
                    encode_deferral(out, binding, seq, &info);
                });
            }
            Record::DeadLetter { binding, seq, info } => {
                self.copy_info(draft, location, binding, seq, Kind::DeadLetter, |out| {
                    encode_giving_up(out, binding, seq, &info);
                });
            }
            Record::Segments(_) | Record::Retire(_) | Record::Gap => {}
        }
    }

    fn copy_message(
        &mut self,
        draft: &mut Draft,
        location: Location,
        seq: u64,
        names: &[&str],
        message: &[u8],
    ) {
        let Ok(MessageHead { received, size }) = MessageHead::decode(message) else {
            return;
        };
        let mut alive = Vec::new();
        for name in names {
            match self.still_here(location, seq, name) {
                Ok(place) => alive.extend(place.map(|place| (*name, place))),
                // Why it is where it is cannot be read: it stays where it is.
                Err(()) => return,
            }
        }
        if alive.is_empty() {
            return;
        }
        let (_, at) = draft.append(Kind::Copy, |out| {
            out.extend_from_slice(&seq.to_le_bytes());
            encode_places(
                out,
                alive.iter().map(|(name, place)| (*name, &place.placed)),
            );
            out.extend_from_slice(message);
        });
        let entry = Entry {
            seq,
            received,
            location: at,
            size,
        };
        for (_, Alive { slot, placed }) in alive {
            draft.effects.push(Effect::Copied {
                slot,
                entry,
                standing: Standing::of(&placed),
            });
        }
    }

    /// How the entry is placed now, if this is where its message lies.
    fn still_here(
        &mut self,
        location: Location,
        seq: u64,
        name: &str,
    ) -> Result<Option<Alive>, ()> {
        let state = self.shared.lock();
        let found = state.index.slot(name).and_then(|slot| {
            let (_, entry, info) = state.index.find(slot, seq)?;
            (entry.location == location).then_some((slot, info))
        });
        let Some((slot, info)) = found else {
            return Ok(None);
        };
        let info = info.map(|info| Address::of(&state.index, info));
        drop(state);
        let placed = match info {
            None => Placed::Queue,
            Some(address) => {
                self.fetcher.forget();
                let address = address.ok_or(())?;
                let info = self.fetcher.frame(address, |frame| info_in(frame, name));
                match info.map_err(drop)? {
                    Info::Deferred(info) => Placed::Deferred(info),
                    Info::Dead(info) => Placed::Dead(info),
                }
            }
        };
        Ok(Some(Alive { slot, placed }))
    }

    /// Says again that entries are gone, as far as another segment may still hold them.
    fn copy_ending(
        &self,
        draft: &mut Draft,
        from: u32,
        name: &str,
        ranges: &[SeqRange],
        kind: Kind,
    ) {
        let state = self.shared.lock();
        let Some(slot) = state.index.slot(name) else {
            return;
        };
        let segments = &state.index.segments;
        let needed = |range: &&SeqRange| segments.holders(**range, from).next().is_some();
        let ranges: Vec<SeqRange> = ranges.iter().filter(needed).copied().collect();
        drop(state);
        let Some(first) = ranges.first() else {
            return;
        };
        let (_, at) = draft.append(kind, |out| match kind {
            Kind::Delete => encode_delete(out, name, first.start),
            _ => encode_settle(out, name, &ranges),
        });
        draft.effects.extend(ranges.iter().map(|range| Effect::End {
            slot,
            range: *range,
            segment: at.segment,
        }));
    }

    /// Says again why an entry is where it is, if this is where it says so.
    fn copy_info(
        &self,
        draft: &mut Draft,
        location: Location,
        name: &str,
        seq: u64,
        kind: Kind,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let state = self.shared.lock();
        let here = state.index.slot(name).filter(|slot| {
            let found = state.index.find(*slot, seq);
            found.is_some_and(|(_, _, info)| info == Some(location))
        });
        drop(state);
        if let Some(slot) = here {
            let (_, info) = draft.append(kind, write);
            draft.effects.push(Effect::InfoMoved { slot, seq, info });
        }
    }
}

impl Effect {
    /// Applies what copying changes: an entry that was settled meanwhile stays gone. The record
    /// that says so is written after the copy.
    fn apply_to_copied(self, index: &mut Index) {
        match self {
            Self::Copied { slot, entry, .. } if index.find(slot, entry.seq).is_none() => {
                let new = entry.location.segment;
                index.segments.add_copy(new, entry.seq, None);
            }
            effect => effect.apply(index),
        }
    }
}

const fn one(seq: u64) -> SeqRange {
    SeqRange {
        start: seq,
        end: seq,
    }
}
