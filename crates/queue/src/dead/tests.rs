use std::collections::BTreeMap;

use bridge_core::ReasonCode;
use proptest::prelude::*;

use super::*;

#[test]
fn a_dead_letter_takes_32_bytes_and_one_on_no_shelf_44() {
    assert_eq!(size_of::<(u32, Shelved)>(), 32);
    assert_eq!(size_of::<(u32, Other)>(), 44);
}

fn reasons() -> impl Strategy<Value = Reason> {
    prop_oneof![
        Just(Reason::Expired),
        Just(Reason::PacketTooLarge),
        // The same by name.
        Just(Reason::Broker(ReasonCode::new(0x95))),
        (0x80..=0xff_u8).prop_map(|code| Reason::Broker(ReasonCode::new(code))),
    ]
}

/// Instants of few periods, or of any.
fn instants() -> impl Strategy<Value = Timestamp> {
    let near = (0..3_u64, 0..4_u64).prop_map(|(period, low)| (period << 32) + low * 0x5555_5555);
    prop_oneof![4 => near, 1 => 0..u64::MAX].prop_map(Timestamp::from_millis)
}

fn whys() -> impl Strategy<Value = Why> {
    (reasons(), instants()).prop_map(|(reason, at)| Why { reason, at })
}

/// Entries of which some have lengths beyond what a shelf takes.
fn entries() -> impl Strategy<Value = Held> {
    let lens = || prop_oneof![4 => 1..600_u32, 1 => 65_000..70_000_u32];
    let size = prop_oneof![Just(0), Just(100), Just(1 << 30)];
    (lens(), size, prop::option::of((0..9_u32, lens()))).prop_map(|(overhead, size, apart)| {
        let location = Location {
            segment: 3,
            offset: 7,
            len: size + overhead,
        };
        let apart = apart.map(|(segment, len)| Location {
            segment,
            offset: 8,
            len,
        });
        Held {
            location,
            info: apart.unwrap_or(location),
            size,
        }
    })
}

fn questions() -> impl Strategy<Value = GivenUp> {
    let bound = || prop::option::of(instants());
    (prop::option::of(reasons()), bound(), bound()).prop_map(|(reason, since, until)| GivenUp {
        reason,
        since,
        until,
    })
}

type Model = BTreeMap<u64, (Held, Why)>;

fn compare(
    dead: &DeadLetters,
    model: &Model,
    which: GivenUp,
    at: u64,
) -> Result<(), TestCaseError> {
    let taken = || {
        let rows = model.iter();
        let rows = rows.filter(move |(_, (_, why))| takes(&which, *why));
        rows.map(|(seq, (held, _))| (*seq, *held))
    };
    prop_assert_eq!(dead.count(&which), taken().count() as u64);
    let from: Vec<_> = taken().filter(|(seq, _)| *seq >= at).collect();
    prop_assert_eq!(dead.iter_from(which, at).collect::<Vec<_>>(), from);
    let mut back: Vec<_> = taken().filter(|(seq, _)| *seq < at).collect();
    back.reverse();
    prop_assert_eq!(dead.iter_back(which, at).collect::<Vec<_>>(), back);
    Ok(())
}

proptest! {
    #[test]
    fn dead_letters_are_counted_and_found_as_a_look_at_each_would(
        steps in prop::collection::vec((0..300_u64, prop::option::of((entries(), whys()))), 0..600),
        questions in prop::collection::vec((questions(), 0..300_u64), 1..20),
    ) {
        let mut dead = DeadLetters::default();
        let mut model = Model::new();
        for (seq, entry) in steps {
            // An entry that is there is never put again, but taken out before.
            prop_assert_eq!(dead.get(seq), model.get(&seq).copied());
            prop_assert_eq!(dead.remove(seq), model.remove(&seq));
            if let Some((held, why)) = entry {
                dead.insert(seq, held, why);
                model.insert(seq, (held, why));
            }
            prop_assert_eq!(dead.len(), model.len());
        }
        prop_assert!(dead.shelves.len() <= SHELVES);
        prop_assert!(dead.shelves.values().all(|run| run.len() > 0));
        compare(&dead, &model, GivenUp::ALL, 0)?;
        for (which, at) in questions {
            compare(&dead, &model, which, at)?;
        }
    }
}

#[test]
fn of_reasons_and_times_without_end_there_are_only_so_many_shelves() {
    let location = Location {
        segment: 0,
        offset: 0,
        len: 10,
    };
    let held = Held {
        location,
        info: location,
        size: 0,
    };
    let mut dead = DeadLetters::default();
    for seq in 0..1_000_u64 {
        let at = Timestamp::from_millis(seq << 32);
        let reason = Reason::Expired;
        dead.insert(seq, held, Why { reason, at });
    }
    assert_eq!(dead.shelves.len(), SHELVES);
    assert_eq!(dead.count(&GivenUp::ALL), 1_000);
    let which = GivenUp {
        since: Some(Timestamp::from_millis(100 << 32)),
        until: Some(Timestamp::from_millis(500 << 32)),
        ..GivenUp::ALL
    };
    assert_eq!(dead.count(&which), 400);
    for seq in 0..1_000 {
        assert!(dead.remove(seq).is_some());
    }
    assert_eq!((dead.len(), dead.shelves.len()), (0, 0));
}
