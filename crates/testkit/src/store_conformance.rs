//! What every [`Store`] has to pass: its contract, as tests that know nothing of the store.
//!
//! A crate with a store of its own implements [`StoreUnderTest`] for it and writes
//! `bridge_testkit::store_conformance_tests!(my_store())` in a module of its tests.

mod dead_letters;
mod entries;

use std::sync::Arc;

use bridge_core::{
    Cause, Destination, Durability, Message, Move, Moved, PayloadFormat, Pending, Placement,
    Properties, QoS, Quantity, ReadLimit, Seq, Store, Topic, View,
};
use futures_executor::block_on;

pub use dead_letters::{
    dead_letters_are_found_and_counted_by_reason_and_time, dead_letters_are_read_backwards_as_well,
    i21_what_leaves_the_dead_letters_is_counted_no_more,
};
use entries::{
    ALL, SIZE, apply, dead, defer, delete, done, given_up, id, ids, key, message, put, queue, read,
    redrive, refused, seqs,
};

/// A store, and what its test can do to it from the outside.
pub trait StoreUnderTest {
    /// The store as it is now.
    fn store(&self) -> &dyn Store;

    /// Closes the store and opens it again on what it left; says whether that is possible.
    fn reopen(&mut self) -> bool {
        false
    }

    /// Makes puts fail, or work again; says whether that is possible.
    fn set_failing(&mut self, _failing: bool) -> bool {
        false
    }
}

/// Makes a test of each requirement, each on a new store that the expression makes.
#[macro_export]
macro_rules! store_conformance_tests {
    ($new:expr) => {
        $crate::store_conformance_tests!(@ $new;
            a_queue_is_read_in_the_order_of_its_puts
            a_message_comes_back_as_it_was
            i09_a_put_for_several_bindings_is_at_each
            a_settle_takes_effect_at_once
            a_settle_never_touches_a_dead_letter
            i09_an_entry_is_in_one_view
            i10_a_later_refusal_replaces_what_is_known_of_a_deferral
            a_refusal_on_the_live_path_goes_straight_to_the_dead_letters
            i08_what_lines_up_behind_deferred_messages_is_deferred_by_its_put
            i21_a_redrive_goes_to_the_tail_under_a_new_id
            i21_of_two_redrives_one_moves_the_entry
            i21_a_message_that_is_refused_again_counts_its_redrives
            i22_a_move_at_another_binding_changes_nothing
            i13_usage_counts_entries_and_bytes
            a_page_is_bounded_and_goes_on_where_the_last_one_ended
            dead_letters_are_read_backwards_as_well
            dead_letters_are_found_and_counted_by_reason_and_time
            i21_what_leaves_the_dead_letters_is_counted_no_more
            every_binding_with_something_waiting_is_listed
            nothing_overtakes_a_failure
            i07_what_was_acknowledged_is_there_after_reopening
        );
    };
    (@ $new:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::store_conformance::$name(&mut $new);
            }
        )*
    };
}

/// Puts that are all admitted before the first is durable keep the order of the calls.
pub fn a_queue_is_read_in_the_order_of_its_puts(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let pending: Vec<Pending<Seq>> = (0..50)
        .map(|number| store.put(message(number), vec![queue("a")]))
        .collect();
    let numbers: Vec<Seq> = pending.into_iter().map(|p| block_on(p).unwrap()).collect();
    assert!(numbers.is_sorted());
    assert_eq!(seqs(store, View::Queue), numbers);
    assert_eq!(
        ids(store, "a", View::Queue),
        (0..50).map(id).collect::<Vec<_>>()
    );
}

/// All that MQTT 5 lets a message say, binary payloads included.
pub fn a_message_comes_back_as_it_was(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let mut stored = (*message(1)).clone();
    stored.cause = Some(Cause {
        id: id(9),
        redrives: 3,
    });
    stored.message = Message {
        topic: Topic::parse("ä//$x/√").unwrap(),
        payload: vec![0, 255, 10, 13].into(),
        qos: QoS::ExactlyOnce,
        retain: true,
        properties: Properties {
            payload_format: Some(PayloadFormat::Bytes),
            message_expiry: Some(u32::MAX),
            content_type: Some(String::new()),
            response_topic: Some("answer".to_owned()),
            correlation_data: Some(vec![0].into()),
            user_properties: vec![("k".into(), "1".into()), ("k".into(), String::new())],
        },
    };
    let mut empty = (*message(2)).clone();
    empty.message.payload = vec![].into();
    empty.message.qos = QoS::AtMostOnce;
    let expected = [Arc::new(stored), Arc::new(empty)];
    for stored in &expected {
        block_on(store.put(stored.clone(), vec![queue("a")])).unwrap();
    }
    let page = read(store, "a", View::Queue);
    let found: Vec<_> = page
        .into_iter()
        .map(|seated| seated.message.unwrap())
        .collect();
    assert_eq!(found, expected);
}

