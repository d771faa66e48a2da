//! What stands around every call: who may, whether the bridge is stopping, headers of safety, and
//! that a defect is an answer too.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use tokio::time::timeout;
use tracing::{error, warn};

use crate::admin::App;
use crate::api::SESSION;
use crate::auth::Who;
use crate::listener::Peer;
use crate::problem::{Kind, Problem};

/// A call that has not begun to answer by then is given up; what it has set going goes on.
const AT_MOST: Duration = Duration::from_secs(120);
/// After which who got no answer may look again.
const RETRY: Duration = Duration::from_secs(5);

/// Nothing is loaded from elsewhere, framed, guessed or kept, and no script makes markup or code of
/// a text (`trusted-types`). A file of the page says itself how it may be kept.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Puts it around `routes`.
pub(crate) fn around(routes: Router<Arc<App>>, app: &Arc<App>) -> Router {
    everywhere(routes)
        .layer(from_fn_with_state(app.clone(), admitted))
        .layer(from_fn(sound))
        .with_state(app.clone())
}

/// The same where nobody asks but `who`.
pub(crate) fn around_own(routes: Router<Arc<App>>, app: &Arc<App>, who: Who) -> Router {
    everywhere(routes)
        .layer(from_fn_with_state(who, own))
        .layer(from_fn(sound))
        .with_state(app.clone())
}

fn everywhere(routes: Router<Arc<App>>) -> Router<Arc<App>> {
    routes
        .fallback(nowhere)
        .method_not_allowed_fallback(otherwise)
}

async fn nowhere() -> Problem {
    Problem::not_found("nothing is at this path; the calls are in spec/openapi.yaml")
}

async fn otherwise() -> Problem {
    Problem::new(
        Kind::MethodNotAllowed,
        "the methods of this path are in the header Allow",
    )
}

/// Whoever asks is that one.
async fn own(State(who): State<Who>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(who);
    next.run(request).await
}

/// Lets in who may, while the bridge is not stopping.
async fn admitted(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return Problem::defect().into_response();
    };
    let path = request.uri().path();
    let logs_in = path == SESSION && request.method() == Method::POST;
    if path.starts_with("/api") && !logs_in {
        match app.auth.identify(request.method(), request.headers(), peer) {
            Ok(who) => drop(request.extensions_mut().insert(who)),
            Err(refusal) => return Problem::from(refusal).into_response(),
        }
    }
    if app.observed.status().is_none() {
        return Problem::stopping().into_response();
    }
    next.run(request).await
}

/// Gives every answer its headers, and makes one of a defect.
async fn sound(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let call = AssertUnwindSafe(next.run(request)).catch_unwind();
    let mut response = match timeout(AT_MOST, call).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            // What was wrong has been printed by the hook of panics.
            error!(event = "call_failed", path, "a defect; please report it");
            Problem::defect().into_response()
        }
        Err(_) => {
            warn!(
                event = "call_too_slow",
                path, "no answer within {AT_MOST:?}; what was begun goes on"
            );
            Problem::new(
                Kind::NoAnswer,
                "what was begun goes on, and its end will be in the audit log; look how it stands \
                 before you ask for the same again",
            )
            .retry_after(RETRY)
            .into_response()
        }
    };
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_is_no_defect() {
        let routes = Router::new()
            .route("/", get(std::future::pending::<()>))
            .layer(from_fn(sound));
        let request = Request::new(Body::empty());
        let answer = TowerToHyperService::new(routes).call(request).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["content-type"], crate::problem::MEDIA_TYPE);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
    }
}
