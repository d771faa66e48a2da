//! `bridge dead-letters`: what was given up on, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{
    BindingKey, DeadLetterInfo, MessageId, Name, PayloadFormat, Reason, Seated, Seq, StoredMessage,
    Timestamp, TopicFilter, View,
};
use bridge_queue::Snapshot;
use bridge_runtime::DeadLetterFilter;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::journal::EXIT_HELP;
use super::show::{self, Column};
use super::{EXIT_BAD, Where, damage_line, holder_json, holder_line, looking_into};
use crate::cli;

const SHOW_HELP: &str = "Exit status: 0 when it is there, 1 when there is no such dead letter, \
2 when the folder could not be looked into.";

/// What `bridge dead-letters` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List dead letters, the newest first
    #[command(after_help = EXIT_HELP)]
    List {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        filter: Filter,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        limit: usize,
    },
    /// Show one dead letter whole: why it was given up on, its properties and its payload
    #[command(after_help = SHOW_HELP)]
    Show {
        #[command(flatten)]
        place: Where,
        /// The id of the message, as `list` shows it
        id: MessageId,
        /// The payload in hexadecimal, also where it is text
        #[arg(long)]
        hex: bool,
        /// Nothing but the payload, as it is; for a file or a pipe
        #[arg(long, conflicts_with_all = ["hex", "json"])]
        raw: bool,
    },
}

/// Which dead letters.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only of this route
    #[arg(long, value_name = "NAME")]
    route: Option<Name>,
    /// Only of bindings of this name
    #[arg(long, value_name = "NAME")]
    binding: Option<Name>,
    /// Only those given up on for this reason, such as `not_authorized`
    #[arg(long, value_name = "REASON")]
    reason: Option<Reason>,
    /// Only those whose topic, as it came, matches this filter, such as `sensors/#`
    #[arg(long, value_name = "FILTER")]
    topic: Option<TopicFilter>,
}

impl From<Filter> for DeadLetterFilter {
    fn from(filter: Filter) -> Self {
        Self {
            route: filter.route,
            binding: filter.binding,
            reason: filter.reason,
            topic: filter.topic,
            ..Self::default()
        }
    }
}

/// One dead letter.
struct Letter {
    binding: BindingKey,
    stored: Arc<StoredMessage>,
    info: DeadLetterInfo,
}

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

/// Does what was asked for.
pub(crate) fn run(command: DeadLettersCommand) -> anyhow::Result<ExitCode> {
    match command {
        DeadLettersCommand::List {
            place,
            filter,
            limit,
        } => looking_into(&place.folder, |mut snapshot| {
            let filter = DeadLetterFilter::from(filter);
            if place.json {
                let listed = list(&mut snapshot, &filter, limit, summary_json);
                cli::print(&show::json(&list_json(&snapshot, &listed)))
            } else {
                let listed = list(&mut snapshot, &filter, limit, row);
                cli::print(&render_list(&snapshot, &listed))
            }
        }),
        DeadLettersCommand::Show {
            place,
            id,
            hex,
            raw,
        } => looking_into(&place.folder, |mut snapshot| {
            let (letters, unreadable) = with_id(&mut snapshot, id);
            let Some(first) = letters.first() else {
                return not_there(&place.folder, id, unreadable, damage_line(&snapshot));
            };
            if raw {
                let payload = &first.stored.message.payload;
                return cli::written(std::io::stdout().lock().write_all(payload));
            }
            if place.json {
                let letters: Vec<Value> = letters.iter().map(whole_json).collect();
                let value = json!({
                    "bridge": holder_json(snapshot.holder()),
                    "dead_letters": letters,
                });
                return cli::print(&show::json(&value));
            }
            cli::print(&(holder_line(snapshot.holder()) + &render_whole(&letters, hex)))
        }),
    }
}

