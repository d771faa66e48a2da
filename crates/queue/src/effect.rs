//! What one record changes in the index: the same whether it was just written or read at opening.

use bridge_core::BindingKey;

use crate::codec::Malformed;
use crate::index::{Index, SlotId, Standing};
use crate::record::{MessageHead, Record, SeqRange};
use crate::run::{Entry, Location};

/// One change. A record makes one or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// An entry comes to be.
    Place {
        slot: SlotId,
        entry: Entry,
        standing: Standing,
    },
    /// An entry is where it was, and lies elsewhere now, its circumstances too.
    Copied {
        slot: SlotId,
        entry: Entry,
        standing: Standing,
    },
    /// An entry moves forward; its circumstances lie at `info`.
    Advance {
        slot: SlotId,
        seq: u64,
        standing: Standing,
        info: Location,
    },
    /// The circumstances of an entry lie elsewhere now.
    InfoMoved {
        slot: SlotId,
        seq: u64,
        info: Location,
    },
    /// Entries are gone; the record that says so lies in `segment`.
    End {
        slot: SlotId,
        range: SeqRange,
        segment: u32,
    },
}

impl Effect {
    pub(crate) fn apply(self, index: &mut Index) {
        match self {
            // Twice in the journal only when moving it to another segment was cut short.
            Self::Place {
                slot,
                entry,
                standing,
            } => index.place_new(slot, entry, standing),
            Self::Copied {
                slot,
                entry,
                standing,
            } => {
                let old = index.find(slot, entry.seq);
                let old = old.map(|(_, old, _)| old.location.segment);
                index.place(slot, entry, standing, entry.location);
                let new = entry.location.segment;
                index.segments.add_copy(new, entry.seq, old);
            }
            Self::Advance {
                slot,
                seq,
                standing,
                info,
            } => {
                index.advance(slot, seq, standing, info);
            }
            Self::InfoMoved { slot, seq, info } => index.move_info(slot, seq, info),
            Self::End {
                slot,
                range,
                segment,
            } => {
                index.remove_range(slot, range);
                index.segments.add_ending(segment, range);
            }
        }
    }
}

/// The effects of a record that lies at `location` in a frame numbered `frame_seq`.
pub(crate) fn effects(
    index: &mut Index,
    frame_seq: u64,
    location: Location,
    record: &Record<'_>,
) -> Result<Vec<Effect>, Malformed> {
    let mut slot = |name: &str| {
        if let Some(slot) = index.slot(name) {
            return Ok(slot);
        }
        let key: BindingKey = name
            .parse()
            .map_err(|_| Malformed("the name of a binding is none"))?;
        Ok(index.intern(&key))
    };
    let segment = location.segment;
    let one = |seq| SeqRange {
        start: seq,
        end: seq,
    };
    Ok(match record {
        Record::Put {
            seq,
            places,
            message,
        } => {
            let MessageHead { received, size } = MessageHead::decode(message)?;
            let entry = Entry {
                seq: *seq,
                received,
                location,
                size,
            };
            let mut effects = Vec::with_capacity(places.len());
            for (name, placed) in places {
                let slot = slot(name)?;
                let standing = Standing::of(placed);
                effects.push(if *seq == frame_seq {
                    Effect::Place {
                        slot,
                        entry,
                        standing,
                    }
                } else {
                    Effect::Copied {
                        slot,
                        entry,
                        standing,
                    }
                });
            }
            effects
        }
        Record::Settle { binding, ranges } => {
            let slot = slot(binding)?;
            let end = |range: &SeqRange| Effect::End {
                slot,
                range: *range,
                segment,
            };
            ranges.iter().map(end).collect()
        }
        Record::Defer { binding, seq, .. } => vec![Effect::Advance {
            slot: slot(binding)?,
            seq: *seq,
            standing: Standing::Deferred,
            info: location,
        }],
        Record::DeadLetter { binding, seq, info } => vec![Effect::Advance {
            slot: slot(binding)?,
            seq: *seq,
            standing: Standing::DeadLetter(info.into()),
            info: location,
        }],
        Record::Redrive {
            binding,
            from,
            message,
        } => {
            let MessageHead { received, size } = MessageHead::decode(message)?;
            let slot = slot(binding)?;
            let entry = Entry {
                seq: frame_seq,
                received,
                location,
                size,
            };
            vec![
                Effect::End {
                    slot,
                    range: one(*from),
                    segment,
                },
                Effect::Place {
                    slot,
                    entry,
                    standing: Standing::Queue,
                },
            ]
        }
        Record::Delete { binding, seq } => vec![Effect::End {
            slot: slot(binding)?,
            range: one(*seq),
            segment,
        }],
        Record::Segments(_) | Record::Retire(_) | Record::Gap => Vec::new(),
    })
}
