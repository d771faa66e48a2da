//! Redrives and deletes of any number of dead letters, which go on while nobody waits.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bridge_runtime::{DeadLetterFilter, DeadLetterId, Job, JobId, JobKind, JobObserver, JobState};
use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;

use super::dead_letters::failed;
use super::dead_letters::filter::Written;
use super::state::List;
use crate::admin::App;
use crate::audit::{Act, Begun};
use crate::auth::Who;
use crate::problem::{Problem, ProblemDetails};
use crate::request::{Json, Path, Query};

/// A job, and how far it has come.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobView {
    id: String,
    /// `redrive` or `delete`.
    kind: &'static str,
    /// What it is about, in words.
    about: String,
    /// `running`, `done`, `cancelled` or `failed`.
    state: &'static str,
    /// How many dead letters it has to look through.
    among: u64,
    /// How many of those it has looked at.
    looked_at: u64,
    /// How many of these its filter takes.
    matched: u64,
    /// How many of these it has moved or deleted.
    done: u64,
    /// The others, by the outcome of each.
    failed: BTreeMap<String, u64>,
    /// The bindings at which it gets no further for now. It goes on at the others.
    held_up: Vec<HeldUpView>,
    #[schema(format = DateTime)]
    started: String,
    #[schema(format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

/// A binding at which a job gets no further for now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldUpView {
    route: String,
    binding: String,
    /// `queue_full` or `store_failed`.
    by: &'static str,
    /// Since when nothing has moved there; after ten minutes the rest is counted as failed.
    #[schema(format = DateTime)]
    since: String,
}

/// Writes what a job does into the audit log.
#[derive(Debug)]
struct Audited(Mutex<Begun>);

/// The latest jobs, newest first. They are gone when the bridge is started anew.
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "jobs", operation_id = "jobs",
    responses(
        (status = 200, description = "The latest hundred", body = List<JobView>),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    _: Who,
    query: Query,
) -> Result<Json<List<JobView>>, Problem> {
    query.end()?;
    let jobs = app.control.jobs().map_err(failed)?;
    Ok(Json(List::of(jobs.into_iter().map(Into::into).collect())))
}

/// One job, and how far it has come.
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "job",
    params(("id" = String, Path, description = "As it was given when the job was begun")),
    responses(
        (status = 200, description = "How it stands", body = JobView),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    _: Who,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<JobView>, Problem> {
    query.end()?;
    let job = app.control.job(parse(&id)?).map_err(failed)?;
    Ok(Json(job.ok_or_else(unknown)?.into()))
}

/// Have a job stop where it is. What is moved stays moved.
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancel",
    params(("id" = String, Path, description = "As it was given when the job was begun")),
    responses(
        (status = 200, description = "How it stood", body = JobView),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<JobView>, Problem> {
    query.end()?;
    let id = parse(&id)?;
    let mut act = Act::new(&who, "cancel", format_args!("job {id}")).begins();
    match app.control.cancel_job(id) {
        Ok(Some(job)) => {
            act.ended(job.state.as_str());
            Ok(Json(job.into()))
        }
        Ok(None) => {
            act.ended("there is no such job");
            Err(unknown())
        }
        Err(error) => {
            act.ended(&error);
            Err(failed(error))
        }
    }
}

/// Begins one.
pub(crate) fn begin(
    app: &App,
    who: &Who,
    kind: JobKind,
    filter: DeadLetterFilter,
) -> Result<Response, Problem> {
    let act = Act::new(who, kind.as_str(), Written(&filter)).begins();
    let audited = Arc::new(Audited(Mutex::new(act)));
    let job = app
        .control
        .start_observed_job(kind, filter, audited.clone());
    let job = job.map_err(|error| {
        audited.tell(&error);
        failed(error)
    })?;
    let location = HeaderValue::from_str(&format!("/api/v1/jobs/{}", job.id));
    let mut response = (StatusCode::ACCEPTED, Json(JobView::from(job))).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

impl Audited {
    fn act(&self) -> MutexGuard<'_, Begun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, outcome: impl Display) {
        self.act().ended(outcome);
    }
}

impl JobObserver for Audited {
    fn came(&self, job: JobId, results: &[(DeadLetterId, &'static str)]) {
        let results = results.iter();
        let results = results.map(|(id, outcome)| (id, format!("{outcome} by job {job}")));
        self.act().came(results);
    }

    fn ended(&self, job: &Job) {
        self.tell(format_args!("job {} {}", job.id, summary(job)));
    }
}

fn summary(job: &Job) -> String {
    if let JobState::Failed(why) = &job.state {
        error!(event = "job_failed", job = %job.id, error = %why, "begin it again for the rest");
    }
    let failed: u64 = job.failed.values().sum();
    let state = job.state.as_str();
    format!("{state}: {} of {}, {failed} not", job.done, job.matched)
}

fn parse(id: &str) -> Result<JobId, Problem> {
    id.parse().map_err(|_| unknown())
}

fn unknown() -> Problem {
    Problem::not_found(
        "there is no such job; a bridge that was started anew has forgotten its jobs",
    )
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        let failed = job.failed.into_iter();
        let held_up = job.held_up.into_iter().map(|(key, held)| HeldUpView {
            route: key.route.to_string(),
            binding: key.binding.to_string(),
            by: held.by.as_str(),
            since: held.since.to_string(),
        });
        Self {
            id: job.id.to_string(),
            kind: job.kind.as_str(),
            about: Written(&job.filter).to_string(),
            state: job.state.as_str(),
            among: job.among,
            looked_at: job.looked_at,
            matched: job.matched,
            done: job.done,
            failed: failed
                .map(|(outcome, count)| (outcome.to_owned(), count))
                .collect(),
            held_up: held_up.collect(),
            started: job.started.to_string(),
            ended: job.ended.map(|ended| ended.to_string()),
        }
    }
}
