//! Looking at the dead letters of a bridge that runs.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::process::ExitCode;

use bridge_core::{Clock as _, MessageId, SystemClock};
use serde::Deserialize;
use serde_json::{Value, json};

use super::filter::path_with;
use super::{COLUMNS, Entry, EntryId, Filter, How, ListArgs, render_whole};
use crate::cli;
use crate::running::{self, Client};
use crate::show;

pub(super) const DEAD_LETTERS: &str = "/api/v1/dead-letters";
/// The largest page that the API gives.
const PAGE: usize = 1_000;

/// One page, as much of it as is read.
#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
    #[serde(flatten)]
    total: Total,
    #[serde(default)]
    unreadable: Vec<String>,
}

/// A list that comes page by page.
struct Pages<'a> {
    client: &'a Client,
    fields: Vec<(&'static str, String)>,
    next: Next,
    left: usize,
}

/// Where the next page begins.
#[derive(Debug, Default)]
enum Next {
    Start,
    After(String),
    #[default]
    Nowhere,
}

/// How many a filter takes.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Total {
    #[serde(rename = "total")]
    pub(super) count: u64,
    #[serde(rename = "total_is_exact")]
    pub(super) is_exact: bool,
}

impl Total {
    /// Whether it is more than that, or may be.
    pub(super) const fn may_exceed(self, most: u64) -> bool {
        !self.is_exact || self.count > most
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.is_exact { "" } else { "at least " };
        write!(f, "{least}{}", show::count(self.count, "dead letter"))
    }
}

impl<'a> Pages<'a> {
    fn new(client: &'a Client, filter: &Filter, most: usize) -> Self {
        Self {
            client,
            fields: filter.fields(SystemClock::new().wall()),
            next: Next::Start,
            left: most,
        }
    }

    async fn next(&mut self) -> anyhow::Result<Option<Page>> {
        let mut fields = self.fields.clone();
        match std::mem::take(&mut self.next) {
            Next::Start => {}
            Next::After(cursor) => fields.push(("cursor", cursor)),
            Next::Nowhere => return Ok(None),
        }
        fields.push(("limit", self.left.clamp(1, PAGE).to_string()));
        let mut page = page(self.client, &path_with(DEAD_LETTERS, &fields)).await?;
        page.items.truncate(self.left);
        self.left -= page.items.len();
        if self.left > 0
            && let Some(cursor) = page.next.take()
        {
            self.next = Next::After(cursor);
        }
        Ok(Some(page))
    }
}

async fn page(client: &Client, path: &str) -> anyhow::Result<Page> {
    let answer = client.get(path).await?;
    Ok(client.understood(answer.body)?)
}

/// How many a filter takes.
pub(super) async fn total(client: &Client, filter: &Filter) -> anyhow::Result<Total> {
    let fields = filter.fields(SystemClock::new().wall());
    let path = path_with(&format!("{DEAD_LETTERS}/total"), &fields);
    Ok(client.understood(client.get(&path).await?.body)?)
}

pub(super) async fn list(client: &Client, args: &ListArgs) -> anyhow::Result<ExitCode> {
    let mut pages = Pages::new(client, &args.filter, args.most());
    let mut table = show::Table::new(&COLUMNS);
    let (mut shown, mut unreadable) = (0, Vec::new());
    let mut total = Total {
        count: 0,
        is_exact: false,
    };
    if args.json {
        cli::print("{\"dead_letters\":[")?;
    }
    while let Some(page) = pages.next().await? {
        if shown == 0 || page.total.is_exact {
            total = page.total;
        }
        let mut text = String::new();
        if args.json {
            for item in &page.items {
                text.push_str(if shown == 0 && text.is_empty() {
                    "\n"
                } else {
                    ",\n"
                });
                text.push_str(show::json_line(item).trim_end());
            }
        } else if !page.items.is_empty() {
            let entries = page.items.iter().map(|item| client.understood(item));
            let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
            let rows: Vec<_> = entries.iter().map(Entry::row).collect();
            text.push_str(&table.rows(&rows));
        }
        shown += page.items.len();
        unreadable.extend(page.unreadable);
        cli::print(&text)?;
    }
    let end = if args.json {
        let end = json!({
            "total": total.count,
            "total_is_exact": total.is_exact,
            "unreadable": unreadable,
        });
        let end = show::json_line(&end);
        format!("\n],{}", end.strip_prefix('{').unwrap_or(&end))
    } else {
        below(shown, total, &unreadable)
    };
    cli::print(&end)
}

/// What stands below a list.
fn below(shown: usize, total: Total, unreadable: &[String]) -> String {
    let mut text = String::new();
    if shown == 0 && total.count == 0 {
        text.push_str("no dead letters\n");
    } else if total.count > shown as u64 {
        let least = if total.is_exact { "" } else { "at least " };
        let count = total.count;
        let _ = writeln!(
            text,
            "{shown} of {least}{count}; more with --limit or --all"
        );
    }
    if !unreadable.is_empty() {
        let ids: Vec<_> = unreadable.iter().map(|id| show::text(id)).collect();
        let _ = writeln!(
            text,
            "{} cannot be read, for the disk has lost them, and can be deleted: {}",
            unreadable.len(),
            ids.join(" ")
        );
    }
    text
}

pub(super) async fn show(client: &Client, id: &EntryId, how: How) -> anyhow::Result<ExitCode> {
    let ids = match id {
        EntryId::Entry(id) => vec![id.to_string()],
        EntryId::Message(id) => of_message(client, *id).await?,
    };
    let mut found = Vec::new();
    for id in ids {
        match client.get(&format!("{DEAD_LETTERS}/{id}")).await {
            Ok(answer) => found.push(answer.body),
            Err(failure) if failure.status() == Some(404) => {}
            Err(failure) => return Err(failure.into()),
        }
        if how.raw && !found.is_empty() {
            // The payload is the same everywhere, and reading one leaves a trace.
            break;
        }
    }
    if found.is_empty() {
        return running::not_done(&format!(
            "there is no dead letter {id}; it may have been redriven or deleted"
        ));
    }
    if how.json {
        return cli::print(&show::json(&json!({ "dead_letters": found })));
    }
    let entries = found.iter().map(|item| client.understood(item));
    let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    if how.raw {
        let payload = entries.first().and_then(Entry::payload).unwrap_or_default();
        return cli::written(std::io::stdout().lock().write_all(&payload));
    }
    cli::print(&render_whole(&entries, how.hex))
}

/// The ids of the dead letters that a message is.
async fn of_message(client: &Client, id: MessageId) -> anyhow::Result<Vec<String>> {
    let mut pages = Pages::new(client, &Filter::of_message(id), usize::MAX);
    let mut ids = Vec::new();
    while let Some(page) = pages.next().await? {
        let found = page
            .items
            .iter()
            .filter_map(|item| item.get("id")?.as_str());
        ids.extend(found.map(str::to_owned));
    }
    Ok(ids)
}