/// One message, one number, several bindings; each settles on its own.
pub fn i09_a_put_for_several_bindings_is_at_each(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let to = vec![queue("a"), queue("b"), queue("c")];
    let seq = block_on(store.put(message(1), to)).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(ids(store, name, View::Queue), [id(1)]);
    }
    store.settle(&key("b"), &[seq]);
    assert_eq!(ids(store, "a", View::Queue), [id(1)]);
    assert_eq!(ids(store, "b", View::Queue), []);
    assert_eq!(ids(store, "c", View::Queue), [id(1)]);
}

/// Out of the queue and the deferred messages; what is not there is ignored.
pub fn a_settle_takes_effect_at_once(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let all: Vec<Seq> = (0..4).map(|number| put(store, number)).collect();
    done(store, defer(all[1], 1));
    let unknown = Seq::new(all[3].get() + 1_000);
    store.settle(&key("a"), &[all[2], all[1], unknown, all[2]]);
    store.settle(&key("unknown"), &all);
    let usage = store.usage(&key("a"));
    assert_eq!((usage.queue.entries, usage.deferred.entries), (2, 0));
    assert_eq!(seqs(store, View::Queue), [all[0], all[3]]);
    assert_eq!(seqs(store, View::Deferred), []);
    block_on(store.flush()).unwrap();
}

/// It was given up on, and stays until an operator says otherwise.
pub fn a_settle_never_touches_a_dead_letter(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let seq = put(store, 1);
    done(store, dead(seq));
    store.settle(&key("a"), &[seq]);
    block_on(store.flush()).unwrap();
    assert_eq!(seqs(store, View::DeadLetters), [seq]);
}

/// Every move from every view.
pub fn i09_an_entry_is_in_one_view(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let views = |store: &dyn Store, seq: Seq| {
        [View::Queue, View::Deferred, View::DeadLetters]
            .map(|view| seqs(store, view).contains(&seq))
    };
    let seq = put(store, 1);
    assert_eq!(views(store, seq), [true, false, false]);
    assert_eq!(apply(store, delete(seq)), Moved::NotThere);
    assert_eq!(apply(store, redrive(seq, 7)), Moved::NotThere);
    assert_eq!(done(store, defer(seq, 1)), seq);
    assert_eq!(views(store, seq), [false, true, false]);
    assert_eq!(apply(store, delete(seq)), Moved::NotThere);
    assert_eq!(apply(store, redrive(seq, 7)), Moved::NotThere);
    assert_eq!(done(store, dead(seq)), seq);
    assert_eq!(views(store, seq), [false, false, true]);
    assert_eq!(apply(store, defer(seq, 1)), Moved::NotThere);
    assert_eq!(apply(store, dead(seq)), Moved::NotThere);
    assert_eq!(done(store, delete(seq)), seq);
    assert_eq!(views(store, seq), [false; 3]);
    for change in [defer(seq, 1), dead(seq), delete(seq), redrive(seq, 7)] {
        assert_eq!(apply(store, change), Moved::NotThere);
    }
}

/// The window counts from the first refusal, which is kept as it is told.
pub fn i10_a_later_refusal_replaces_what_is_known_of_a_deferral(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let seq = put(store, 1);
    done(store, defer(seq, 1));
    done(store, defer(seq, 2));
    let page = read(store, "a", View::Deferred);
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].deferred, Some(refused(2)));
    assert_eq!(page[0].dead_letter, None);
    assert_eq!(page[0].message.as_ref().unwrap().id, id(1));
}

/// At one binding a dead letter, at another in the queue, by one put.
pub fn a_refusal_on_the_live_path_goes_straight_to_the_dead_letters(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let refused = Destination {
        binding: key("a"),
        placement: Placement::DeadLetter(given_up()),
    };
    block_on(store.put(message(1), vec![refused, queue("b")])).unwrap();
    assert_eq!(ids(store, "a", View::Queue), []);
    assert_eq!(ids(store, "b", View::Queue), [id(1)]);
    let page = read(store, "a", View::DeadLetters);
    assert_eq!(page[0].dead_letter, Some(given_up()));
    assert_eq!(page[0].deferred, None);
    assert_eq!(store.usage(&key("a")).oldest, None);
}

