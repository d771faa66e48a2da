//! `bridge journal`: its files, its views, and whether all of it can be read.

use std::fmt::Write as _;
use std::process::ExitCode;

use bridge_core::View;
use bridge_queue::{Damage, Inspection, Snapshot, Unreadable, Verification, ViewInfo};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{EXIT_BAD, Where, holder_json, holder_line, looking_into};
use crate::cli;
use crate::config::Paint;
use crate::show::{self, Column};

/// What is said of exit statuses.
pub(super) const EXIT_HELP: &str =
    "Exit status: 0 when the folder could be looked into, 2 when it could not.";
const VERIFY_HELP: &str = "Exit status: 0 when everything is whole, 1 when something is damaged, \
2 when the folder could not be looked into.";

/// What `bridge journal` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Show the journal's files, what waits in it, and what is damaged; changes nothing
    #[command(after_help = EXIT_HELP)]
    Inspect {
        #[command(flatten)]
        place: Where,
    },
    /// Read every record and every message that waits, and say what is damaged; changes nothing
    #[command(after_help = VERIFY_HELP)]
    Verify {
        #[command(flatten)]
        place: Where,
    },
}

/// Does what was asked for.
pub(crate) fn run(command: JournalCommand) -> anyhow::Result<ExitCode> {
    match command {
        JournalCommand::Inspect { place } => looking_into(&place.folder, |snapshot| {
            if place.json {
                cli::print(&show::json(&to_json(&snapshot, &snapshot.inspection())))
            } else {
                cli::print(&render(&snapshot, cli::paint_stdout()))
            }
        }),
        JournalCommand::Verify { place } => looking_into(&place.folder, |mut snapshot| {
            let verification = snapshot.verify();
            if place.json {
                cli::print(&show::json(&verification_json(&snapshot, &verification)))?;
            } else {
                let paint = cli::paint_stdout();
                cli::print(&render_verification(&snapshot, &verification, paint))?;
            }
            Ok(if verification.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_BAD)
            })
        }),
    }
}

fn render(snapshot: &Snapshot, paint: Paint) -> String {
    let inspection = snapshot.inspection();
    let mut out = holder_line(snapshot.holder());
    heading(&mut out, paint, "segments");
    let mut rows: Vec<Vec<String>> = Vec::new();
    let (mut bytes, mut live) = (0, 0);
    for segment in &inspection.segments {
        bytes += segment.bytes;
        live += segment.live_bytes;
        rows.push(vec![
            file_name(&segment.file),
            segment.first_seq.to_string(),
            show::size(segment.bytes),
            show::size(segment.live_bytes),
            show::size(segment.bytes - segment.live_bytes),
            segment.version.to_string(),
            if segment.salted { "yes" } else { "no" }.to_owned(),
        ]);
    }
    rows.push(vec![
        format!("{} in all", inspection.segments.len()),
        String::new(),
        show::size(bytes),
        show::size(live),
        show::size(bytes - live),
        String::new(),
        String::new(),
    ]);
    let columns = [
        Column::Left("file"),
        Column::Right("first record"),
        Column::Right("bytes"),
        Column::Right("live"),
        Column::Right("dead"),
        Column::Right("format"),
        Column::Left("salted"),
    ];
    out.push_str(&show::table(&columns, &rows));
    out.push('\n');
    render_views(&mut out, &inspection, paint);
    out.push('\n');
    render_damage(&mut out, &inspection, paint);
    render_quarantine(&mut out, &inspection, paint);
    out
}

fn render_views(out: &mut String, inspection: &Inspection, paint: Paint) {
    if inspection.bindings.is_empty() {
        out.push_str("nothing waits at any binding\n");
        return;
    }
    heading(out, paint, "bindings");
    let mut rows = Vec::new();
    for info in &inspection.bindings {
        for (name, view) in [
            ("queue", info.queue),
            ("deferred", info.deferred),
            ("dead letters", info.dead_letters),
        ] {
            if view.quantity.entries > 0 {
                rows.push(vec![
                    info.binding.to_string(),
                    name.to_owned(),
                    view.quantity.entries.to_string(),
                    show::size(view.quantity.bytes),
                    show::instant(view.oldest),
                ]);
            }
        }
    }
    let columns = [
        Column::Left("binding"),
        Column::Left("view"),
        Column::Right("entries"),
        Column::Right("bytes"),
        Column::Left("oldest received"),
    ];
    out.push_str(&show::table(&columns, &rows));
}

fn render_damage(out: &mut String, inspection: &Inspection, paint: Paint) {
    if inspection.report.damage.is_empty() {
        out.push_str("nothing is damaged\n");
        return;
    }
    heading(out, paint, "damage");
    for damage in &inspection.report.damage {
        let text = show::text(&damage.to_string());
        let text = if damage.is_harmless() {
            text
        } else {
            paint.red(&text)
        };
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  {text}");
        for remnant in &damage.remains {
            let _ = writeln!(
                out,
                "    by its looks: {}",
                show::text(&remnant.to_string())
            );
        }
    }
}

fn render_quarantine(out: &mut String, inspection: &Inspection, paint: Paint) {
    if inspection.quarantine.is_empty() {
        return;
    }
    out.push('\n');
    heading(out, paint, "set aside earlier, in quarantine/");
    let rows: Vec<Vec<String>> = inspection
        .quarantine
        .iter()
        .map(|file| vec![file_name(&file.file), show::size(file.bytes)])
        .collect();
    let columns = [Column::Left("file"), Column::Right("bytes")];
    out.push_str(&show::table(&columns, &rows));
}

