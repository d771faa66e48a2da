//! An MQTT 5 broker inside this process: nothing to install, everything in memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use mqtt5::broker::auth::{AuthProvider, AuthResult};
use mqtt5::broker::config::StorageConfig;
use mqtt5::broker::{BrokerConfig, BrokerShutdownHandle, MqttBroker};
use mqtt5::packet::connect::ConnectPacket;
use tokio::task::JoinHandle;

/// How long a broker may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(3);

/// A running broker on a free port of 127.0.0.1.
pub(crate) struct Broker {
    port: u16,
    handle: BrokerShutdownHandle,
    running: JoinHandle<mqtt5::Result<()>>,
}

impl Broker {
    /// Starts a broker that lets everyone do everything, except to publish to `denied`: that is
    /// answered with 0x87, not authorized.
    pub(crate) async fn start(denied: Option<&'static str>) -> anyhow::Result<Self> {
        let config = BrokerConfig {
            bind_addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            sys_topics_enabled: false,
            storage_config: StorageConfig::default().with_persistence(false),
            ..BrokerConfig::default()
        };
        let mut broker = MqttBroker::with_config(config)
            .await
            .context("cannot start an embedded broker")?
            .with_auth_provider(Arc::new(Acl { denied }));
        let port = broker
            .local_addr()
            .ok_or_else(|| anyhow!("the embedded broker listens nowhere"))?
            .port();
        let handle = broker.shutdown_handle();
        let running = tokio::spawn(async move { broker.run().await });
        Ok(Self {
            port,
            handle,
            running,
        })
    }

    /// The port it listens on.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// `mqtt://127.0.0.1:<port>`
    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Closes every connection and the port.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.handle.shutdown();
        if let Ok(ended) = tokio::time::timeout(GOODBYE, &mut self.running).await {
            ended?.context("an embedded broker failed")
        } else {
            // It has nothing to lose: all that it holds is in memory.
            self.running.abort();
            Ok(())
        }
    }
}

/// Who may do what: everyone everything, but for one topic.
struct Acl {
    denied: Option<&'static str>,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl AuthProvider for Acl {
    fn authenticate<'a>(
        &'a self,
        _connect: &'a ConnectPacket,
        _client: SocketAddr,
    ) -> Answer<'a, mqtt5::Result<AuthResult>> {
        Box::pin(async { Ok(AuthResult::success()) })
    }

    fn authorize_publish<'a>(
        &'a self,
        _client_id: &str,
        _user_id: Option<&'a str>,
        topic: &'a str,
    ) -> Answer<'a, bool> {
        let allowed = self.denied != Some(topic);
        Box::pin(async move { allowed })
    }

    fn authorize_subscribe<'a>(
        &'a self,
        _client_id: &str,
        _user_id: Option<&'a str>,
        _filter: &'a str,
    ) -> Answer<'a, bool> {
        Box::pin(async { true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt5::types::ReasonCode;
    use mqtt5::{MqttClient, MqttError};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_denied_topic_is_refused_and_the_connection_goes_on() {
        let broker = Broker::start(Some("secret")).await.unwrap();
        let client = MqttClient::new("test");
        client.connect(&broker.url()).await.unwrap();

        let refused = client.publish_qos1("secret", "1").await;
        assert!(
            matches!(
                refused,
                Err(MqttError::PublishFailed(ReasonCode::NotAuthorized))
            ),
            "{refused:?}"
        );
        client.publish_qos1("secret/not", "2").await.unwrap();
        client.disconnect().await.unwrap();
        broker.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_stopped_broker_listens_no_more() {
        let broker = Broker::start(None).await.unwrap();
        let address = (Ipv4Addr::LOCALHOST, broker.port());
        TcpStream::connect(address).await.unwrap();
        broker.stop().await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
