//! Dead letters on their way out, one line of JSON each.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bridge_runtime::{ControlError, Cursor, DeadLetterFilter, DeadLetterId};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tracing::error;

use super::DeadLetterWhole;
use super::filter::{FilterInput, Written};
use crate::admin::App;
use crate::audit::Act;
use crate::auth::Who;
use crate::problem::{Problem, ProblemDetails};
use crate::request::Query;

/// Entries that are looked up at a time.
const AT_A_TIME: usize = 100;

/// What is left to be written.
struct Left {
    app: Arc<App>,
    filter: DeadLetterFilter,
    ids: VecDeque<DeadLetterId>,
    next: NextPage,
    who: Who,
    written: u64,
    unreadable: u64,
}

/// Which entries are to be looked up next.
enum NextPage {
    First,
    After(Cursor),
    Nothing,
}

/// A line in the place of an entry that cannot be read.
#[derive(Serialize)]
struct Unreadable {
    id: String,
    unreadable: bool,
}

/// The dead letters that a filter takes, whole, newest first: a line of JSON each.
///
/// The stream ends with the last one; one that ends without the end of its chunks was cut off.
#[utoipa::path(
    get, path = "/api/v1/dead-letters/export", tag = "dead letters", operation_id = "export",
    params(FilterInput),
    responses(
        (status = 200, description = "One line for each", body = String,
         content_type = "application/x-ndjson"),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    who: Who,
    mut query: Query,
) -> Result<Response, Problem> {
    let input = FilterInput::take(&mut query)?;
    query.end()?;
    let filter = input.checked(app.clock.wall())?;
    act(&who, &filter).begins();
    let left = Left {
        app,
        filter,
        ids: VecDeque::new(),
        next: NextPage::First,
        who,
        written: 0,
        unreadable: 0,
    };
    let lines = stream::unfold(Some(left), |left| async {
        let mut left = left?;
        match left.line().await {
            Ok(Some(line)) => Some((Ok(line), Some(left))),
            Ok(None) => {
                act(&left.who, &left.filter).ended(format_args!(
                    "{} were written, {} cannot be read",
                    left.written, left.unreadable
                ));
                None
            }
            Err(why) => {
                error!(event = "call_store_failed", error = %why, "an export was cut off");
                act(&left.who, &left.filter)
                    .ended(format_args!("cut off after {}: {why}", left.written));
                Some((Err(why), None))
            }
        }
    });
    let media = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((media, Body::from_stream(lines)).into_response())
}

fn act<'a>(who: &'a Who, filter: &DeadLetterFilter) -> Act<'a> {
    Act::new(who, "export", Written(filter))
}

impl Left {
    /// The next line; `None` at the end.
    async fn line(&mut self) -> Result<Option<Bytes>, ControlError> {
        loop {
            if let Some(id) = self.ids.pop_front() {
                let line = match self.app.control.get(&id).await {
                    // Someone redrove or deleted it meanwhile.
                    Ok(None) => continue,
                    Ok(Some(letter)) => {
                        self.written += 1;
                        let configured = self.app.is_configured(&id.binding);
                        line_of(&DeadLetterWhole::of(&letter, configured))
                    }
                    Err(ControlError::Store(why)) if !why.is_transient() => self.unreadable(&id),
                    Err(why) => return Err(why),
                };
                return Ok(Some(line));
            }
            let cursor = match std::mem::replace(&mut self.next, NextPage::Nothing) {
                NextPage::First => None,
                NextPage::After(cursor) => Some(cursor),
                NextPage::Nothing => return Ok(None),
            };
            let page = self
                .app
                .control
                .list(&self.filter, AT_A_TIME, cursor.as_ref());
            let page = page.await?;
            self.ids = page.entries.into_iter().map(|entry| entry.id).collect();
            if let Some(cursor) = page.next {
                self.next = NextPage::After(cursor);
            }
            if !page.unreadable.is_empty() {
                let lines = page.unreadable.iter().map(|id| self.unreadable(id));
                let lines: Vec<Bytes> = lines.collect();
                return Ok(Some(lines.concat().into()));
            }
        }
    }

    fn unreadable(&mut self, id: &DeadLetterId) -> Bytes {
        self.unreadable += 1;
        line_of(&Unreadable {
            id: id.to_string(),
            unreadable: true,
        })
    }
}

/// Texts, numbers and lists: it cannot fail.
fn line_of(entry: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(entry).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
