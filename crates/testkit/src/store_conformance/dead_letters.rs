//! Reading and counting dead letters by why and when they were given up on.

use bridge_core::{
    DeadLetterInfo, Destination, Durability, GivenUp, Move, Placement, ReadFrom, ReadLimit, Reason,
    ReasonCode, Seq, Store, Timestamp,
};
use futures_executor::block_on;

use super::StoreUnderTest;
use super::entries::{
    ALL, SIZE, dead, dead_letters, defer, delete, done, given_up, id, key, message, put, redrive,
};

/// Last entry first; bounded like a page that is read forwards.
pub fn dead_letters_are_read_backwards_as_well(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let all: Vec<Seq> = (0..10).map(|number| put(store, number)).collect();
    done(store, dead(all[7]));
    done(store, dead(all[2]));
    done(store, dead(all[5]));
    done(store, defer(all[1], 1));
    let page = |before, entries, bytes| {
        let limit = ReadLimit { entries, bytes };
        let page = dead_letters(store, GivenUp::ALL, ReadFrom::Before(before), limit);
        page.iter().map(|seated| seated.seq).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 100, u64::MAX), [all[7], all[5], all[2]]);
    assert_eq!(page(None, 2, u64::MAX), [all[7], all[5]]);
    assert_eq!(page(Some(all[7]), 100, SIZE), [all[5]]);
    assert_eq!(page(Some(all[6]), 0, 0), [all[5]]);
    assert_eq!(page(Some(all[2]), 100, u64::MAX), []);
    let entry = dead_letters(store, GivenUp::ALL, ReadFrom::Before(None), ALL).remove(0);
    assert_eq!(entry.message.unwrap().id, id(7));
    assert_eq!(entry.dead_letter, Some(given_up()));
    let unknown = key("unknown");
    let none = store.read_dead_letters(&unknown, GivenUp::ALL, ReadFrom::Before(None), ALL);
    assert!(block_on(none).unwrap().is_empty());
    let none = store.count_dead_letters(&unknown, GivenUp::ALL);
    assert_eq!(block_on(none), Ok(0));
}

/// Whether they came there by a put or by a move, and in whichever order they were given up on; so
/// it is after reopening, too.
pub fn dead_letters_are_found_and_counted_by_reason_and_time(test: &mut dyn StoreUnderTest) {
    let broker = |code| Reason::Broker(ReasonCode::new(code));
    // Far apart, and by a millisecond.
    let all = [
        (Reason::Expired, 5_000),
        (broker(0x87), 1 << 40),
        (Reason::PacketTooLarge, 4_999),
        (broker(0x95), 5_001),
        (broker(0x87), 5_000),
        (Reason::Expired, u64::MAX),
        (broker(0x87), 0),
    ];
    let store = test.store();
    let infos = all.map(|(reason, at)| DeadLetterInfo {
        reason,
        last_refusal: Timestamp::from_millis(at),
        ..given_up()
    });
    let mut numbers = Vec::new();
    for (number, info) in (0..).zip(&infos) {
        let (binding, info) = (key("a"), info.clone());
        numbers.push(if number % 2 == 0 {
            let placement = Placement::DeadLetter(info);
            let to = vec![Destination { binding, placement }];
            block_on(store.put(message(number), to)).unwrap()
        } else {
            let seq = put(store, number);
            done(store, Move::DeadLetter { binding, seq, info })
        });
    }
    let at = Timestamp::from_millis;
    let instants = [0, 1, 4_999, 5_000, 5_001, 5_002, 1 << 40, u64::MAX].map(at);
    let bounds = || [None].into_iter().chain(instants.map(Some));
    let reasons = [
        None,
        Some(broker(0x87)),
        Some(broker(0x95)),
        Some(broker(0x80)),
    ];
    let reasons = reasons.into_iter().chain([Some(Reason::Expired)]);
    let questions = reasons.flat_map(|reason| {
        let spans = bounds().flat_map(move |since| bounds().map(move |until| (since, until)));
        spans.map(move |(since, until)| GivenUp {
            reason,
            since,
            until,
        })
    });
    let questions: Vec<GivenUp> = questions.collect();
    let compare = |store: &dyn Store| {
        for which in &questions {
            let taken = numbers.iter().zip(&infos).filter(|(_, i)| which.takes(i));
            let mut taken: Vec<Seq> = taken.map(|(seq, _)| *seq).collect();
            let count = block_on(store.count_dead_letters(&key("a"), *which));
            assert_eq!(count, Ok(taken.len() as u64), "{which:?}");
            let found = |from| {
                let page = dead_letters(store, *which, from, ALL);
                page.iter().map(|seated| seated.seq).collect::<Vec<_>>()
            };
            assert_eq!(found(ReadFrom::After(None)), taken, "{which:?}");
            taken.retain(|seq| *seq < numbers[5]);
            taken.reverse();
            assert_eq!(
                found(ReadFrom::Before(Some(numbers[5]))),
                taken,
                "{which:?}"
            );
        }
    };
    compare(store);
    if store.durability() != Durability::Process {
        assert!(test.reopen(), "a store that survives can be opened again");
        compare(test.store());
    }
}

/// By a redrive as well as by a delete.
pub fn i21_what_leaves_the_dead_letters_is_counted_no_more(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let all: Vec<Seq> = (0..4).map(|number| put(store, number)).collect();
    for seq in &all {
        done(store, dead(*seq));
    }
    let which = GivenUp {
        reason: Some(given_up().reason),
        ..GivenUp::ALL
    };
    let count = |store: &dyn Store| block_on(store.count_dead_letters(&key("a"), which)).unwrap();
    assert_eq!(count(store), 4);
    done(store, delete(all[0]));
    assert_eq!(count(store), 3);
    let redriven = done(store, redrive(all[1], 77));
    assert_eq!(count(store), 2);
    done(store, dead(redriven));
    assert_eq!(count(store), 3);
}