/// The newest `limit` dead letters. Of the others no more is in memory than one at a time, and of
/// those no more than `show` makes of each.
fn list<T>(
    snapshot: &mut Snapshot,
    filter: &DeadLetterFilter,
    limit: usize,
    show: impl Fn(&Letter) -> T,
) -> Listed<T> {
    let (mut total, mut unreadable) = (0, 0);
    let mut newest = BTreeSet::new();
    let mut bindings = snapshot.bindings();
    bindings.retain(|key| filter.takes_binding(key));
    for binding in &bindings {
        snapshot.visit(binding, View::DeadLetters, |seq, seated| {
            match seated.map(|seated| Letter::of(binding, seated)) {
                Some(Ok(letter)) if filter.takes(&letter.stored, &letter.info) => {
                    total += 1;
                    newest.insert(Found {
                        given_up: letter.info.last_refusal,
                        seq,
                        binding: letter.binding,
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
        Some(show(&Letter::of(&found.binding, seated).ok()?))
    });
    Listed {
        letters: letters.collect(),
        total,
        unreadable,
    }
}

impl Letter {
    /// `Err` for one that cannot be read.
    fn of(binding: &BindingKey, seated: Seated) -> Result<Self, ()> {
        let stored = seated.message.map_err(drop)?;
        Ok(Self {
            binding: binding.clone(),
            stored,
            info: seated.dead_letter.ok_or(())?,
        })
    }
}

/// The dead letters of one message, which may be one at several bindings, and how many of all
/// cannot be read, so that no one knows whose they are.
fn with_id(snapshot: &mut Snapshot, id: MessageId) -> (Vec<Letter>, usize) {
    let (mut letters, mut unreadable) = (Vec::new(), 0);
    for binding in snapshot.bindings() {
        snapshot.visit(&binding, View::DeadLetters, |_, seated| {
            match seated.map(|seated| Letter::of(&binding, seated)) {
                Some(Ok(letter)) if letter.stored.id == id => letters.push(letter),
                Some(Err(())) => unreadable += 1,
                _ => {}
            }
        });
    }
    (letters, unreadable)
}

fn not_there(
    folder: &Path,
    id: MessageId,
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

/// One line of a list.
fn row(letter: &Letter) -> Vec<String> {
    vec![
        letter.stored.id.to_string(),
        letter.info.last_refusal.to_string(),
        letter.binding.to_string(),
        letter.info.reason.to_string(),
        letter.info.attempts.to_string(),
        show::size(letter.stored.message.size()),
        show::text(letter.stored.message.topic.as_str()),
    ]
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
        let columns = [
            Column::Left("id"),
            Column::Left("given up"),
            Column::Left("binding"),
            Column::Left("reason"),
            Column::Right("attempts"),
            Column::Right("size"),
            Column::Left("topic"),
        ];
        out.push_str(&show::table(&columns, letters));
    }
    if *total > letters.len() {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{} of {total}; more with --limit", letters.len());
    }
    out.push_str(&unreadable_line(*unreadable));
    out.push_str(damage_line(snapshot));
    out
}

fn render_whole(letters: &[Letter], hex: bool) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{:<18} {value}", format!("{name}:"));
    };
    let Some(Letter { stored, .. }) = letters.first() else {
        return out;
    };
    line("id", &stored.id.to_string());
    if let Some(cause) = stored.cause {
        line("redriven from", &cause.id.to_string());
        line("redrives", &cause.redrives.to_string());
    }
    for Letter { binding, info, .. } in letters {
        line("binding", &binding.to_string());
        let code = info.reason.code();
        let code = code.map_or_else(String::new, |code| format!(" (0x{:02x})", code.get()));
        line("  reason", &format!("{}{code}", info.reason));
        if let Some(said) = &info.reason_string {
            line("  the broker said", &show::text(said));
        }
        line("  first refusal", &info.first_refusal.to_string());
        line("  last refusal", &info.last_refusal.to_string());
        line("  attempts", &info.attempts.to_string());
    }
    let message = &stored.message;
    line(
        "received",
        &format!("{} from {}", stored.received, stored.session),
    );
    line("topic", &show::text(message.topic.as_str()));
    line("QoS", &message.qos.to_string());
    line("retain", if message.retain { "yes" } else { "no" });
    let properties = &message.properties;
    if let Some(seconds) = properties.message_expiry {
        line(
            "message expiry",
            &format!("{seconds}s from when it was received"),
        );
    }
    if let Some(format) = properties.payload_format {
        let format = match format {
            PayloadFormat::Bytes => "bytes",
            PayloadFormat::Utf8 => "UTF-8",
        };
        line("payload format", format);
    }
    if let Some(text) = &properties.content_type {
        line("content type", &show::text(text));
    }
    if let Some(text) = &properties.response_topic {
        line("response topic", &show::text(text));
    }
    if let Some(bytes) = &properties.correlation_data {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        line("correlation data", &digits.join(" "));
    }
    for (name, value) in &properties.user_properties {
        let pair = format!("{} = {}", show::text(name), show::text(value));
        line("user property", &pair);
    }
    line("payload", &show::size(message.payload.len() as u64));
    let body = match std::str::from_utf8(&message.payload) {
        Ok(text) if !hex => show::lines(text),
        _ => show::hex(&message.payload),
    };
    for row in body.lines() {
        let _ = writeln!(out, "    {row}");
    }
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

fn summary_json(letter: &Letter) -> Value {
    let Letter {
        binding,
        stored,
        info,
    } = letter;
    json!({
        "id": stored.id.to_string(),
        "cause": stored.cause.map(|cause| cause.id.to_string()),
        "redrives": stored.redrives(),
        "route": binding.route.as_str(),
        "binding": binding.binding.as_str(),
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

fn whole_json(letter: &Letter) -> Value {
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
