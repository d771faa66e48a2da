//! Dead letters on their way in, as an export wrote them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bridge_core::{
    BindingKey, Cause, DeadLetterInfo, Message, MessageId, Reason, StoredMessage, Timestamp,
};
use bridge_runtime::{Import, ImportOutcome, MOST_AT_ONCE};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::change::status;
use super::failed;
use crate::admin::App;
use crate::api::delivery::{PropertiesInput, base64, qos, topic};
use crate::audit::Act;
use crate::auth::Who;
use crate::problem::{Kind, Problem, ProblemDetails};
use crate::request::{self, Json, Query, instant, name};

/// The largest body.
const BODY: usize = 32 << 20;
/// The longest text of MQTT, in bytes.
const LONGEST_TEXT: usize = 65_535;

/// What comes of a line in the place of an entry that the export could not read.
const UNREADABLE: &str = "unreadable";

/// One line of an export.
#[derive(Debug, Deserialize)]
struct Line {
    route: String,
    binding: String,
    message_id: String,
    cause: Option<CauseLine>,
    reason: String,
    reason_string: Option<String>,
    first_refusal: String,
    last_refusal: String,
    attempts: u32,
    session: String,
    received: String,
    topic: String,
    qos: u8,
    retain: bool,
    payload: String,
    properties: PropertiesInput,
}

#[derive(Debug, Deserialize)]
struct CauseLine {
    message_id: String,
    redrives: u32,
}

/// What came of each line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Imported {
    /// How many lines there were.
    requested: usize,
    /// How many of them are dead letters here, now or since an import before.
    kept: usize,
    results: Vec<ImportedLine>,
}

/// What came of one line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImportedLine {
    /// The line, from 1.
    line: usize,
    /// `imported` or `already_imported`; else `binding_not_found`, `dead_letters_full`,
    /// `store_failed`, `stopping`, `unanswered`, or `unreadable` where the export could not read the
    /// entry.
    outcome: &'static str,
    /// The dead letter that it is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// Keep dead letters that were exported, here or at another bridge: a line of JSON each.
///
/// All lines are understood before any is kept; one that says that its entry could not be read is
/// understood, and left out. 200 when each one is kept, 207 when one is not, 429 while another
/// import is under way.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/import", tag = "dead letters", operation_id = "import",
    request_body(content = String, content_type = "application/x-ndjson",
                 description = "At most 10,000 lines and 32 MiB"),
    responses(
        (status = 200, description = "Each one is kept", body = Imported),
        (status = 207, description = "One is not: each result says why", body = Imported),
        (status = "default", description = "Why nothing was done", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    who: Who,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    query.end()?;
    if !request::is_media(request.headers(), "application/x-ndjson") {
        return Err(Problem::new(
            Kind::NotJson,
            "send lines of JSON, with `Content-Type: application/x-ndjson`",
        ));
    }
    // Before the body: those of one import alone are in memory.
    let importer = app.control.importer().map_err(failed)?;
    let bytes = request::body(request, BODY).await?;
    let mut all = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if all.len() >= MOST_AT_ONCE {
            let detail = format!("at most {MOST_AT_ONCE} at a time");
            return Err(Problem::new(Kind::Invalid, detail).at(number, 1));
        }
        let import = match request::parse::<Line>(line) {
            Ok(line) => Some(line.checked(app.clock.wall())),
            Err(_) if is_unreadable(line) => None,
            Err(problem) => return Err(problem.on_line(number)),
        };
        let import = import.transpose();
        all.push((number, import.map_err(|problem| problem.at(number, 1))?));
    }
    let (lines, imports): (Vec<usize>, Vec<Option<Import>>) = all.into_iter().unzip();
    let readable: Vec<bool> = imports.iter().map(Option::is_some).collect();
    let imports: Vec<Import> = imports.into_iter().flatten().collect();
    let messages: Vec<MessageId> = imports.iter().map(|import| import.stored.id).collect();
    let mut act = Act::of(&who, "import", &messages).begins();
    let done = app.act(async move {
        let outcomes = importer.import(imports).await.map_err(|error| {
            act.ended(&error);
            failed(error)
        })?;
        let came = messages.iter().zip(&outcomes).map(|(message, outcome)| {
            let id = kept_as(outcome).unwrap_or_else(|| message.to_string());
            (id, outcome.as_str().to_owned())
        });
        act.came(came);
        let mut outcomes = outcomes.iter();
        let results = lines.into_iter().zip(readable).map(|(line, readable)| {
            let outcome = readable.then(|| outcomes.next()).flatten();
            ImportedLine {
                line,
                outcome: outcome.map_or(UNREADABLE, ImportOutcome::as_str),
                id: outcome.and_then(kept_as),
            }
        });
        let results: Vec<_> = results.collect();
        let kept = results.iter().filter(|result| result.id.is_some()).count();
        act.ended(format_args!("{kept} of {} kept", results.len()));
        Ok((results, kept))
    });
    let (results, kept) = done.await?;
    let well = kept == results.len();
    let answer = Imported {
        requested: results.len(),
        kept,
        results,
    };
    Ok((status(well), Json(answer)).into_response())
}

/// The dead letter that it is here, if it is one.
fn kept_as(outcome: &ImportOutcome) -> Option<String> {
    match outcome {
        ImportOutcome::Imported(id) | ImportOutcome::AlreadyImported(id) => Some(id.to_string()),
        _ => None,
    }
}

/// Whether a line stands in the place of an entry that the export could not read.
fn is_unreadable(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        unreadable: bool,
    }
    serde_json::from_slice(line).is_ok_and(|mark: Mark| mark.unreadable)
}

impl Line {
    fn checked(self, now: Timestamp) -> Result<Import, Problem> {
        let mut message = Message::new(
            topic("topic", &self.topic)?,
            base64("payload", &self.payload)?,
        );
        message.qos = qos(self.qos)?;
        message.retain = self.retain;
        message.properties = self.properties.checked()?;
        let cause = self.cause.map(|cause| {
            let id = read("cause.message_id", &cause.message_id, id)?;
            let redrives = cause.redrives;
            Ok::<_, Problem>(Cause { id, redrives })
        });
        let moment = |text: &str| instant(text, now);
        let reason_string = self.reason_string;
        if reason_string
            .as_ref()
            .is_some_and(|text| text.len() > LONGEST_TEXT)
        {
            let detail = "a text of MQTT has at most 65,535 bytes";
            return Err(Problem::new(Kind::Invalid, detail).field("reason_string"));
        }
        Ok(Import {
            binding: BindingKey::new(
                read("route", &self.route, name)?,
                read("binding", &self.binding, name)?,
            ),
            stored: StoredMessage {
                id: read("message_id", &self.message_id, id)?,
                cause: cause.transpose()?,
                session: read("session", &self.session, name)?,
                received: read("received", &self.received, moment)?,
                message,
            },
            info: DeadLetterInfo {
                reason: read("reason", &self.reason, |text| {
                    text.parse::<Reason>().map_err(|error| error.to_string())
                })?,
                reason_string,
                first_refusal: read("first_refusal", &self.first_refusal, moment)?,
                last_refusal: read("last_refusal", &self.last_refusal, moment)?,
                attempts: self.attempts,
            },
        })
    }
}

fn id(text: &str) -> Result<MessageId, String> {
    text.parse::<MessageId>().map_err(|error| error.to_string())
}

fn read<T>(
    field: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Problem> {
    parse(text).map_err(|detail| Problem::new(Kind::Invalid, detail).field(field))
}
