//! The metrics that only the whole process can tell: its build, its sessions, its journal.

use bridge_core::Name;
use bridge_transport::SessionStats;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// What a session's counters are called, in which order [`values`] gives them.
const SESSION_COUNTERS: [(&str, &str); 12] = [
    ("connects_total", "Connections that were established."),
    ("connect_failures_total", "Attempts that led to no connection."),
    ("connection_losses_total", "Established connections that ended without our wish."),
    ("takeover_total", "Times that another client connected with our client id (0x8E)."),
    ("lost_total", "Reconnects at which the broker no longer had the session."),
    ("answer_timeouts_total", "Connections given up because a publish went unanswered."),
    ("invalid_topics_total", "Messages received with an impossible topic, and set aside."),
    ("qos0_dropped_total", "QoS 0 messages received and dropped for lack of room."),
    ("late_acknowledgements_total", "Acknowledgements dropped because their connection was over."),
    ("published_total", "Messages admitted for publishing."),
    ("answered_total", "Answers received, refusals among them."),
    ("refused_total", "Answers that were refusals."),
];

fn values(stats: &SessionStats) -> [u64; SESSION_COUNTERS.len()] {
    [
        stats.connects,
        stats.connect_failures,
        stats.connection_losses,
        stats.takeovers,
        stats.sessions_lost,
        stats.answer_timeouts,
        stats.invalid_topics,
        stats.dropped_qos0,
        stats.late_acknowledgements,
        stats.admitted,
        stats.answered,
        stats.refused,
    ]
}

/// The registered metrics.
pub(crate) struct ProcessMetrics {
    connected: IntGaugeVec,
    refused_subscriptions: IntGaugeVec,
    counters: Vec<IntCounterVec>,
}

impl ProcessMetrics {
    /// Registers them; `lost_records` is what opening the journal found missing.
    pub(crate) fn register(registry: &Registry, lost_records: u64) -> prometheus::Result<Self> {
        const SESSION: [&str; 2] = ["session", "role"];
        let info = IntGaugeVec::new(
            Opts::new("bridge_build_info", "Always 1; the version is in the label."),
            &["version"],
        )?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let lost = prometheus::IntGauge::new(
            "bridge_journal_lost_records",
            "Records that were damaged on disk when the journal was opened.",
        )?;
        lost.set(i64::try_from(lost_records).unwrap_or(i64::MAX));
        registry.register(Box::new(info))?;
        registry.register(Box::new(lost))?;
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGaugeVec> {
            let name = format!("bridge_mqtt_session_{name}");
            let gauge = IntGaugeVec::new(Opts::new(name, help), &SESSION)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let counter = |(name, help): (&str, &str)| -> prometheus::Result<IntCounterVec> {
            let name = format!("bridge_mqtt_session_{name}");
            let counter = IntCounterVec::new(Opts::new(name, help), &SESSION)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        Ok(Self {
            connected: gauge("connected", "1 while there is a connection.")?,
            refused_subscriptions: gauge(
                "refused_subscriptions",
                "Topic filters that the broker refuses at the moment.",
            )?,
            counters: SESSION_COUNTERS
                .into_iter()
                .map(counter)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Brings the metrics of one side of a session up to date. Not to be called twice at once.
    pub(crate) fn session(&self, session: &Name, role: &str, stats: &SessionStats) {
        let labels = [session.as_str(), role];
        let connected = self.connected.with_label_values(&labels);
        connected.set(i64::from(stats.connected));
        let refused = self.refused_subscriptions.with_label_values(&labels);
        refused.set(i64::try_from(stats.refused_subscriptions).unwrap_or(i64::MAX));
        for (counter, value) in self.counters.iter().zip(values(stats)) {
            let counter = counter.with_label_values(&labels);
            counter.inc_by(value.saturating_sub(counter.get()));
        }
    }
}
