//! Page sessions: the token is shown once, and a cookie that no script can read stands for it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tracing::info;
use utoipa::ToSchema;

use crate::admin::App;
use crate::auth::Who;
use crate::listener::Peer;
use crate::problem::{Kind, Problem, ProblemDetails};
use crate::request::{self, Json, Query};

/// What proves who wants to log in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The admin token.
    #[schema(format = Password)]
    token: String,
}

/// Who is logged in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LoggedIn {
    /// As the audit log names it.
    #[schema(example = "page session 3 of token 9f86d0")]
    who: String,
}

/// Who asks.
#[utoipa::path(
    get, path = "/api/v1/session", tag = "session", operation_id = "who",
    responses(
        (status = 200, description = "Who asks, as the audit log names it", body = LoggedIn),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(who: Who, query: Query) -> Result<Json<LoggedIn>, Problem> {
    query.end()?;
    Ok(Json(LoggedIn {
        who: who.to_string(),
    }))
}

/// Open a page session: its cookie stands for the token until it ends.
#[utoipa::path(
    post, path = "/api/v1/session", tag = "session", operation_id = "log_in",
    request_body = Login,
    responses(
        (status = 200, description = "It is open; `Set-Cookie` has its id", body = LoggedIn),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
    security(()),
)]
pub(crate) async fn open(
    State(app): State<Arc<App>>,
    peer: Peer,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    query.end()?;
    let headers = request.headers().clone();
    let login: Result<Login, Problem> = request::json(request).await;
    // What a parser says may repeat what it read, and that may be the token.
    let login = login.map_err(|problem| {
        problem.with_detail_of(Kind::Invalid, "the body is an object with the text `token`")
    })?;
    let opened = app.auth.log_in(&login.token, &headers, peer)?;
    info!(
        target: "audit",
        event = "login",
        who = %opened.who,
        peer = %peer.address.ip(),
        "a page session was opened"
    );
    let who = opened.who.to_string();
    Ok((
        [(header::SET_COOKIE, opened.cookie)],
        Json(LoggedIn { who }),
    )
        .into_response())
}

/// End the page session.
#[utoipa::path(
    delete, path = "/api/v1/session", tag = "session", operation_id = "log_out",
    responses(
        (status = 204, description = "It has ended; the cookie is worth nothing any more"),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn close(
    State(app): State<Arc<App>>,
    who: Who,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    query.end()?;
    let cookie = app.auth.log_out(&headers, *who.peer());
    info!(target: "audit", event = "logout", who = %who, peer = %who.peer().address.ip());
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}
