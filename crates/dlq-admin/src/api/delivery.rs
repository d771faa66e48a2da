//! What an operator does about delivery: pausing a binding, and giving a route a test message.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{BindingKey, Message, PayloadFormat, Properties, QoS, Topic};
use bridge_runtime::{InjectTarget, RedriveVerdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::dead_letters::change::status;
use super::dead_letters::failed;
use crate::admin::App;
use crate::audit::Act;
use crate::auth::Who;
use crate::problem::{Kind, Problem, ProblemDetails};
use crate::request::{self, Json, Path, Query, count, name};

/// The longest that a verdict is waited for, in seconds.
const LONGEST_WAIT: u64 = 60;

/// Whether a binding is paused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseState {
    route: String,
    binding: String,
    paused: bool,
    /// Whether it was different before.
    changed: bool,
}

/// A test message: to all bindings of the route, or to one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestMessage {
    /// The topic that it comes with. All bindings get it only if the route takes that topic.
    #[schema(example = "sensors/boiler/1")]
    topic: String,
    /// The payload as text.
    payload: Option<String>,
    /// The payload in base64, in place of `payload`.
    payload_base64: Option<String>,
    /// 0, 1 or 2; 1 where it is left out.
    #[schema(maximum = 2)]
    qos: Option<u8>,
    #[serde(default)]
    retain: bool,
    /// Only to this binding, whatever the topic.
    binding: Option<String>,
    properties: Option<PropertiesInput>,
}

/// What MQTT 5 lets a message say besides.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PropertiesInput {
    /// 0: bytes, 1: UTF-8.
    #[schema(maximum = 1)]
    payload_format: Option<u8>,
    /// The expiry interval in seconds.
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    message_expiry: Option<u32>,
    content_type: Option<String>,
    response_topic: Option<String>,
    /// In base64.
    correlation_data: Option<String>,
    /// Names with values.
    #[serde(default)]
    user_properties: Vec<(String, String)>,
}

/// What came of a test message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Injection {
    /// Its id.
    message_id: String,
    /// Whether every binding has it durably; else it is stored as soon as the store can.
    stored: bool,
    bindings: Vec<InjectedAt>,
}

/// What came of a test message at one binding.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InjectedAt {
    route: String,
    binding: String,
    /// With `wait`: `delivered`, `refused`, `deferred`, `dropped`, or `queued` where nothing has
    /// become of it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// Why it was refused, or by which policy it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The dead letter that it is where it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<String>,
}

/// Stop delivery at a binding: what arrives is queued. It ends with a resume, and with the process.
#[utoipa::path(
    post, path = "/api/v1/bindings/{route}/{binding}/pause", tag = "delivery",
    operation_id = "pause",
    params(("route" = String, Path), ("binding" = String, Path)),
    responses(
        (status = 200, description = "It is paused", body = PauseState),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Path(path): Path<(String, String)>,
    query: Query,
) -> Result<Json<PauseState>, Problem> {
    query.end()?;
    set(&app, &who, &path, true)
}

/// Have a paused binding go on, its queue first.
#[utoipa::path(
    post, path = "/api/v1/bindings/{route}/{binding}/resume", tag = "delivery",
    operation_id = "resume",
    params(("route" = String, Path), ("binding" = String, Path)),
    responses(
        (status = 200, description = "It goes on", body = PauseState),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Path(path): Path<(String, String)>,
    query: Query,
) -> Result<Json<PauseState>, Problem> {
    query.end()?;
    set(&app, &who, &path, false)
}

fn set(
    app: &App,
    who: &Who,
    (route, binding): &(String, String),
    paused: bool,
) -> Result<Json<PauseState>, Problem> {
    let unknown = || Problem::not_found("there is no such binding");
    let key = match (name(route), name(binding)) {
        (Ok(route), Ok(binding)) => BindingKey::new(route, binding),
        _ => return Err(unknown()),
    };
    let mut act = Act::new(who, if paused { "pause" } else { "resume" }, &key).begins();
    let done = if paused {
        app.control.pause(&key)
    } else {
        app.control.resume(&key)
    };
    let changed = done.map_err(|error| {
        act.ended(&error);
        failed(error)
    })?;
    act.ended(if changed { "done" } else { "it was so before" });
    Ok(Json(PauseState {
        route: key.route.to_string(),
        binding: key.binding.to_string(),
        paused,
        changed,
    }))
}

