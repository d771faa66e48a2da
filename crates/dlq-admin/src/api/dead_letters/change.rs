//! Dead letters: sending them on, and deleting them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge_core::Timestamp;
use bridge_runtime::{
    DeadLetterFilter, DeadLetterId, DeleteOutcome, DeleteResult, JobKind, MOST_AT_ONCE,
    RedriveOptions, RedriveOutcome, RedriveResult, RedriveVerdict, Selection,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::failed;
use super::filter::{FilterInput, Written};
use crate::admin::App;
use crate::api::delivery::{is_bad, why};
use crate::api::jobs;
use crate::audit::Act;
use crate::auth::Who;
use crate::problem::{Kind, Problem, ProblemDetails};
use crate::request::{self, Json, Query, count, shortened};

/// The longest that a verdict is waited for, in seconds.
const LONGEST_WAIT: u64 = 60;

/// Which dead letters are meant: `ids`, or `filter` with `limit`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chosen {
    /// These, at most 10,000.
    #[schema(max_items = 10000)]
    ids: Option<Vec<String>>,
    /// The oldest that it takes.
    filter: Option<FilterInput>,
    /// With a filter: how many at most; 10,000 where it is left out.
    #[schema(minimum = 1, maximum = 10000)]
    limit: Option<u64>,
    /// An empty filter is about everything, and needs `true` here.
    #[serde(default)]
    confirm: bool,
    /// All that the filter takes, however many: the answer is a job.
    #[serde(default)]
    job: bool,
}

/// What is to be sent on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveRequest {
    /// These, at most 10,000.
    #[schema(max_items = 10000)]
    ids: Option<Vec<String>>,
    /// The oldest that it takes.
    filter: Option<FilterInput>,
    /// With a filter: how many at most; 10,000 where it is left out.
    #[schema(minimum = 1, maximum = 10000)]
    limit: Option<u64>,
    /// An empty filter is about everything, and needs `true` here.
    #[serde(default)]
    confirm: bool,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
    /// All that the filter takes, however many: the answer is a job.
    #[serde(default)]
    job: bool,
}

/// What came of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Redriven {
    /// How many entries it was about.
    requested: usize,
    /// How many of them moved, or would.
    moved: usize,
    results: Vec<RedrivenEntry>,
}

/// What came of the redrive of one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedrivenEntry {
    id: String,
    /// `moved` or `would_move`; else the entry is where it was: `not_found`, `binding_not_found`,
    /// `already_redriven`, `queue_full`, `store_failed`, `stopping`; or `unanswered`: nobody knows.
    outcome: &'static str,
    /// The id that its message has since it was redriven.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// With `wait`: `delivered`, `refused`, `deferred`, `dropped`, or `queued` where nothing has
    /// become of it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// Why it was refused, or by which policy it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The dead letter that it is again where it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<String>,
}

/// What came of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deletion {
    /// How many entries it was about.
    requested: usize,
    /// How many of them are gone.
    deleted: usize,
    results: Vec<DeletedEntry>,
}

/// What came of the delete of one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedEntry {
    id: String,
    /// `deleted`; else `not_found`, `already_redriven`, `store_failed`, `stopping`, `unanswered`.
    outcome: &'static str,
    /// The id that its message has since it was redriven.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
}