/// It never was in the queue, counts among the deferred from its admission on, and comes after them.
pub fn i08_what_lines_up_behind_deferred_messages_is_deferred_by_its_put(
    test: &mut dyn StoreUnderTest,
) {
    let store = test.store();
    let first = put(store, 1);
    done(store, defer(first, 1));
    let behind = Destination {
        binding: key("a"),
        placement: Placement::Deferred(refused(0)),
    };
    let pending = store.put(message(2), vec![behind]);
    assert_eq!(store.usage(&key("a")).deferred.entries, 2);
    let second = block_on(pending).unwrap();
    assert_eq!(store.usage(&key("a")).deferred.entries, 2);
    assert_eq!(store.usage(&key("a")).queue, Quantity::default());
    assert_eq!(seqs(store, View::Deferred), [first, second]);
    let page = read(store, "a", View::Deferred);
    assert_eq!(page[1].deferred, Some(refused(0)));
    done(store, defer(second, 1));
    store.settle(&key("a"), &[first]);
    assert_eq!(seqs(store, View::Deferred), [second]);
    done(store, dead(second));
    assert_eq!(seqs(store, View::Deferred), []);
    assert_eq!(seqs(store, View::DeadLetters), [second]);
}

/// It goes on expiring from when it came, and names its cause.
pub fn i21_a_redrive_goes_to_the_tail_under_a_new_id(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let first = put(store, 1);
    done(store, dead(first));
    let second = put(store, 2);
    let redriven = done(store, redrive(first, 7));
    assert!(redriven > second);
    assert_eq!(ids(store, "a", View::Queue), [id(2), id(7)]);
    assert_eq!(seqs(store, View::DeadLetters), []);
    let last = read(store, "a", View::Queue).pop().unwrap();
    assert_eq!(last.seq, redriven);
    let last = last.message.unwrap();
    let cause = Cause {
        id: id(1),
        redrives: 1,
    };
    assert_eq!(last.cause, Some(cause));
    assert_eq!(last.received, message(1).received);
    assert_eq!(last.message, message(1).message);
}

/// The same number as before, and the dead letter before this one as the cause.
pub fn i21_a_message_that_is_refused_again_counts_its_redrives(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let mut seq = put(store, 1);
    for number in 7..10 {
        done(store, dead(seq));
        seq = done(store, redrive(seq, number));
    }
    done(store, dead(seq));
    block_on(store.flush()).unwrap();
    if store.durability() != Durability::Process {
        assert!(test.reopen(), "a store that survives can be opened again");
    }
    let entry = read(test.store(), "a", View::DeadLetters).remove(0);
    let stored = entry.message.unwrap();
    let cause = Cause {
        id: id(8),
        redrives: 3,
    };
    assert_eq!(
        (entry.seq, stored.id, stored.cause),
        (seq, id(9), Some(cause))
    );
}

/// Both asked for before either is answered.
pub fn i21_of_two_redrives_one_moves_the_entry(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let seq = put(store, 1);
    done(store, dead(seq));
    let both = [store.apply(redrive(seq, 7)), store.apply(redrive(seq, 8))];
    let both = both.map(|pending| block_on(pending).unwrap());
    assert!(matches!(both[0], Moved::Done { .. }), "the first call");
    assert_eq!(both[1], Moved::NotThere);
    assert_eq!(ids(store, "a", View::Queue), [id(7)]);
}

/// The same number at another binding is another entry, or none.
pub fn i22_a_move_at_another_binding_changes_nothing(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let to = vec![queue("a"), queue("b")];
    let seq = block_on(store.put(message(1), to)).unwrap();
    done(store, dead(seq));
    assert_eq!(ids(store, "b", View::Queue), [id(1)]);
    let elsewhere = |name| Move::Redrive {
        binding: key(name),
        seq,
        id: id(7),
    };
    assert_eq!(apply(store, elsewhere("b")), Moved::NotThere);
    assert_eq!(apply(store, elsewhere("unknown")), Moved::NotThere);
    assert_eq!(ids(store, "a", View::DeadLetters), [id(1)]);
}

/// Admitted puts are counted before they are durable.
pub fn i13_usage_counts_entries_and_bytes(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let counted = |entries: u64| Quantity {
        entries,
        bytes: entries * SIZE,
    };
    assert_eq!(store.usage(&key("a")), bridge_core::Usage::default());
    let pending: Vec<_> = (0..4)
        .map(|number| store.put(message(number), vec![queue("a")]))
        .collect();
    let usage = store.usage(&key("a"));
    assert_eq!(usage.queue, counted(4));
    assert_eq!(usage.oldest, Some(message(0).received));
    let all: Vec<Seq> = pending.into_iter().map(|p| block_on(p).unwrap()).collect();
    assert_eq!(store.usage(&key("a")).queue, counted(4));
    done(store, defer(all[0], 1));
    done(store, dead(all[2]));
    store.settle(&key("a"), &[all[1]]);
    let usage = store.usage(&key("a"));
    let counts = [usage.queue, usage.deferred, usage.dead_letters];
    assert_eq!(counts, [counted(1); 3]);
    assert_eq!(usage.oldest, Some(message(3).received));
    store.settle(&key("a"), &[all[3]]);
    assert_eq!(store.usage(&key("a")).oldest, None);
}

