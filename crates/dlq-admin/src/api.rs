//! The calls, by what they are about.

pub(crate) mod dead_letters;
pub(crate) mod delivery;
pub(crate) mod jobs;
pub(crate) mod login;
pub(crate) mod state;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use self::dead_letters::{change, export, import};
use crate::admin::App;

/// Where one logs in.
pub(crate) const SESSION: &str = "/api/v1/session";

/// Every path with its methods. The description of the API has the same ones: a test compares.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route(
            SESSION,
            get(login::show).post(login::open).delete(login::close),
        )
        .route("/api/v1/bridge", get(state::bridge))
        .route("/api/v1/sessions", get(state::sessions))
        .route("/api/v1/routes", get(state::routes))
        .route("/api/v1/bindings", get(state::bindings))
        .merge(offline())
        .route("/api/v1/routes/{route}/inject", post(delivery::inject))
        .route(
            "/api/v1/bindings/{route}/{binding}/pause",
            post(delivery::pause),
        )
        .route(
            "/api/v1/bindings/{route}/{binding}/resume",
            post(delivery::resume),
        )
}

/// What needs no bridge that runs.
pub(crate) fn offline() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/dead-letters", get(dead_letters::list))
        .route("/api/v1/dead-letters/total", get(dead_letters::total))
        .route("/api/v1/dead-letters/{id}", get(dead_letters::show))
        .route("/api/v1/dead-letters/export", get(export::export))
        .route("/api/v1/dead-letters/import", post(import::import))
        .route("/api/v1/dead-letters/redrive", post(change::redrive))
        .route("/api/v1/dead-letters/delete", post(change::delete))
        .route("/api/v1/jobs", get(jobs::list))
        .route("/api/v1/jobs/{id}", get(jobs::show))
        .route("/api/v1/jobs/{id}/cancel", post(jobs::cancel))
}
