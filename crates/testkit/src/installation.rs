//! A config file, a data folder and a monitor port for a bridge under test.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::port::PortLease;
use crate::process::{BridgeProcess, BridgeProcessBuilder};

/// The config of one route, `all`, from the session `plant` to the session `cloud` by the binding
/// `out`; everything (`#`) with the QoS that it has, unless told otherwise.
///
/// Delays between attempts to connect are short. The lines that are added are YAML as an operator
/// would write it.
#[derive(Debug, Clone)]
#[must_use = "a config is for `Installation::new`"]
pub struct BridgeConfig {
    plant: String,
    cloud: String,
    from: Option<String>,
    top: Vec<String>,
    plant_lines: Vec<String>,
    cloud_lines: Vec<String>,
    route_lines: Vec<String>,
    binding_lines: Vec<String>,
}

impl BridgeConfig {
    /// From the broker at the URL `plant` to the one at `cloud`.
    pub fn between(plant: impl Into<String>, cloud: impl Into<String>) -> Self {
        Self {
            plant: plant.into(),
            cloud: cloud.into(),
            from: None,
            top: Vec::new(),
            plant_lines: Vec::new(),
            cloud_lines: Vec::new(),
            route_lines: Vec::new(),
            binding_lines: Vec::new(),
        }
    }

    /// Takes these topic filters, in place of `#`.
    pub fn topics(mut self, filters: &[&str]) -> Self {
        self.from = Some(format!("{filters:?}"));
        self
    }

    /// One more line at the top level.
    pub fn top(mut self, line: impl Into<String>) -> Self {
        self.top.push(line.into());
        self
    }

    /// One more line of the session `plant`.
    pub fn plant(mut self, line: impl Into<String>) -> Self {
        self.plant_lines.push(line.into());
        self
    }

    /// One more line of the session `cloud`.
    pub fn cloud(mut self, line: impl Into<String>) -> Self {
        self.cloud_lines.push(line.into());
        self
    }

    /// One more line of the route.
    pub fn route(mut self, line: impl Into<String>) -> Self {
        self.route_lines.push(line.into());
        self
    }

    /// One more line of the binding.
    pub fn binding(mut self, line: impl Into<String>) -> Self {
        self.binding_lines.push(line.into());
        self
    }

    /// The file, for a monitor on that port.
    pub fn to_yaml(&self, monitor_port: u16) -> String {
        let mut yaml = String::new();
        let mut put = |indent: usize, line: &str| {
            let _ = writeln!(yaml, "{:indent$}{line}", "");
        };
        put(0, "bridge: { id: test }");
        put(0, "data_dir: data");
        put(
            0,
            &format!("monitor: {{ listen: \"127.0.0.1:{monitor_port}\" }}"),
        );
        for line in &self.top {
            put(0, line);
        }
        put(0, "sessions:");
        for (name, url, lines) in [
            ("plant", &self.plant, &self.plant_lines),
            ("cloud", &self.cloud, &self.cloud_lines),
        ] {
            put(2, &format!("{name}:"));
            put(4, &format!("url: {url}"));
            put(4, &format!("client_id: bridge-{name}"));
            put(4, "reconnect: { min: 20ms, max: 200ms }");
            for line in lines {
                put(4, line);
            }
        }
        put(0, "routes:");
        put(2, "all:");
        let topics = self.from.as_deref().unwrap_or("[\"#\"]");
        put(
            4,
            &format!("from: {{ session: plant, topics: {topics}, qos: 2 }}"),
        );
        for line in &self.route_lines {
            put(4, line);
        }
        put(4, "bindings:");
        put(6, "out:");
        put(8, "session: cloud");
        for line in &self.binding_lines {
            put(8, line);
        }
        yaml
    }
}

/// A folder with a config file and data, and a port for the monitor; gone on drop. It outlives
/// the processes that run in it.
#[derive(Debug)]
pub struct Installation {
    folder: TempDir,
    monitor: PortLease,
}

impl Installation {
    /// Writes the config.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn new(config: &BridgeConfig) -> Self {
        Self::with(|port| config.to_yaml(port))
    }

    /// Writes the config that `yaml` makes for a port of the monitor.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn with(yaml: impl FnOnce(u16) -> String) -> Self {
        let installation = Self {
            folder: tempfile::Builder::new()
                .prefix("bridge-installation-")
                .tempdir()
                .expect("a temporary folder"),
            monitor: PortLease::take(),
        };
        let yaml = yaml(installation.monitor.port());
        fs::write(installation.config_path(), yaml).expect("the config is writable");
        installation
    }

    /// Writes another config, for the next start.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn reconfigure(&self, config: &BridgeConfig) {
        let yaml = config.to_yaml(self.monitor.port());
        fs::write(self.config_path(), yaml).expect("the config is writable");
    }

    /// The config file.
    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("bridge.yaml")
    }

    /// The folder that the journal is in.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// `program run` with the config, ready to be started.
    pub fn bridge(&self, program: impl AsRef<Path>) -> BridgeProcessBuilder {
        BridgeProcess::builder(program)
            .arg("run")
            .arg(self.config_path())
            .monitor_port(self.monitor.port())
    }
}
