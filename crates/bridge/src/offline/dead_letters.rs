//! The dead letters in a data folder: what was given up on, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{
    BindingKey, Clock as _, PayloadFormat, Seated, Seq, SystemClock, Timestamp, View,
};
use bridge_queue::Snapshot;
use bridge_runtime::{DeadLetter, DeadLetterFilter, DeadLetterId};
use serde_json::{Value, json};

use super::{EXIT_BAD, damage_line, holder_json, holder_line, looking_into};
use crate::cli;
use crate::dead_letters::{
    COLUMNS, Counted, Entry, EntryId, Filter, How, ListArgs, Output, render_whole,
};
use crate::show;

/// Which one, for sorting: what is large stays on the disk meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    given_up: Timestamp,
    seq: Seq,
    binding: BindingKey,
}

/// What a list came to, with each letter as it is shown.
struct Listed<T> {
    letters: Vec<T>,
    total: usize,
    unreadable: usize,
}

/// Lists them, the newest first.
pub(crate) fn list(folder: &Path, args: &ListArgs) -> anyhow::Result<ExitCode> {
    looking_into(folder, |mut snapshot| {
        let filter = args.filter.clone().checked(SystemClock::new().wall());
        if args.json {
            let listed = newest(&mut snapshot, &filter, args.most(), summary_json);
            cli::print(&show::json(&list_json(&snapshot, &listed)))
        } else {
            let row = |letter: &DeadLetter| Entry::summary(letter).row();
            let listed = newest(&mut snapshot, &filter, args.most(), row);
            cli::print(&render_list(&snapshot, &listed))
        }
    })
}

/// Shows one whole, or all that one message is.
pub(crate) fn show(folder: &Path, id: &EntryId, how: How) -> anyhow::Result<ExitCode> {
    looking_into(folder, |mut snapshot| {
        let (letters, unreadable) = with_id(&mut snapshot, id);
        let Some(first) = letters.first() else {
            return not_there(folder, id, unreadable, damage_line(&snapshot));
        };
        if how.raw {
            let payload = &first.stored.message.payload;
            return cli::written(std::io::stdout().lock().write_all(payload));
        }
        if how.json {
            let letters: Vec<Value> = letters.iter().map(whole_json).collect();
            let value = json!({
                "bridge": holder_json(snapshot.holder()),
                "dead_letters": letters,
            });
            return cli::print(&show::json(&value));
        }
        let entries: Vec<_> = letters.iter().map(Entry::whole).collect();
        cli::print(&(holder_line(snapshot.holder()) + &render_whole(&entries, how.hex)))
    })
}

/// Writes them out whole, each binding's oldest first, as a bridge that runs would.
pub(crate) fn export(
    folder: &Path,
    filter: Filter,
    output: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    looking_into(folder, |mut snapshot| {
        let filter = filter.checked(SystemClock::new().wall());
        let mut output = Output::open(output)?;
        let mut counted = Counted::default();
        let mut write = |entry: &Value| {
            let line = format!("{entry}\n");
            counted.count(line.as_bytes());
            output.line(line.as_bytes())
        };
        let mut ended = Ok(true);
        let mut bindings = snapshot.bindings();
        bindings.retain(|key| filter.takes_binding(key));
        for binding in &bindings {
            snapshot.visit(binding, View::DeadLetters, |seq, seated| {
                if !matches!(ended, Ok(true)) {
                    return;
                }
                match seated.map(|seated| letter(binding, seated)) {
                    Some(Ok(letter)) if filter.takes(&letter.stored, &letter.info) => {
                        let entry = serde_json::to_value(Entry::whole(&letter));
                        ended = entry.map_err(Into::into).and_then(|entry| write(&entry));
                    }
                    Some(Err(())) => {
                        let id = DeadLetterId {
                            binding: binding.clone(),
                            seq,
                        };
                        ended = write(&json!({ "id": id.to_string(), "unreadable": true }));
                    }
                    _ => {}
                }
            });
        }
        if !ended? {
            return Ok(ExitCode::SUCCESS);
        }
        output.finish()?;
        cli::eprint(damage_line(&snapshot))?;
        counted.told()
    })
}

/// The newest `limit` dead letters. Of the others no more is in memory than one at a time, and of
/// those no more than `show` makes of each.
fn newest<T>(
    snapshot: &mut Snapshot,
    filter: &DeadLetterFilter,
    limit: usize,
    show: impl Fn(&DeadLetter) -> T,
) -> Listed<T> {
    let (mut total, mut unreadable) = (0, 0);
    let mut newest = BTreeSet::new();
    let mut bindings = snapshot.bindings();
    bindings.retain(|key| filter.takes_binding(key));
    for binding in &bindings {
        snapshot.visit(binding, View::DeadLetters, |seq, seated| {
            match seated.map(|seated| letter(binding, seated)) {
                Some(Ok(letter)) if filter.takes(&letter.stored, &letter.info) => {
                    total += 1;
                    newest.insert(Found {
                        given_up: letter.info.last_refusal,
                        seq,
                        binding: letter.id.binding,
                    });
                    if newest.len() > limit {
                        newest.pop_first();
                    }
                }
                Some(Err(())) => unreadable += 1,
                _ => {}
            }
        });
    }
    let letters = newest.into_iter().rev().filter_map(|found| {
        let seated = snapshot.read(&found.binding, found.seq)?;
        Some(show(&letter(&found.binding, seated).ok()?))
    });
    Listed {
        letters: letters.collect(),
        total,
        unreadable,
    }
}

