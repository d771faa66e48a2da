//! Lists of dead letters, a page at a time.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bridge_core::StoreError;
use tokio::time::timeout;

use super::letter::number_of;
use super::scan::{Scan, Way};
use super::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterSummary, InvalidDeadLetterId, Shared,
};

/// How long a page may take to look through entries that the filter may not take.
const BUDGET: Duration = Duration::from_millis(25);
/// How many are looked at however long it takes: the total of a few is exact on a slow machine too.
const SURE: usize = 256;

/// Where a list goes on: behind the last entry that was looked at. It stays good whatever comes
/// and goes meanwhile: no entry is listed twice, and none that stays is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    seen: DeadLetterId,
    /// How many of the pages before were taken by the filter.
    counted: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.seen, self.counted)
    }
}

impl FromStr for Cursor {
    type Err = InvalidDeadLetterId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seen, counted) = text.rsplit_once('~').ok_or(InvalidDeadLetterId::Parts)?;
        Ok(Self {
            seen: seen.parse()?,
            counted: match counted {
                "0" => 0,
                text => number_of(text).ok_or(InvalidDeadLetterId::Number)?,
            },
        })
    }
}

/// How many dead letters a filter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// So many.
    Exact(u64),
    /// So many were found until the page had taken long enough: the topics and ids of messages are
    /// on disk only, so a filter that asks for one has others looked at as well.
    AtLeast(u64),
}

impl Total {
    /// The number.
    pub const fn count(self) -> u64 {
        let (Self::Exact(count) | Self::AtLeast(count)) = self;
        count
    }

    /// Whether it is the whole number.
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Exact(_))
    }
}

/// One page of a list, the newest entries first: by the order in which their messages came to the
/// store, and of one message by the names of its bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What the filter takes; a page of which time has run out may be short, or empty, and one with
    /// `unreadable` ones has as many fewer.
    pub entries: Vec<DeadLetterSummary>,
    /// Where the list goes on; `None` when it is at its end.
    pub next: Option<Cursor>,
    /// How many the filter takes in all.
    pub total: Total,
    /// Entries that were met and cannot be read: as far as is known without that, the filter takes
    /// them. They can be deleted.
    pub unreadable: Vec<DeadLetterId>,
}

/// How many dead letters `filter` takes, as far as that is found out `within` that time; those that
/// cannot be read are counted only where the message is not asked for.
pub(super) async fn total(
    shared: &Shared,
    filter: &DeadLetterFilter,
    within: Duration,
) -> Result<Total, StoreError> {
    let bindings = shared.bindings(filter);
    if !filter.looks_at_messages() {
        return shared.count(&bindings, filter).await.map(Total::Exact);
    }
    let began = Instant::now();
    let mut counted = 0;
    let Ok(_turn) = timeout(within, shared.counting.lock()).await else {
        return Ok(Total::AtLeast(counted));
    };
    let scan = Scan::new(Way::OldestFirst, bindings, filter.given_up());
    let mut scan = scan.up_to_now(&*shared.store).await?;
    while let Some((binding, seated)) = scan.next(&*shared.store).await? {
        if began.elapsed() >= within {
            return Ok(Total::AtLeast(counted));
        }
        let letter = DeadLetter::of(&binding, seated);
        let taken = letter.is_ok_and(|letter| filter.takes(&letter.stored, &letter.info));
        counted += u64::from(taken);
    }
    Ok(Total::Exact(counted))
}

/// Reads one page.
pub(super) async fn list(
    shared: &Shared,
    filter: &DeadLetterFilter,
    limit: usize,
    cursor: Option<&Cursor>,
) -> Result<Page, StoreError> {
    let limit = limit.max(1);
    let began = Instant::now();
    let bindings = shared.bindings(filter);
    let known = if filter.looks_at_messages() {
        None
    } else {
        Some(shared.count(&bindings, filter).await?)
    };
    let mut scan = Scan::new(Way::NewestFirst, bindings, filter.given_up());
    if let Some(cursor) = cursor {
        scan = scan.behind(&cursor.seen);
    }
    let mut counted = cursor.map_or(0, |cursor| cursor.counted);
    let mut page = Page {
        entries: Vec::new(),
        next: None,
        total: Total::AtLeast(0),
        unreadable: Vec::new(),
    };
    let mut seen = None;
    let mut looked_at = 0;
    let (mut at_end, mut more) = (false, false);
    loop {
        let full = page.entries.len() + page.unreadable.len() >= limit;
        if full && page.next.is_none() {
            page.next = seen.clone().map(|seen| Cursor { seen, counted });
        }
        let out_of_time = looked_at >= SURE && began.elapsed() >= BUDGET;
        if out_of_time && known.is_none() {
            page.next = page.next.or(seen.map(|seen| Cursor { seen, counted }));
            break;
        }
        let Some((binding, seated)) = scan.next(&*shared.store).await? else {
            at_end = true;
            break;
        };
        if full && known.is_some() {
            more = true;
            break;
        }
        let id = DeadLetterId {
            binding: binding.clone(),
            seq: seated.seq,
        };
        seen = Some(id.clone());
        looked_at += 1;
        match DeadLetter::of(&binding, seated) {
            Ok(letter) if filter.takes(&letter.stored, &letter.info) => {
                counted += 1;
                more |= full;
                if !full {
                    let configured = shared.lanes.contains_key(&binding);
                    page.entries.push(letter.summary(configured));
                }
            }
            Ok(_) => {}
            Err(_) if full => more = true,
            Err(_) => page.unreadable.push(id),
        }
    }
    page.total = match known {
        Some(count) => Total::Exact(count),
        None if at_end => Total::Exact(counted),
        None => Total::AtLeast(counted),
    };
    if at_end && !more {
        page.next = None;
    }
    Ok(page)
}