fn render_verification(snapshot: &Snapshot, verification: &Verification, paint: Paint) -> String {
    let inspection = &verification.inspection;
    let mut out = holder_line(snapshot.holder());
    let _ = writeln!(
        out,
        "read {} in {}, and {}",
        show::count(inspection.report.records, "record"),
        show::count(inspection.report.segments as u64, "file"),
        show::count(verification.sound, "waiting message"),
    );
    if verification.moved > 0 {
        let _ = writeln!(
            out,
            "{} more were moved or settled by the bridge meanwhile",
            verification.moved
        );
    }
    render_damage(&mut out, inspection, paint);
    if !verification.unreadable.is_empty() {
        heading(&mut out, paint, "messages that cannot be read");
    }
    for Unreadable {
        binding,
        view,
        error,
        ..
    } in &verification.unreadable
    {
        let what = format!("{binding}, {}: {error}", view_name(*view));
        let _ = writeln!(out, "  {}", paint.red(&show::text(&what)));
    }
    let lost = inspection.report.lost_records();
    let verdict = if verification.is_clean() {
        paint.green("whole")
    } else if lost > 0 {
        let damage = &inspection.report.damage;
        let bound = if damage.iter().any(|damage| damage.uncertain) {
            "at least "
        } else {
            ""
        };
        let lost = show::count(lost, "record");
        paint.red(&format!("damaged: {bound}{lost} missing"))
    } else {
        paint.red("damaged")
    };
    let _ = writeln!(out, "{verdict}");
    out
}

fn to_json(snapshot: &Snapshot, inspection: &Inspection) -> Value {
    let segments: Vec<Value> = inspection
        .segments
        .iter()
        .map(|segment| {
            json!({
                "file": segment.file.display().to_string(),
                "first_record": segment.first_seq,
                "format": segment.version,
                "salted": segment.salted,
                "bytes": segment.bytes,
                "live_bytes": segment.live_bytes,
                "dead_bytes": segment.bytes - segment.live_bytes,
            })
        })
        .collect();
    let view = |view: &ViewInfo| {
        json!({
            "entries": view.quantity.entries,
            "bytes": view.quantity.bytes,
            "oldest": view.oldest.map(|oldest| oldest.to_string()),
        })
    };
    let bindings: Vec<Value> = inspection
        .bindings
        .iter()
        .map(|info| {
            json!({
                "route": info.binding.route.as_str(),
                "binding": info.binding.binding.as_str(),
                "queue": view(&info.queue),
                "deferred": view(&info.deferred),
                "dead_letters": view(&info.dead_letters),
            })
        })
        .collect();
    let quarantine: Vec<Value> = inspection
        .quarantine
        .iter()
        .map(|file| json!({ "file": file.file.display().to_string(), "bytes": file.bytes }))
        .collect();
    let damage: Vec<Value> = inspection.report.damage.iter().map(damage_json).collect();
    json!({
        "bridge": holder_json(snapshot.holder()),
        "records": inspection.report.records,
        "lost_records": inspection.report.lost_records(),
        "segments": segments,
        "bindings": bindings,
        "damage": damage,
        "quarantine": quarantine,
    })
}

fn damage_json(damage: &Damage) -> Value {
    let remains: Vec<Value> = damage
        .remains
        .iter()
        .map(|remnant| {
            json!({
                "record": remnant.seq,
                "kind": remnant.kind,
                "bindings": remnant.bindings,
                "id": remnant.id.map(|id| id.to_string()),
                "topic": remnant.topic,
            })
        })
        .collect();
    json!({
        "kind": damage.kind.as_str(),
        "harmless": damage.is_harmless(),
        "file": damage.segment.display().to_string(),
        "offset": damage.offset,
        "bytes": damage.bytes,
        "first_lost_record": damage.first_lost,
        "lost_records": damage.lost_records,
        "more_may_be_lost": damage.uncertain,
        "remains": remains,
    })
}

fn verification_json(snapshot: &Snapshot, verification: &Verification) -> Value {
    let unreadable: Vec<Value> = verification
        .unreadable
        .iter()
        .map(|unreadable| {
            json!({
                "route": unreadable.binding.route.as_str(),
                "binding": unreadable.binding.binding.as_str(),
                "view": view_name(unreadable.view).replace(' ', "_"),
                "record": unreadable.seq.get(),
                "problem": unreadable.error.to_string(),
            })
        })
        .collect();
    let mut value = to_json(snapshot, &verification.inspection);
    if let Value::Object(fields) = &mut value {
        fields.insert("whole".to_owned(), json!(verification.is_clean()));
        fields.insert("sound_messages".to_owned(), json!(verification.sound));
        fields.insert("moved_messages".to_owned(), json!(verification.moved));
        fields.insert("unreadable_messages".to_owned(), json!(unreadable));
    }
    value
}

fn heading(out: &mut String, paint: Paint, text: &str) {
    let _ = writeln!(out, "{}", paint.bold(text));
}

const fn view_name(view: View) -> &'static str {
    match view {
        View::Queue => "queue",
        View::Deferred => "deferred",
        View::DeadLetters => "dead letters",
    }
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| show::text(&name.to_string_lossy()))
}
