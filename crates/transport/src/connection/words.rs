//! What the library says of a connection, in words for the operator.

use rumqttc::{ConnectionError, StateError, mqttbytes};

/// What went wrong, without the names of the library's layers that it came through.
pub(super) fn of(error: &ConnectionError) -> String {
    match error {
        ConnectionError::Io(error)
        | ConnectionError::MqttState(
            StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)),
        ) => error.to_string(),
        ConnectionError::MqttState(StateError::ConnectionAborted) => {
            "the broker closed the connection without a word".to_owned()
        }
        ConnectionError::MqttState(StateError::AwaitPingResp) => {
            "the broker has not answered a ping".to_owned()
        }
        ConnectionError::MqttState(error) => error.to_string(),
        ConnectionError::Timeout(_) => {
            "the way is open, and the broker has not answered the CONNECT in connect_timeout"
                .to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_the_socket_or_the_guard_said_is_all_that_is_said() {
        let reset = || io::Error::new(io::ErrorKind::ConnectionReset, "it was reset");
        for error in [
            ConnectionError::Io(reset()),
            StateError::Io(reset()).into(),
            StateError::Deserialization(mqttbytes::Error::Io(reset())).into(),
        ] {
            assert_eq!(of(&error), "it was reset", "{error:?}");
        }
    }

    #[test]
    fn no_layer_of_the_library_is_named() {
        for error in [
            StateError::ConnectionAborted,
            StateError::AwaitPingResp,
            StateError::InvalidState,
        ] {
            let said = of(&ConnectionError::from(error));
            assert!(!said.contains("Mqtt state"), "{said}");
        }
    }
}
