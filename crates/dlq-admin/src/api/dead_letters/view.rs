//! Dead letters as the API shows them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{Cause, Properties};
use bridge_runtime::{DeadLetter, DeadLetterSummary, Page, Total};
use serde::Serialize;
use utoipa::ToSchema;

/// One dead letter without its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterView {
    /// What it is called in every call; it needs no escaping in a URL.
    #[schema(example = "telemetry~cloud~4711")]
    id: String,
    /// The route.
    route: String,
    /// The binding that gave up on it.
    binding: String,
    /// Whether the running configuration has that binding. Where it has not, the entry can be
    /// exported and deleted, and not redriven.
    configured: bool,
    /// The id that the message has.
    message_id: String,
    /// The dead letter that it was before it was redriven or imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseView>,
    /// Why it was given up on.
    #[schema(example = "not_authorized")]
    reason: String,
    /// The broker's code, where it was the broker that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    /// The broker's own words, where it gave any.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_string: Option<String>,
    /// When it was refused for the first time.
    #[schema(format = DateTime)]
    first_refusal: String,
    /// When it was refused for the last time, and given up on.
    #[schema(format = DateTime)]
    last_refusal: String,
    /// How often it was offered.
    attempts: u32,
    /// The session that it came from.
    session: String,
    /// When it came.
    #[schema(format = DateTime)]
    received: String,
    /// Its topic, as it came.
    topic: String,
    /// Its quality of service.
    #[schema(maximum = 2)]
    qos: u8,
    /// Its retain flag.
    retain: bool,
    /// The length of its payload.
    payload_bytes: u64,
}

/// Where a message comes from that was a dead letter before.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CauseView {
    /// The id that the message had.
    message_id: String,
    /// How often it was redriven, that time included.
    redrives: u32,
}

/// One dead letter whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterWhole {
    #[serde(flatten)]
    summary: DeadLetterView,
    /// The payload in base64.
    payload: String,
    /// The same as text, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_text: Option<String>,
    properties: PropertiesView,
}

/// What MQTT 5 lets a message say besides.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PropertiesView {
    /// 0: bytes, 1: UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_format: Option<u8>,
    /// The expiry interval in seconds when the message came.
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expiry: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_topic: Option<String>,
    /// In base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_data: Option<String>,
    /// Names with values, in their order.
    user_properties: Vec<(String, String)>,
}

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterPage {
    items: Vec<DeadLetterView>,
    /// The `cursor` of the next page; absent at the end. A page whose time ran out while it
    /// searched has fewer entries than were asked for, or none, and yet a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many the filter takes in all.
    total: u64,
    /// Whether `total` is the whole number. It always is by route, binding, reason and time; by
    /// topic or message id it is at least so many where that was not found out in time.
    total_is_exact: bool,
    /// Entries that cannot be read, because the disk lost them; they can be deleted. Each takes the
    /// place of an item.
    unreadable: Vec<String>,
}

/// How many dead letters a filter takes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterTotal {
    /// How many.
    total: u64,
    /// Whether that is the whole number; if not, it is at least so many.
    total_is_exact: bool,
}

impl From<Total> for DeadLetterTotal {
    fn from(total: Total) -> Self {
        Self {
            total: total.count(),
            total_is_exact: total.is_exact(),
        }
    }
}

impl From<DeadLetterSummary> for DeadLetterView {
    fn from(summary: DeadLetterSummary) -> Self {
        let DeadLetterSummary { id, info, .. } = summary;
        Self {
            route: id.binding.route.to_string(),
            binding: id.binding.binding.to_string(),
            id: id.to_string(),
            configured: summary.configured,
            message_id: summary.message_id.to_string(),
            cause: summary.cause.map(Into::into),
            reason: info.reason.to_string(),
            code: info.reason.code().map(bridge_core::ReasonCode::get),
            reason_string: info.reason_string,
            first_refusal: info.first_refusal.to_string(),
            last_refusal: info.last_refusal.to_string(),
            attempts: info.attempts,
            session: summary.session.to_string(),
            received: summary.received.to_string(),
            topic: summary.topic.to_string(),
            qos: summary.qos as u8,
            retain: summary.retain,
            payload_bytes: summary.payload_bytes,
        }
    }
}

impl From<Cause> for CauseView {
    fn from(cause: Cause) -> Self {
        Self {
            message_id: cause.id.to_string(),
            redrives: cause.redrives,
        }
    }
}

impl DeadLetterWhole {
    pub(crate) fn of(letter: &DeadLetter, configured: bool) -> Self {
        let message = &letter.stored.message;
        let text = std::str::from_utf8(&message.payload);
        Self {
            summary: letter.summary(configured).into(),
            payload: STANDARD.encode(&message.payload),
            payload_text: text.ok().map(str::to_owned),
            properties: PropertiesView::of(&message.properties),
        }
    }
}

impl PropertiesView {
    fn of(properties: &Properties) -> Self {
        let correlation = properties.correlation_data.as_ref();
        Self {
            payload_format: properties.payload_format.map(|format| format as u8),
            message_expiry: properties.message_expiry,
            content_type: properties.content_type.clone(),
            response_topic: properties.response_topic.clone(),
            correlation_data: correlation.map(|data| STANDARD.encode(data)),
            user_properties: properties.user_properties.clone(),
        }
    }
}

impl From<Page> for DeadLetterPage {
    fn from(page: Page) -> Self {
        Self {
            items: page.entries.into_iter().map(Into::into).collect(),
            next: page.next.map(|cursor| cursor.to_string()),
            total: page.total.count(),
            total_is_exact: page.total.is_exact(),
            unreadable: page.unreadable.iter().map(ToString::to_string).collect(),
        }
    }
}
