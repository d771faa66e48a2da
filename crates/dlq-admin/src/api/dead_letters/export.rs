//! Dead letters on their way out, one line of JSON each.

use std::fmt::Display;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bridge_runtime::{ControlError, Export, Exported};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tracing::error;

use super::filter::{FilterInput, Written};
use super::{DeadLetterWhole, failed};
use crate::admin::App;
use crate::audit::{Act, Begun};
use crate::auth::Who;
use crate::problem::{Problem, ProblemDetails};
use crate::request::Query;

/// What is left to be written. Dropped before its end, it says so in the audit log: who asked has
/// hung up.
struct Left {
    app: Arc<App>,
    /// Until its end is in the audit log.
    act: Option<Begun>,
    /// Once it has begun.
    export: Option<Export>,
    written: u64,
    unreadable: u64,
}

/// A line in the place of an entry that cannot be read.
#[derive(Serialize)]
struct Unreadable {
    id: String,
    unreadable: bool,
}

/// The dead letters that a filter takes, whole, oldest first: a line of JSON each.
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
    let act = Act::new(&who, "export", Written(&filter)).begins();
    let mut left = Left {
        act: Some(act),
        export: None,
        written: 0,
        unreadable: 0,
        app,
    };
    match left.app.control.export(filter).await {
        Ok(export) => left.export = Some(export),
        Err(error) => {
            left.end(&error);
            return Err(failed(error));
        }
    }
    let lines = stream::unfold(Some(left), |left| async {
        let mut left = left?;
        match left.line().await {
            Ok(Some(line)) => Some((Ok(line), Some(left))),
            Ok(None) => {
                left.tell("to the end");
                None
            }
            Err(why) => {
                error!(event = "call_store_failed", error = %why, "an export was cut off");
                left.tell("and cut off, because the store fails or the bridge stops");
                Some((Err(why), None))
            }
        }
    });
    let media = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((media, Body::from_stream(lines)).into_response())
}

impl Left {
    /// The next line; `None` at the end.
    async fn line(&mut self) -> Result<Option<Bytes>, ControlError> {
        let Some(export) = &mut self.export else {
            return Ok(None);
        };
        Ok(match export.next().await? {
            None => None,
            Some(Exported::DeadLetter(letter)) => {
                self.written += 1;
                let configured = self.app.is_configured(&letter.id.binding);
                Some(line_of(&DeadLetterWhole::of(&letter, configured)))
            }
            Some(Exported::Unreadable(id, _)) => {
                self.unreadable += 1;
                let id = id.to_string();
                Some(line_of(&Unreadable {
                    id,
                    unreadable: true,
                }))
            }
        })
    }

    fn tell(&mut self, how: &str) {
        let (written, unreadable) = (self.written, self.unreadable);
        self.end(format_args!(
            "{written} were written {how}, {unreadable} cannot be read"
        ));
    }

    fn end(&mut self, outcome: impl Display) {
        if let Some(mut act) = self.act.take() {
            act.ended(outcome);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.tell("until the client hung up");
    }
}

/// Texts, numbers and lists: it cannot fail.
fn line_of(entry: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(entry).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