/// `Err` for one that cannot be read.
fn letter(binding: &BindingKey, seated: Seated) -> Result<DeadLetter, ()> {
    let stored = seated.message.map_err(drop)?;
    Ok(DeadLetter {
        id: DeadLetterId {
            binding: binding.clone(),
            seq: seated.seq,
        },
        stored,
        info: seated.dead_letter.ok_or(())?,
    })
}

/// One dead letter, or those of one message, which may be one at several bindings, and how many of
/// all cannot be read, so that no one knows whose they are.
fn with_id(snapshot: &mut Snapshot, id: &EntryId) -> (Vec<DeadLetter>, usize) {
    let is_meant = |letter: &DeadLetter| match id {
        EntryId::Entry(id) => letter.id == *id,
        EntryId::Message(id) => letter.stored.id == *id,
    };
    let (mut letters, mut unreadable) = (Vec::new(), 0);
    for binding in snapshot.bindings() {
        snapshot.visit(&binding, View::DeadLetters, |_, seated| {
            match seated.map(|seated| letter(&binding, seated)) {
                Some(Ok(letter)) if is_meant(&letter) => letters.push(letter),
                Some(Err(())) => unreadable += 1,
                _ => {}
            }
        });
    }
    (letters, unreadable)
}

fn not_there(
    folder: &Path,
    id: &EntryId,
    unreadable: usize,
    damage: &str,
) -> anyhow::Result<ExitCode> {
    let label = cli::paint_stderr().red("error:");
    let folder = show::text(&folder.display().to_string());
    let mut text = format!("{label} there is no dead letter {id} in {folder}\n");
    text.push_str(&unreadable_line(unreadable));
    text.push_str(damage);
    cli::eprint(&text)?;
    Ok(ExitCode::from(EXIT_BAD))
}

/// A line on those that cannot be read, where there are any.
fn unreadable_line(unreadable: usize) -> String {
    if unreadable == 0 {
        return String::new();
    }
    format!("{unreadable} cannot be read: see `bridge journal verify`\n")
}

fn render_list(snapshot: &Snapshot, listed: &Listed<Vec<String>>) -> String {
    let mut out = holder_line(snapshot.holder());
    let Listed {
        letters,
        total,
        unreadable,
    } = listed;
    if letters.is_empty() && *total == 0 {
        out.push_str("no dead letters\n");
    } else {
        out.push_str(&show::table(&COLUMNS, letters));
    }
    if *total > letters.len() {
        let shown = letters.len();
        let _ = writeln!(out, "{shown} of {total}; more with --limit or --all");
    }
    out.push_str(&unreadable_line(*unreadable));
    out.push_str(damage_line(snapshot));
    out
}

fn list_json(snapshot: &Snapshot, listed: &Listed<Value>) -> Value {
    json!({
        "bridge": holder_json(snapshot.holder()),
        "undamaged": snapshot.report().is_clean(),
        "total": listed.total,
        "unreadable": listed.unreadable,
        "dead_letters": listed.letters,
    })
}

fn summary_json(letter: &DeadLetter) -> Value {
    let DeadLetter { id, stored, info } = letter;
    json!({
        "dead_letter_id": id.to_string(),
        "id": stored.id.to_string(),
        "cause": stored.cause.map(|cause| cause.id.to_string()),
        "redrives": stored.redrives(),
        "route": id.binding.route.as_str(),
        "binding": id.binding.binding.as_str(),
        "reason": info.reason.as_str(),
        "reason_code": info.reason.code().map(bridge_core::ReasonCode::get),
        "reason_string": info.reason_string,
        "first_refusal": info.first_refusal.to_string(),
        "last_refusal": info.last_refusal.to_string(),
        "attempts": info.attempts,
        "session": stored.session.as_str(),
        "received": stored.received.to_string(),
        "topic": stored.message.topic.as_str(),
        "qos": stored.message.qos as u8,
        "retain": stored.message.retain,
        "payload_bytes": stored.message.payload.len(),
    })
}

fn whole_json(letter: &DeadLetter) -> Value {
    let message = &letter.stored.message;
    let properties = &message.properties;
    let pairs = properties.user_properties.iter();
    let pairs: Vec<Value> = pairs.map(|(name, value)| json!([name, value])).collect();
    let mut value = summary_json(letter);
    if let Value::Object(fields) = &mut value {
        let shown = json!({
            "message_expiry": properties.message_expiry,
            "payload_format": properties.payload_format.map(|format| match format {
                PayloadFormat::Bytes => "bytes",
                PayloadFormat::Utf8 => "utf8",
            }),
            "content_type": properties.content_type,
            "response_topic": properties.response_topic,
            "correlation_data_base64": properties
                .correlation_data
                .as_ref()
                .map(|bytes| STANDARD.encode(bytes)),
            "user_properties": pairs,
        });
        fields.insert("properties".to_owned(), shown);
        let text = std::str::from_utf8(&message.payload).ok();
        fields.insert("payload_text".to_owned(), json!(text));
        let encoded = STANDARD.encode(&message.payload);
        fields.insert("payload_base64".to_owned(), json!(encoded));
    }
    value
}
