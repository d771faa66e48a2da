//! Dead letters on their way out of a bridge and into one.

use std::time::{Duration, Instant};

use bridge_core::Message;
use bridge_runtime::{
    Control, ControlError, DeadLetterFilter, DeadLetterId, DeleteOutcome, DeliveryMode, Exported,
    Import, ImportOutcome, InjectTarget, JobKind, RedriveOptions, RedriveOutcome, Selection, Total,
};

use crate::fixture::{Fixture, Setup, key, name, wait_until};
use crate::job::{ended, refused};

/// What can be read of an export, to be imported.
async fn exported(control: &Control, filter: &DeadLetterFilter) -> Vec<Import> {
    let mut export = control.export(filter.clone()).await.unwrap();
    let mut imports = Vec::new();
    while let Some(exported) = export.next().await.unwrap() {
        if let Exported::DeadLetter(letter) = exported {
            imports.push(Import {
                binding: letter.id.binding,
                stored: (*letter.stored).clone(),
                info: letter.info,
            });
        }
    }
    imports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_exported_can_be_imported_and_twice_changes_nothing() {
    let fixture = refused(20).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let mut imports = exported(&control, &filter).await;
    assert_eq!(imports.len(), 20);
    let job = control.start_job(JobKind::Delete, filter.clone()).unwrap();
    ended(&fixture, &job).await;
    imports[19].binding = key("gone");
    let outcomes = control
        .importer()
        .unwrap()
        .import(imports.clone())
        .await
        .unwrap();
    assert_eq!(outcomes[19], ImportOutcome::BindingNotFound);
    for (import, outcome) in imports.iter().zip(&outcomes).take(19) {
        let ImportOutcome::Imported(id) = outcome else {
            panic!("{outcome:?}");
        };
        let letter = control.get(id).await.unwrap().unwrap();
        let cause = letter.stored.cause.unwrap();
        assert_eq!((cause.id, cause.redrives), (import.stored.id, 0));
        assert_eq!(letter.stored.message, import.stored.message);
        assert_eq!(
            (&letter.info, letter.stored.received),
            (&import.info, import.stored.received)
        );
    }
    let again = control.importer().unwrap().import(imports).await.unwrap();
    let already = |o: &ImportOutcome| matches!(o, ImportOutcome::AlreadyImported(_));
    assert_eq!(again.iter().filter(|o| already(o)).count(), 19);
    assert_eq!(
        control.list(&filter, 1, None).await.unwrap().total,
        Total::Exact(19)
    );
    fixture.ledger_balances(0).await;
    let job = control.start_job(JobKind::Redrive, filter).unwrap();
    ended(&fixture, &job).await;
    fixture.waits(0, (0, 0, 0)).await;
    assert_eq!(fixture.sink().accepted(), (0..19).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_imported_and_deleted_is_imported_again_but_not_what_was_redriven() {
    let fixture = refused(2).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let imports = exported(&control, &filter).await;
    let import = async || {
        let mut ids = Vec::new();
        let mut words = Vec::new();
        for outcome in control
            .importer()
            .unwrap()
            .import(imports.clone())
            .await
            .unwrap()
        {
            words.push(outcome.as_str());
            if let ImportOutcome::Imported(id) | ImportOutcome::AlreadyImported(id) = outcome {
                ids.push(id);
            }
        }
        (words, ids)
    };
    let (words, ids) = import().await;
    assert_eq!(words, ["imported", "imported"]);
    let one = |id: &DeadLetterId| Selection::Ids(vec![id.clone()]);
    control.delete(one(&ids[0])).await.unwrap();
    let options = RedriveOptions::default();
    control.redrive(one(&ids[1]), options).await.unwrap();
    let (words, again) = import().await;
    assert_eq!(words, ["imported", "already_imported"]);
    assert_eq!(import().await.0, ["already_imported", "already_imported"]);
    assert!(again[0] != ids[0] && control.get(&again[0]).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_a_stop_ends_says_of_each_line_whether_it_was_kept() {
    let fixture = refused(400).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let imports = exported(&control, &filter).await;
    fixture.store.answer(false);
    let before = fixture.store.puts();
    let importing = tokio::spawn(control.importer().unwrap().import(imports));
    let store = fixture.store.clone();
    wait_until("a put", || store.puts() > before).await;
    let Fixture { runtime, data, .. } = fixture;
    let stop = tokio::spawn(runtime.shutdown(Duration::from_secs(20)));
    wait_until("it stops", || control.jobs() == Err(ControlError::Stopping)).await;
    store.answer(true);
    let outcomes = importing.await.unwrap().unwrap();
    stop.await.unwrap().unwrap();
    drop((store, fixture.store));
    let kept = |o: &&ImportOutcome| matches!(o, ImportOutcome::Imported(_));
    let kept = outcomes.iter().filter(kept).count();
    assert_eq!(
        outcomes
            .iter()
            .skip(kept)
            .find(|o| **o != ImportOutcome::Stopping),
        None,
        "after the first that was not kept none was"
    );
    assert!(kept > 0 && kept < 400, "{kept}");
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    assert_eq!(fixture.waiting(0), (0, 0, 400 + kept as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_calls_no_longer_than_for_messages() {
    const DRAIN: Duration = Duration::from_secs(1);
    let fixture = refused(1).await;
    let control = fixture.runtime.control();
    let imports = exported(&control, &DeadLetterFilter::default()).await;
    fixture.store.answer(false);
    let before = fixture.store.puts();
    let importing = tokio::spawn(control.importer().unwrap().import(imports));
    let route = name("route");
    let message = Message::new("t".parse().unwrap(), "1");
    let target = InjectTarget::Pipeline;
    let injecting = {
        let control = control.clone();
        tokio::spawn(async move { control.inject(&route, message, target, None).await })
    };
    let store = fixture.store.clone();
    let puts = || store.puts();
    wait_until("both puts", || puts() == before + 2).await;
    let began = Instant::now();
    let stop = tokio::spawn(fixture.runtime.shutdown(DRAIN));
    assert_eq!(
        importing.await.unwrap(),
        Ok(vec![ImportOutcome::Unanswered])
    );
    assert!(!injecting.await.unwrap().unwrap().stored);
    store.answer(true);
    stop.await.unwrap().unwrap();
    let took = began.elapsed();
    // Less than a test message is waited for in any case.
    assert!((DRAIN..9 * DRAIN).contains(&took), "{took:?}");
}

/// A word of its own: of what is told to stay, the entry does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i23_what_the_disk_did_not_answer_to_the_end_of_a_stop_is_told_as_that() {
    let fixture = refused(2).await;
    let control = fixture.runtime.control();
    let imports = exported(&control, &DeadLetterFilter::default()).await;
    let page = control.list(&DeadLetterFilter::default(), 2, None).await;
    let entries = page.unwrap().entries;
    assert_eq!((imports.len(), entries.len()), (2, 2));
    let one = |n: usize| Selection::Ids(vec![entries[n].id.clone()]);
    fixture.store.answer_moves(false);
    let before = fixture.store.moves();
    let (redriving, deleting) = {
        let (redrive, delete) = (one(0), one(1));
        let (first, second) = (control.clone(), control);
        (
            tokio::spawn(async move { first.redrive(redrive, RedriveOptions::default()).await }),
            tokio::spawn(async move { second.delete(delete).await }),
        )
    };
    let store = fixture.store.clone();
    wait_until("both moves", || store.moves() == before + 2).await;
    let stop = tokio::spawn(fixture.runtime.shutdown(Duration::from_secs(1)));
    let redriven = redriving.await.unwrap().unwrap();
    let deleted = deleting.await.unwrap().unwrap();
    assert_eq!(redriven[0].outcome, RedriveOutcome::Unanswered);
    assert_eq!(deleted[0].outcome, DeleteOutcome::Unanswered);
    store.answer_moves(true);
    stop.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_import_is_under_way_at_a_time_also_when_who_asked_has_gone() {
    let fixture = refused(1).await;
    let control = fixture.runtime.control();
    let imports = exported(&control, &DeadLetterFilter::default()).await;
    let importer = control.importer().unwrap();
    let another = || control.importer().err();
    assert_eq!(another(), Some(ControlError::ImportUnderWay));
    fixture.store.answer(false);
    let before = fixture.store.puts();
    let asked = tokio::spawn(importer.import(imports));
    let puts = || fixture.store.puts();
    wait_until("a put", || puts() > before).await;
    asked.abort();
    asked.await.unwrap_err();
    assert_eq!(another(), Some(ControlError::ImportUnderWay));
    fixture.store.answer(true);
    wait_until("its end", || another().is_none()).await;
    assert_eq!(fixture.waiting(0), (0, 0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_imports_share_what_it_costs_to_make_one_durable_and_keep_their_order() {
    let fixture = refused(100).await;
    let control = fixture.runtime.control();
    let mut imports = exported(&control, &DeadLetterFilter::default()).await;
    // The same once more, before anything is known of the first.
    imports.push(imports[0].clone());
    fixture.store.answer(false);
    let before = fixture.store.puts();
    let importing = tokio::spawn(control.importer().unwrap().import(imports));
    let puts = || fixture.store.puts();
    wait_until("all are on their way", || puts() == before + 100).await;
    fixture.store.answer(true);
    let outcomes = importing.await.unwrap().unwrap();
    let mut ids = Vec::new();
    for outcome in &outcomes[..100] {
        let ImportOutcome::Imported(id) = outcome else {
            panic!("{outcome:?}");
        };
        ids.push(id.clone());
    }
    assert!(ids.is_sorted_by(|a, b| a.seq < b.seq));
    assert_eq!(
        outcomes[100],
        ImportOutcome::AlreadyImported(ids[0].clone())
    );
    assert_eq!(puts(), before + 100);
    assert_eq!(fixture.waiting(0), (0, 0, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_waits_for_a_store_that_fails_and_goes_on_in_order() {
    let fixture = refused(20).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let imports = exported(&control, &filter).await;
    fixture.store.fail(true);
    let importing = tokio::spawn(control.importer().unwrap().import(imports));
    let failures = || fixture.metric("store_failures_total", 0, None);
    wait_until("the store fails", || failures() > 0).await;
    fixture.store.fail(false);
    let outcomes = importing.await.unwrap().unwrap();
    let imported = |o: &ImportOutcome| matches!(o, ImportOutcome::Imported(_));
    assert!(outcomes.iter().all(imported), "{outcomes:?}");
    let payloads = exported(&control, &filter).await.into_iter();
    let payloads: Vec<_> = payloads.map(|i| i.stored.message.payload).collect();
    assert_eq!(payloads[..20], payloads[20..]);
}