/// Put dead letters back at the tails of the queues of the very bindings that gave up on them.
///
/// 200 when each one moved, 207 when one did not, or was refused again while that was waited for.
/// Who hangs up changes nothing: what was begun is done.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/redrive", tag = "dead letters", operation_id = "redrive",
    request_body = RedriveRequest,
    params(("wait" = Option<u64>, Query, maximum = 60,
            description = "So many seconds are waited for what becomes of each")),
    responses(
        (status = 200, description = "Each one moved", body = Redriven),
        (status = 202, description = "A job has begun", body = jobs::JobView),
        (status = 207, description = "One did not: each result says why", body = Redriven),
        (status = "default", description = "Why nothing was done", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn redrive(
    State(app): State<Arc<App>>,
    who: Who,
    mut query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wait = query.take("wait", count(0, LONGEST_WAIT))?;
    query.end()?;
    let input: RedriveRequest = request::json(request).await?;
    let dry_run = input.dry_run;
    let chosen = Chosen {
        ids: input.ids,
        filter: input.filter,
        limit: input.limit,
        confirm: input.confirm || dry_run,
        job: input.job,
    };
    if chosen.job {
        if dry_run || wait.is_some() {
            let field = if dry_run { "dry_run" } else { "wait" };
            let detail = "a job is neither tried nor waited for";
            return Err(Problem::new(Kind::Invalid, detail).field(field));
        }
        let filter = chosen.filter_of_job(app.clock.wall())?;
        return jobs::begin(&app, &who, JobKind::Redrive, filter);
    }
    let selection = chosen.checked(app.clock.wall())?;
    let what = if dry_run {
        "redrive, dry run"
    } else {
        "redrive"
    };
    let mut act = act(&who, what, &selection).begins();
    let options = RedriveOptions {
        dry_run,
        wait: wait.filter(|wait| *wait > 0).map(Duration::from_secs),
    };
    let control = app.control.clone();
    let redriven = app.act(async move {
        let results = control.redrive(selection, options).await;
        let results = results.map_err(|error| {
            act.ended(&error);
            failed(error)
        })?;
        let moved = results.iter().filter(|result| result.outcome.is_success());
        let moved = moved.count();
        if !dry_run {
            act.came(
                results
                    .iter()
                    .map(|result| (&result.id, in_words(&result.outcome))),
            );
        }
        let word = if dry_run { "would move" } else { "moved" };
        act.ended(format_args!("{moved} of {} {word}", results.len()));
        Ok((results, moved))
    });
    let (results, moved) = redriven.await?;
    let well = results.iter().all(went_well);
    let answer = Redriven {
        requested: results.len(),
        moved,
        results: results.into_iter().map(Into::into).collect(),
    };
    Ok((status(well), Json(answer)).into_response())
}

/// Delete dead letters for good.
///
/// 200 when each one is gone, 207 when one is not.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/delete", tag = "dead letters", operation_id = "delete",
    request_body = Chosen,
    responses(
        (status = 200, description = "Each one is gone", body = Deletion),
        (status = 202, description = "A job has begun", body = jobs::JobView),
        (status = 207, description = "One is not: each result says why", body = Deletion),
        (status = "default", description = "Why nothing was done", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    who: Who,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    query.end()?;
    let chosen: Chosen = request::json(request).await?;
    if chosen.job {
        let filter = chosen.filter_of_job(app.clock.wall())?;
        return jobs::begin(&app, &who, JobKind::Delete, filter);
    }
    let selection = chosen.checked(app.clock.wall())?;
    let mut act = act(&who, "delete", &selection).begins();
    let control = app.control.clone();
    let deleted = app.act(async move {
        let results = control.delete(selection).await;
        let results = results.map_err(|error| {
            act.ended(&error);
            failed(error)
        })?;
        let deleted = results.iter().filter(|result| result.outcome.is_success());
        let deleted = deleted.count();
        let outcome = |result: &DeleteResult| result.outcome.as_str().to_owned();
        act.came(results.iter().map(|result| (&result.id, outcome(result))));
        act.ended(format_args!("{deleted} of {} deleted", results.len()));
        Ok((results, deleted))
    });
    let (results, deleted) = deleted.await?;
    let well = deleted == results.len();
    let answer = Deletion {
        requested: results.len(),
        deleted,
        results: results.into_iter().map(Into::into).collect(),
    };
    Ok((status(well), Json(answer)).into_response())
}

impl Chosen {
    /// What a job is about: all that the filter takes.
    fn filter_of_job(self, now: Timestamp) -> Result<DeadLetterFilter, Problem> {
        if self.limit.is_some() {
            let detail = "a job has no limit: it takes all that the filter takes";
            return Err(Problem::new(Kind::Invalid, detail).field("limit"));
        }
        match self.checked(now)? {
            Selection::Matching { filter, .. } => Ok(filter),
            Selection::Ids(_) => {
                Err(Problem::new(Kind::Invalid, "a job goes by `filter`").field("ids"))
            }
        }
    }

    /// What is meant, once it is clear.
    pub(crate) fn checked(self, now: Timestamp) -> Result<Selection, Problem> {
        let invalid = |field: &str, detail: &str| Problem::new(Kind::Invalid, detail).field(field);
        match (self.ids, self.filter) {
            (Some(_), Some(_)) => Err(invalid("ids", "`ids` and `filter` are both here")),
            (None, None) => Err(invalid("ids", "say which dead letters: `ids` or `filter`")),
            (Some(_), None) if self.limit.is_some() => {
                Err(invalid("limit", "`limit` goes with `filter`"))
            }
            (Some(ids), None) if ids.is_empty() => Err(invalid("ids", "there are none")),
            (Some(ids), None) if ids.len() > MOST_AT_ONCE => {
                Err(invalid("ids", &format!("at most {MOST_AT_ONCE} at a time")))
            }
            (Some(ids), None) => {
                let parsed = ids.iter().enumerate().map(|(place, text)| {
                    text.parse::<DeadLetterId>().map_err(|error| {
                        let detail = format!("{error}; found {:?}", shortened(text));
                        invalid(&format!("ids[{place}]"), &detail)
                    })
                });
                Ok(Selection::Ids(parsed.collect::<Result<_, _>>()?))
            }
            (None, Some(input)) => {
                let filter = input.checked(now)?;
                if filter.is_empty() && !self.confirm {
                    return Err(Problem::new(
                        Kind::ConfirmationNeeded,
                        "an empty filter takes every dead letter: say `\"confirm\": true`",
                    )
                    .field("confirm"));
                }
                let limit = self.limit.unwrap_or(MOST_AT_ONCE as u64);
                if !(1..=MOST_AT_ONCE as u64).contains(&limit) {
                    return Err(invalid(
                        "limit",
                        &format!("it is a whole number from 1 to {MOST_AT_ONCE}"),
                    ));
                }
                let limit = usize::try_from(limit).unwrap_or(MOST_AT_ONCE);
                Ok(Selection::Matching { filter, limit })
            }
        }
    }
}

fn act(who: &Who, what: &'static str, selection: &Selection) -> Act {
    match selection {
        Selection::Ids(ids) => Act::of(who, what, ids),
        Selection::Matching { filter, limit } => Act::new(
            who,
            what,
            format_args!("at most {limit} of {}", Written(filter)),
        ),
    }
}

/// What came of a redrive, in the audit log.
fn in_words(outcome: &RedriveOutcome) -> String {
    let word = outcome.as_str();
    match outcome {
        RedriveOutcome::Moved {
            verdict: Some(verdict),
            ..
        } => format!("{word}, {}", verdict.as_str()),
        _ => word.to_owned(),
    }
}

/// I23: never 200 where something did not go well.
pub(crate) const fn status(well: bool) -> StatusCode {
    if well {
        StatusCode::OK
    } else {
        StatusCode::MULTI_STATUS
    }
}

/// Whether it moved and is, as far as is known, not where it was again.
const fn went_well(result: &RedriveResult) -> bool {
    let back = match &result.outcome {
        RedriveOutcome::Moved { verdict, .. } => is_bad(verdict.as_ref()),
        _ => false,
    };
    result.outcome.is_success() && !back
}

impl From<RedriveResult> for RedrivenEntry {
    fn from(result: RedriveResult) -> Self {
        let outcome = result.outcome.as_str();
        let (message_id, verdict) = match result.outcome {
            RedriveOutcome::Moved {
                message_id,
                verdict,
                ..
            } => (Some(message_id), verdict),
            RedriveOutcome::AlreadyRedriven { message_id } => (Some(message_id), None),
            _ => (None, None),
        };
        let (reason, dead_letter) = why(verdict.as_ref());
        Self {
            id: result.id.to_string(),
            outcome,
            message_id: message_id.map(|id| id.to_string()),
            verdict: verdict.as_ref().map(RedriveVerdict::as_str),
            reason,
            dead_letter,
        }
    }
}

impl From<DeleteResult> for DeletedEntry {
    fn from(result: DeleteResult) -> Self {
        let message_id = match &result.outcome {
            DeleteOutcome::AlreadyRedriven { message_id } => Some(message_id.to_string()),
            _ => None,
        };
        Self {
            id: result.id.to_string(),
            outcome: result.outcome.as_str(),
            message_id,
        }
    }
}
