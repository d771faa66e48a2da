//! What a session that is only read from says of itself.

use bridge_core::{Message, ReasonCode};
use rumqttc::{AsyncClient, PublishNotice, PublishResult};
use tokio::time::{sleep, timeout};

use super::Shared;
use crate::connection::{self, Connection, Ending};
use crate::packet::{self, Policies};
use crate::status::{ONCE_MORE, Status};

/// A birth that has been handed to the library.
pub(super) struct Birth {
    message: Message,
    /// `None` when the connection has ended before.
    notice: Option<PublishNotice>,
}

impl Birth {
    /// Hands it over, before anything else that the connection publishes.
    pub(super) fn say(connection: &Connection, status: &Status) -> Self {
        let mut message = status.online();
        packet::adapt(&mut message, &connection.welcome.limits, Policies::LENIENT);
        let notice = connection::try_publish(&connection.client, message.clone());
        Self { message, notice }
    }
}

/// Hears what the broker says to the birth, and says it once more. Ends only when the connection
/// is no longer of use.
pub(super) async fn keep_announced(
    shared: &Shared,
    client: &AsyncClient,
    birth: Option<Birth>,
) -> Ending {
    if let Some(Birth { message, notice }) = birth {
        if let Some(ending) = answer(shared, notice).await {
            return ending;
        }
        sleep(ONCE_MORE).await;
        if let Some(ending) = answer(shared, connection::try_publish(client, message)).await {
            return ending;
        }
    }
    std::future::pending().await
}

/// Waits for the broker's answer: `None` when it has come, or the connection has ended by itself.
async fn answer(shared: &Shared, notice: Option<PublishNotice>) -> Option<Ending> {
    let after = shared.config.answer_timeout;
    match timeout(after, notice?.wait_async()).await {
        Ok(Ok(PublishResult::Qos1(ack))) if ack.reason as u8 >= 0x80 => {
            let reason_string = ack.properties.and_then(|said| said.reason_string);
            let code = ReasonCode::new(ack.reason as u8);
            shared.config.status_refused(code, reason_string.as_deref());
            None
        }
        Ok(_) => None,
        Err(_) => Some(Ending::Unanswered {
            what: "PUBLISH",
            after,
        }),
    }
}
