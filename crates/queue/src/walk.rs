//! A walk over the bytes of one segment: frames, and what lies where frames should be.

use std::io;
use std::ops::Range;

use crate::frame::{self, Frame, Kind};
use crate::segment::{FRAMES_AT, Header};
use crate::window::Window;

/// A sound frame further on than this is none that belongs where it is.
const MAX_GAP: u64 = 1 << 32;

/// What a walk over a segment comes upon.
pub(crate) enum Step<'a> {
    /// A sound frame, and where it begins.
    Frame(usize, Frame<'a>),
    /// Bytes that are no frame, with sound frames behind them; where they begin a frame of that
    /// number should be, and so many are missing.
    Bad(Range<usize>, u64, u64),
    /// Bytes to the end of the file, the first of which should be a frame of this number.
    BadTail(usize, u64),
    /// From here on there are only records that the next segment declares void.
    Void(usize),
}

/// Walks over the frames of a segment that ends in front of the number `limit`. Returns the number
/// behind the last sound frame.
pub(crate) fn walk(
    window: &mut Window,
    header: &Header,
    limit: u64,
    mut visit: impl FnMut(Step<'_>),
) -> io::Result<u64> {
    let mut expected = header.first_seq;
    let mut budget = frame::resync_budget(window.len());
    let mut at = FRAMES_AT;
    // Behind a gap the numbers go on further up.
    let mut gap = false;
    while at < window.len() {
        match window.parse(at, &header.salt)? {
            Some(frame) if frame.seq >= limit && frame.seq >= expected => {
                visit(Step::Void(at));
                return Ok(expected);
            }
            Some(frame)
                if frame.seq == expected
                    || (gap
                        && (expected..expected.saturating_add(MAX_GAP)).contains(&frame.seq)) =>
            {
                visit(Step::Frame(at, frame));
                at += frame.len;
                expected = frame.seq + 1;
                gap = frame.kind == Kind::Gap;
            }
            Some(frame) if (expected..expected.saturating_add(MAX_GAP)).contains(&frame.seq) => {
                visit(Step::Bad(at..at, expected, frame.seq - expected));
                expected = frame.seq;
            }
            _ => {
                // Not by how much room there is: what is cut off later must not change what is found.
                let seqs = expected..expected.saturating_add(MAX_GAP).min(limit);
                let found = window.resync(at + 1, &header.salt, &seqs, &mut budget)?;
                let Some((found, seq)) = found else {
                    visit(Step::BadTail(at, expected));
                    return Ok(expected);
                };
                visit(Step::Bad(at..found, expected, seq - expected));
                at = found;
                expected = seq;
            }
        }
    }
    Ok(expected)
}