/// Give a route a test message: through its queues to all of its bindings, or to one.
///
/// 200 when all went well; 207 when it is not stored yet, or was refused or dropped while that was
/// waited for.
#[utoipa::path(
    post, path = "/api/v1/routes/{route}/inject", tag = "delivery", operation_id = "inject",
    request_body = TestMessage,
    params(
        ("route" = String, Path),
        ("wait" = Option<u64>, Query, maximum = 60,
         description = "So many seconds are waited for what becomes of it"),
    ),
    responses(
        (status = 200, description = "It is stored", body = Injection),
        (status = 207, description = "Not all went well", body = Injection),
        (status = "default", description = "Why nothing was done", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn inject(
    State(app): State<Arc<App>>,
    who: Who,
    Path(route): Path<String>,
    mut query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wait = query.take("wait", count(0, LONGEST_WAIT))?;
    query.end()?;
    let input: TestMessage = request::json(request).await?;
    let Ok(route) = name(&route) else {
        return Err(Problem::not_found("there is no such route"));
    };
    let target = match &input.binding {
        Some(text) => match name(text) {
            Ok(binding) => InjectTarget::Binding(binding),
            Err(detail) => return Err(invalid("binding", detail)),
        },
        None => InjectTarget::Pipeline,
    };
    let message = input.message()?;
    let act = match &target {
        InjectTarget::Pipeline => Act::new(&who, "inject", &route),
        InjectTarget::Binding(binding) => {
            Act::new(&who, "inject", format_args!("{route}/{binding}"))
        }
    };
    let mut act = act.begins();
    let wait = wait.filter(|wait| *wait > 0).map(Duration::from_secs);
    let control = app.control.clone();
    let injected = app.act(async move {
        let injected = control.inject(&route, message, target, wait).await;
        let injected = injected.map_err(|error| {
            act.ended(&error);
            failed(error)
        })?;
        act.ended(format_args!(
            "message {}, stored: {}",
            injected.message_id, injected.stored
        ));
        Ok(injected)
    });
    let injected = injected.await?;
    let verdicts = injected.bindings.iter().map(|(_, verdict)| verdict);
    let well = injected.stored && verdicts.clone().all(|verdict| !is_bad(verdict.as_ref()));
    let answer = Injection {
        message_id: injected.message_id.to_string(),
        stored: injected.stored,
        bindings: injected.bindings.into_iter().map(at).collect(),
    };
    Ok((status(well), Json(answer)).into_response())
}

/// Whether a verdict is one that the operator does not want.
pub(crate) const fn is_bad(verdict: Option<&RedriveVerdict>) -> bool {
    matches!(
        verdict,
        Some(RedriveVerdict::Refused { .. } | RedriveVerdict::Dropped { .. })
    )
}

/// Reason and new dead letter of a verdict that has them.
pub(crate) fn why(verdict: Option<&RedriveVerdict>) -> (Option<String>, Option<String>) {
    match verdict {
        Some(RedriveVerdict::Refused {
            reason,
            dead_letter,
        }) => (Some(reason.to_string()), Some(dead_letter.to_string())),
        Some(RedriveVerdict::Dropped { policy }) => (Some((*policy).to_owned()), None),
        _ => (None, None),
    }
}

fn at((key, verdict): (BindingKey, Option<RedriveVerdict>)) -> InjectedAt {
    let (reason, dead_letter) = why(verdict.as_ref());
    InjectedAt {
        route: key.route.to_string(),
        binding: key.binding.to_string(),
        verdict: verdict.as_ref().map(RedriveVerdict::as_str),
        reason,
        dead_letter,
    }
}

fn invalid(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Kind::Invalid, detail).field(field)
}

/// Bytes that a request has in base64.
pub(crate) fn base64(field: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let decoded = STANDARD.decode(text);
    decoded.map_err(|_| invalid(field, "it is no base64"))
}

/// A topic that can be published to.
pub(crate) fn topic(field: &str, text: &str) -> Result<Topic, Problem> {
    Topic::parse(text).map_err(|error| invalid(field, error.to_string()))
}

/// A quality of service.
pub(crate) fn qos(level: u8) -> Result<QoS, Problem> {
    QoS::from_u8(level).ok_or_else(|| invalid("qos", "it is 0, 1 or 2"))
}

impl TestMessage {
    fn message(&self) -> Result<Message, Problem> {
        let payload = match (&self.payload, &self.payload_base64) {
            (Some(_), Some(_)) => {
                let detail = "`payload` and `payload_base64` are both here";
                return Err(invalid("payload_base64", detail));
            }
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(text)) => base64("payload_base64", text)?,
            (None, None) => Vec::new(),
        };
        let mut message = Message::new(topic("topic", &self.topic)?, payload);
        message.qos = qos(self.qos.unwrap_or(1))?;
        message.retain = self.retain;
        if let Some(properties) = &self.properties {
            message.properties = properties.checked()?;
        }
        Ok(message)
    }
}

impl PropertiesInput {
    /// The same with every text understood.
    pub(crate) fn checked(&self) -> Result<Properties, Problem> {
        let text = |field, text: Option<&String>| match text {
            Some(text) if text.len() > usize::from(u16::MAX) || text.contains('\0') => {
                let detail = "a text of MQTT has at most 65,535 bytes, and none of them is NUL";
                Err(invalid(field, detail))
            }
            text => Ok(text.cloned()),
        };
        for (key, value) in &self.user_properties {
            text("properties.user_properties", Some(key))?;
            text("properties.user_properties", Some(value))?;
        }
        let response_topic = self.response_topic.as_ref();
        if let Some(response_topic) = response_topic {
            topic("properties.response_topic", response_topic)?;
        }
        let correlation = self.correlation_data.as_ref();
        let correlation = correlation
            .map(|text| base64("properties.correlation_data", text))
            .transpose()?;
        if correlation
            .as_ref()
            .is_some_and(|data| data.len() > usize::from(u16::MAX))
        {
            return Err(invalid(
                "properties.correlation_data",
                "it has at most 65,535 bytes",
            ));
        }
        Ok(Properties {
            payload_format: match self.payload_format {
                None => None,
                Some(0) => Some(PayloadFormat::Bytes),
                Some(1) => Some(PayloadFormat::Utf8),
                Some(_) => return Err(invalid("properties.payload_format", "it is 0 or 1")),
            },
            message_expiry: self.message_expiry,
            content_type: text("properties.content_type", self.content_type.as_ref())?,
            response_topic: response_topic.cloned(),
            correlation_data: correlation.map(Into::into),
            user_properties: self.user_properties.clone(),
        })
    }
}
