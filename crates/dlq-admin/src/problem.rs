//! What every request that cannot be answered gets: RFC 9457 problem details.
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Refusal;

/// The media type of RFC 9457.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Which kind of problem: the one list of them, with status and title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MalformedJson,
    NotLoggedIn,
    WrongToken,
    ForeignRequest,
    NotFound,
    MethodNotAllowed,
    TooSlow,
    QueueFull,
    TooLarge,
    NotJson,
    Invalid,
    ConfirmationNeeded,
    TooManyAttempts,
    TooManyJobs,
    Defect,
    Stopping,
    StoreUnavailable,
    NoAnswer,
}

impl Kind {
    /// Status, last part of the type, title.
    const fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::MalformedJson => (400, "malformed-json", "The body is no JSON"),
            Self::NotLoggedIn => (401, "not-logged-in", "A token is needed"),
            Self::WrongToken => (401, "wrong-token", "The token is wrong"),
            Self::ForeignRequest => (403, "foreign-request", "Not from this page"),
            Self::NotFound => (404, "not-found", "There is no such thing"),
            Self::MethodNotAllowed => (405, "method-not-allowed", "Not with this method"),
            Self::TooSlow => (408, "too-slow", "The request did not come in time"),
            Self::QueueFull => (409, "queue-full", "The queue is full"),
            Self::TooLarge => (413, "too-large", "The body is too large"),
            Self::NotJson => (415, "not-json", "The body has another media type"),
            Self::Invalid => (422, "invalid", "Something of the request is not understood"),
            Self::ConfirmationNeeded => (422, "confirmation-needed", "This is about everything"),
            Self::TooManyAttempts => (429, "too-many-attempts", "Too many wrong tokens"),
            Self::TooManyJobs => (429, "too-many-jobs", "Too many jobs at a time"),
            Self::Defect => (500, "defect", "A defect of the bridge"),
            Self::Stopping => (503, "stopping", "The bridge is stopping"),
            Self::StoreUnavailable => (503, "store-unavailable", "The store does not answer well"),
            Self::NoAnswer => (503, "no-answer", "There was no answer in time"),
        }
    }
}

/// A problem, on its way to who asked.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    field: Option<String>,
    place: Option<(usize, usize)>,
    retry_after: Option<Duration>,
}

/// RFC 9457 problem details.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDetails {
    /// Which kind of problem, for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:bridge:problem:not-found")]
    kind: String,
    /// The same for people.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What is wrong with this very request, and what would be right.
    detail: String,
    /// The parameter or field that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The line of the body in which it is, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// The column of that line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            field: None,
            place: None,
            retry_after: None,
        }
    }

    /// The same with another detail, when it is of that kind or about JSON.
    pub(crate) fn with_detail_of(mut self, kind: Kind, detail: &str) -> Self {
        if self.kind == kind || self.kind == Kind::MalformedJson {
            detail.clone_into(&mut self.detail);
        }
        self
    }

    /// About this parameter or field.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// There in the body, both counted from 1.
    pub(crate) fn at(mut self, line: usize, column: usize) -> Self {
        self.place = Some((line, column));
        self
    }

    /// The same, if it has a place: of a text that is this line of the body.
    pub(crate) fn on_line(mut self, line: usize) -> Self {
        self.place = self.place.map(|(_, column)| (line, column));
        self
    }

    /// To be tried again after that.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// There is nothing of that name.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// A defect of ours: the log says which, the answer does not.
    pub(crate) fn defect() -> Self {
        Self::new(Kind::Defect, "it is in the bridge's log; please report it")
    }

    pub(crate) fn stopping() -> Self {
        Self::new(Kind::Stopping, "ask again when it has started")
            .retry_after(Duration::from_secs(5))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Anonymous => Self::new(
                Kind::NotLoggedIn,
                "send `Authorization: Bearer` with the admin token",
            ),
            Refusal::NoLogin => Self::new(
                Kind::NotLoggedIn,
                "the page session has ended, or never began: log in",
            ),
            Refusal::WrongToken => Self::new(
                Kind::WrongToken,
                "it is not the token of `admin` in the configuration, or the header has another \
                 form than `Authorization: Bearer` and the token",
            ),
            Refusal::Slowed { retry_after } => Self::new(
                Kind::TooManyAttempts,
                "for a moment no token of this address is looked at, not even the right one",
            )
            .retry_after(retry_after),
            Refusal::Foreign(why) => Self::new(Kind::ForeignRequest, why),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, slug, title) = self.kind.facts();
        let details = ProblemDetails {
            kind: format!("urn:bridge:problem:{slug}"),
            title,
            status,
            detail: self.detail,
            field: self.field,
            line: self.place.map(|(line, _)| line),
            column: self.place.map(|(_, column)| column),
        };
        // Texts and numbers: it cannot fail.
        let body = serde_json::to_vec(&details).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == 401 {
            let scheme = HeaderValue::from_static("Bearer realm=\"bridge\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(wait) = self.retry_after {
            // A part of a second still counts as one.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