/// At least one entry is read, however small the limit.
pub fn a_page_is_bounded_and_goes_on_where_the_last_one_ended(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let all: Vec<Seq> = (0..10).map(|number| put(store, number)).collect();
    for seq in &all[5..] {
        done(store, dead(*seq));
    }
    let page = |view, after, entries, bytes| {
        let limit = ReadLimit { entries, bytes };
        let page = block_on(store.read(&key("a"), view, after, limit)).unwrap();
        page.iter().map(|seated| seated.seq).collect::<Vec<_>>()
    };
    for (view, all) in [(View::Queue, &all[..5]), (View::DeadLetters, &all[5..])] {
        assert_eq!(page(view, None, 2, u64::MAX), &all[..2]);
        assert_eq!(page(view, Some(all[1]), 100, 2 * SIZE), &all[2..4]);
        assert_eq!(page(view, Some(all[0]), 0, 0), &all[1..2]);
        assert_eq!(page(view, Some(all[4]), 100, u64::MAX), []);
    }
    let unknown = block_on(store.read(&key("unknown"), View::Queue, None, ALL)).unwrap();
    assert!(unknown.is_empty());
}

/// In whichever view; and none that is empty.
pub fn every_binding_with_something_waiting_is_listed(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let seq = put(store, 1);
    let other = block_on(store.put(message(2), vec![queue("b"), queue("c")])).unwrap();
    done(store, dead(seq));
    store.settle(&key("c"), &[other]);
    let mut bindings = store.bindings();
    bindings.sort();
    assert_eq!(bindings, [key("a"), key("b")]);
}

/// What comes behind a failed put fails as well, until the binding is resumed.
pub fn nothing_overtakes_a_failure(test: &mut dyn StoreUnderTest) {
    put(test.store(), 1);
    if !test.set_failing(true) {
        return;
    }
    let store = test.store();
    let both = vec![queue("a"), queue("b")];
    let failed = [
        store.put(message(2), both),
        store.put(message(3), vec![queue("a")]),
    ];
    for pending in failed {
        block_on(pending).unwrap_err();
    }
    assert_eq!(store.usage(&key("a")).queue.entries, 1);
    assert!(test.set_failing(false));
    let store = test.store();
    for name in ["a", "b"] {
        let pending = store.put(message(4), vec![queue(name)]);
        block_on(pending).expect_err("it would overtake what failed");
    }
    block_on(store.put(message(5), vec![queue("c")])).expect("nothing failed there");
    store.resume(&key("a"));
    put(store, 2);
    block_on(store.put(message(4), vec![queue("b")])).expect_err("only one was resumed");
    assert_eq!(ids(store, "a", View::Queue), [id(1), id(2)]);
    assert_eq!(ids(store, "b", View::Queue), []);
}

/// All three views, their order and what is known of each entry; for a store that survives.
pub fn i07_what_was_acknowledged_is_there_after_reopening(test: &mut dyn StoreUnderTest) {
    let store = test.store();
    let all: Vec<Seq> = (0..6).map(|number| put(store, number)).collect();
    done(store, defer(all[0], 2));
    done(store, dead(all[1]));
    done(store, dead(all[2]));
    let redriven = done(store, redrive(all[1], 77));
    store.settle(&key("a"), &[all[4]]);
    block_on(store.flush()).unwrap();
    let usage = store.usage(&key("a"));
    if store.durability() == Durability::Process {
        return;
    }
    assert!(test.reopen(), "a store that survives can be opened again");
    let store = test.store();
    assert_eq!(store.usage(&key("a")), usage);
    assert_eq!(seqs(store, View::Queue), [all[3], all[5], redriven]);
    assert_eq!(ids(store, "a", View::Queue), [id(3), id(5), id(77)]);
    let deferred = read(store, "a", View::Deferred);
    assert_eq!(deferred[0].deferred, Some(refused(2)));
    assert_eq!(seqs(store, View::Deferred), [all[0]]);
    let dead = read(store, "a", View::DeadLetters);
    assert_eq!(dead[0].dead_letter, Some(given_up()));
    assert_eq!(seqs(store, View::DeadLetters), [all[2]]);
    assert!(put(store, 9) > redriven, "numbers are never used again");
}
