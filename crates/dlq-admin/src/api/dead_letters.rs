//! Dead letters: looking at them.

pub(crate) mod change;
pub(crate) mod export;
pub(crate) mod filter;
pub(crate) mod import;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use bridge_runtime::{ControlError, Cursor, DeadLetterId};
use tracing::error;

use crate::admin::App;
use crate::audit::Act;
use crate::auth::Who;
use crate::problem::{Kind, Problem, ProblemDetails};
use crate::request::{Json, Path, Query, count};

use filter::FilterInput;
pub(crate) use view::DeadLetterWhole;
use view::{DeadLetterPage, DeadLetterTotal};

/// The size of a page where nobody says.
const PAGE: u64 = 100;
/// The largest page.
const LARGEST_PAGE: u64 = 1_000;
/// How long messages are looked at to count some of them.
const COUNTED_WITHIN: Duration = Duration::from_secs(20);

/// The dead letters that a filter takes, newest first, a page at a time; without their payloads.
#[utoipa::path(
    get, path = "/api/v1/dead-letters", tag = "dead letters", operation_id = "list",
    params(
        FilterInput,
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000,
         description = "How many at most; 100 where it is left out"),
        ("cursor" = Option<String>, Query,
         description = "Where the page before ended: its `next`"),
    ),
    responses(
        (status = 200, description = "One page", body = DeadLetterPage),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    _: Who,
    mut query: Query,
) -> Result<Json<DeadLetterPage>, Problem> {
    let filter = FilterInput::take(&mut query)?.checked(app.clock.wall())?;
    let limit = query.take("limit", count(1, LARGEST_PAGE))?.unwrap_or(PAGE);
    let cursor: Option<Cursor> = query.take("cursor", |text| {
        let cursor = text.parse();
        cursor.map_err(|_| "it is the `next` of the page before, as it was given".to_owned())
    })?;
    query.end()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page = app.control.list(&filter, limit, cursor.as_ref()).await;
    Ok(Json(page.map_err(failed)?.into()))
}

/// How many dead letters a filter takes: exactly, unless the messages have to be looked at and that
/// takes longer than 20 seconds.
#[utoipa::path(
    get, path = "/api/v1/dead-letters/total", tag = "dead letters", operation_id = "total",
    params(FilterInput),
    responses(
        (status = 200, description = "So many", body = DeadLetterTotal),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn total(
    State(app): State<Arc<App>>,
    _: Who,
    mut query: Query,
) -> Result<Json<DeadLetterTotal>, Problem> {
    let filter = FilterInput::take(&mut query)?.checked(app.clock.wall())?;
    query.end()?;
    let total = app.control.total(&filter, COUNTED_WITHIN).await;
    Ok(Json(total.map_err(failed)?.into()))
}

/// One dead letter whole, with its payload. That it was read is in the audit log.
#[utoipa::path(
    get, path = "/api/v1/dead-letters/{id}", tag = "dead letters", operation_id = "show",
    params(("id" = String, Path, description = "As lists give it",
            example = "telemetry~cloud~4711")),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterWhole),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<DeadLetterWhole>, Problem> {
    query.end()?;
    let id: DeadLetterId = id
        .parse()
        .map_err(|_| Problem::not_found("there is no such dead letter: its id is no id"))?;
    let act = Act::new(&who, "read", &id);
    let found = app.control.get(&id).await.map_err(failed);
    let found = found.and_then(|found| {
        found.ok_or_else(|| {
            Problem::not_found("there is no such dead letter; it may have been redriven or deleted")
        })
    });
    act.ended(if found.is_ok() {
        "shown"
    } else {
        "nothing was shown"
    });
    let configured = app.is_configured(&id.binding);
    Ok(Json(DeadLetterWhole::of(&found?, configured)))
}

/// What is answered when a call came to nothing.
pub(crate) fn failed(error: ControlError) -> Problem {
    match error {
        ControlError::Stopping => Problem::stopping(),
        ControlError::TooMany { .. } => Problem::new(Kind::Invalid, error.to_string()),
        ControlError::NoSuchRoute | ControlError::NoSuchBinding => {
            Problem::not_found(error.to_string())
        }
        ControlError::NotTaken => Problem::new(
            Kind::Invalid,
            "none of the route's topic filters takes it; name a `binding`, or another topic",
        )
        .field("topic"),
        ControlError::TopicInvalid => Problem::new(Kind::Invalid, error.to_string()).field("topic"),
        ControlError::QueueFull => Problem::new(Kind::QueueFull, error.to_string()),
        ControlError::StoreFails => Problem::new(Kind::StoreUnavailable, error.to_string())
            .retry_after(Duration::from_secs(5)),
        ControlError::Busy | ControlError::ImportUnderWay => {
            Problem::new(Kind::TooManyJobs, error.to_string()).retry_after(Duration::from_secs(2))
        }
        ControlError::Store(why) => {
            // It may name files of the machine.
            error!(event = "call_store_failed", error = %why, "the store failed on a call");
            Problem::new(
                Kind::StoreUnavailable,
                "the bridge's log says why (call_store_failed)",
            )
            .retry_after(Duration::from_secs(5))
        }
        ControlError::Failed(why) => {
            error!(
                event = "call_failed",
                error = why,
                "a defect; please report it"
            );
            Problem::defect()
        }
    }
}
