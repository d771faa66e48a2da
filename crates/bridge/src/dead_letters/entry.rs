//! A dead letter as the admin API writes it, and as a person reads it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{Cause, Properties};
use bridge_runtime::DeadLetter;
use serde::{Deserialize, Serialize};

use crate::show::{self, Column};

/// The columns of a list.
pub(crate) const COLUMNS: [Column; 6] = [
    Column::Left("id"),
    Column::Left("given up"),
    Column::Left("reason"),
    Column::Right("attempts"),
    Column::Right("payload"),
    Column::Left("topic"),
];

/// One dead letter. What a bridge of another version says besides is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) route: String,
    pub(crate) binding: String,
    /// Not known where no bridge runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) configured: Option<bool>,
    pub(crate) message_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Origin>,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason_string: Option<String>,
    first_refusal: String,
    last_refusal: String,
    attempts: u32,
    session: String,
    received: String,
    topic: String,
    qos: u8,
    retain: bool,
    payload_bytes: u64,
    /// In base64; a list leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    properties: Option<Shown>,
}

/// What a message was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    message_id: String,
    redrives: u32,
}

/// The properties of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_format: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_expiry: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response_topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_data: Option<String>,
    #[serde(default)]
    user_properties: Vec<(String, String)>,
}

impl Entry {
    /// One that was found in a data folder, without its payload and its properties.
    pub(crate) fn summary(letter: &DeadLetter) -> Self {
        let DeadLetter { id, stored, info } = letter;
        let message = &stored.message;
        Self {
            id: id.to_string(),
            route: id.binding.route.to_string(),
            binding: id.binding.binding.to_string(),
            configured: None,
            message_id: stored.id.to_string(),
            cause: stored.cause.map(|Cause { id, redrives }| Origin {
                message_id: id.to_string(),
                redrives,
            }),
            reason: info.reason.to_string(),
            code: info.reason.code().map(bridge_core::ReasonCode::get),
            reason_string: info.reason_string.clone(),
            first_refusal: info.first_refusal.to_string(),
            last_refusal: info.last_refusal.to_string(),
            attempts: info.attempts,
            session: stored.session.to_string(),
            received: stored.received.to_string(),
            topic: message.topic.to_string(),
            qos: message.qos as u8,
            retain: message.retain,
            payload_bytes: message.payload.len() as u64,
            payload: None,
            payload_text: None,
            properties: None,
        }
    }

    /// The same whole.
    pub(crate) fn whole(letter: &DeadLetter) -> Self {
        let message = &letter.stored.message;
        let text = std::str::from_utf8(&message.payload).ok();
        Self {
            payload: Some(STANDARD.encode(&message.payload)),
            payload_text: text.map(str::to_owned),
            properties: Some(Shown::of(&message.properties)),
            ..Self::summary(letter)
        }
    }

    /// One line of a list.
    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            show::text(&self.id),
            show::text(&self.last_refusal),
            show::text(&self.reason),
            self.attempts.to_string(),
            show::size(self.payload_bytes),
            show::text(&self.topic),
        ]
    }

    /// Its payload; `None` where it is not there.
    pub(crate) fn payload(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.payload.as_ref()?).ok()
    }
}

impl Shown {
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

/// One message whole, with each of the bindings that gave up on it.
pub(crate) fn render_whole(entries: &[Entry], hex: bool) -> String {
    let mut out = String::new();
    let Some(first) = entries.first() else {
        return out;
    };
    let mut line = |name: &str, value: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{:<18} {}", format!("{name}:"), show::text(value));
    };
    line("message", &first.message_id);
    if let Some(cause) = &first.cause {
        line("redriven from", &cause.message_id);
        line("redrives", &cause.redrives.to_string());
    }
    for entry in entries {
        line("dead letter", &entry.id);
        let Entry { route, binding, .. } = entry;
        let gone = match entry.configured {
            Some(false) => " (not in the running configuration)",
            _ => "",
        };
        line("  binding", &format!("{route}/{binding}{gone}"));
        let code = entry
            .code
            .map_or_else(String::new, |code| format!(" (0x{code:02x})"));
        line("  reason", &format!("{}{code}", entry.reason));
        if let Some(said) = &entry.reason_string {
            line("  the broker said", said);
        }
        line("  first refusal", &entry.first_refusal);
        line("  last refusal", &entry.last_refusal);
        line("  attempts", &entry.attempts.to_string());
    }
    line(
        "received",
        &format!("{} from {}", first.received, first.session),
    );
    line("topic", &first.topic);
    line("QoS", &first.qos.to_string());
    line("retain", if first.retain { "yes" } else { "no" });
    if let Some(properties) = &first.properties {
        if let Some(seconds) = properties.message_expiry {
            let expiry = format!("{seconds}s from when it was received");
            line("message expiry", &expiry);
        }
        if let Some(format) = properties.payload_format {
            line(
                "payload format",
                if format == 1 { "UTF-8" } else { "bytes" },
            );
        }
        if let Some(text) = &properties.content_type {
            line("content type", text);
        }
        if let Some(text) = &properties.response_topic {
            line("response topic", text);
        }
        if let Some(text) = &properties.correlation_data {
            let bytes = STANDARD.decode(text).unwrap_or_default();
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            line("correlation data", &digits.join(" "));
        }
        for (name, value) in &properties.user_properties {
            line("user property", &format!("{name} = {value}"));
        }
    }
    line("payload", &show::size(first.payload_bytes));
    let payload = first.payload().unwrap_or_default();
    let body = match std::str::from_utf8(&payload) {
        Ok(text) if !hex => show::lines(text),
        _ => show::hex(&payload),
    };
    for row in body.lines() {
        let _ = writeln!(out, "    {row}");
    }
    out
}
