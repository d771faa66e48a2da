//! The broker that the demo embeds, with everything allowed.

use std::net::{Ipv4Addr, SocketAddr};

use mqtt5::broker::config::{StorageBackend, StorageConfig};
use mqtt5::broker::{BrokerConfig, MqttBroker};
use tokio::task::JoinHandle;

/// A running broker; ended on drop.
pub(crate) struct Embedded {
    pub(crate) port: u16,
    running: JoinHandle<()>,
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        let config = BrokerConfig {
            bind_addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            storage_config: StorageConfig::default().with_backend(StorageBackend::Memory),
            ..BrokerConfig::default()
        };
        let mut broker = MqttBroker::with_config(config).await.unwrap();
        let port = broker.local_addr().expect("it listens").port();
        Self {
            port,
            running: tokio::spawn(async move { broker.run().await.unwrap() }),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.running.abort();
    }
}
