//! The metrics that only the whole process can tell: its build, its sessions, its journal.

use bridge_core::Name;
use bridge_queue::{JournalStats, RecoveryReport};
use bridge_transport::SessionStats;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// What a metric is called, what is said of it, and where its value stands.
type Of<Stats> = (&'static str, &'static str, fn(&Stats) -> u64);

/// The counters of a session.
const SESSION_COUNTERS: [Of<SessionStats>; 20] = [
    (
        "connects_total",
        "Connections that were established.",
        |stats| stats.connects,
    ),
    (
        "connect_failures_total",
        "Attempts that led to no connection.",
        |stats| stats.connect_failures,
    ),
    (
        "connection_losses_total",
        "Established connections that ended without our wish.",
        |stats| stats.connection_losses,
    ),
    (
        "takeover_total",
        "Times that another client connected with our client id (0x8E).",
        |stats| stats.takeovers,
    ),
    (
        "collision_suspected_total",
        "Connections closed without a word again and again, as another client with our id does.",
        |stats| stats.suspected_collisions,
    ),
    (
        "lost_total",
        "Reconnects at which the broker no longer had the session.",
        |stats| stats.sessions_lost,
    ),
    (
        "answer_timeouts_total",
        "Connections given up because a publish went unanswered.",
        |stats| stats.answer_timeouts,
    ),
    (
        "invalid_topics_total",
        "Messages received with an impossible topic, and set aside.",
        |stats| stats.invalid_topics,
    ),
    (
        "invalid_properties_total",
        "Messages received with an impossible text in their properties, and set aside.",
        |stats| stats.invalid_properties,
    ),
    (
        "too_large_total",
        "Messages received on MQTT 3.1.1 that were too large: acknowledged and lost.",
        |stats| stats.too_large,
    ),
    (
        "properties_lost_total",
        "Messages published on MQTT 3.1.1 without the properties that they had.",
        |stats| stats.properties_lost,
    ),
    (
        "qos0_dropped_total",
        "QoS 0 messages received and dropped for lack of room.",
        |stats| stats.dropped_qos0,
    ),
    (
        "redeliveries_recognised_total",
        "Messages sent again by the broker and recognised, so not handed on twice.",
        |stats| stats.redeliveries_recognised,
    ),
    (
        "late_acknowledgements_total",
        "Acknowledgements given when their connection was over.",
        |stats| stats.late_acknowledgements,
    ),
    (
        "published_total",
        "Messages admitted for publishing.",
        |stats| stats.admitted,
    ),
    (
        "answered_total",
        "Answers received, refusals among them.",
        |stats| stats.answered,
    ),
    ("refused_total", "Answers that were refusals.", |stats| {
        stats.refused
    }),
    (
        "qos_downgraded_total",
        "Messages sent with a lower QoS than they had, by policy.",
        |stats| stats.qos_downgraded,
    ),
    (
        "retain_stripped_total",
        "Messages sent without their retain flag, by policy.",
        |stats| stats.retain_stripped,
    ),
    (
        "leftover_subscriptions_total",
        "Topic filters of an earlier configuration that were ended at the broker.",
        |stats| stats.leftover_subscriptions,
    ),
];

/// The counters of the journal.
const JOURNAL_COUNTERS: [Of<JournalStats>; 6] = [
    ("written_bytes_total", "Bytes written.", |stats| {
        stats.written_bytes
    }),
    (
        "copied_bytes_total",
        "Bytes copied to free the rest of their segments.",
        |stats| stats.copied_bytes,
    ),
    (
        "syncs_total",
        "Times that data was made durable.",
        |stats| stats.syncs,
    ),
    ("records_total", "Records written.", |stats| stats.records),
    (
        "write_failures_total",
        "Times that writing failed, for whichever reason.",
        |stats| stats.write_failures,
    ),
    (
        "sealed_segments_total",
        "Segments given up on because a sync failed.",
        |stats| stats.sealed_segments,
    ),
];

/// The levels of the journal.
const JOURNAL_GAUGES: [Of<JournalStats>; 4] = [
    ("segments", "Files of the journal.", |stats| stats.segments),
    ("bytes", "Bytes of these files.", |stats| stats.bytes),
    (
        "live_bytes",
        "Bytes of these files that are still needed.",
        |stats| stats.live_bytes,
    ),
    (
        "full",
        "1 while the disk was full at the latest attempt to store a message.",
        |stats| u64::from(stats.full),
    ),
];

/// The registered metrics.
pub(crate) struct ProcessMetrics {
    connected: IntGaugeVec,
    refused_subscriptions: IntGaugeVec,
    downgraded_subscriptions: IntGaugeVec,
    certificate_expiry: IntGaugeVec,
    counters: Vec<IntCounterVec>,
    journal_counters: Vec<IntCounter>,
    journal_gauges: Vec<IntGauge>,
}

impl ProcessMetrics {
    /// Registers them; `opened` is what opening the journal found.
    pub(crate) fn register(
        registry: &Registry,
        bridge: &Name,
        opened: &RecoveryReport,
    ) -> prometheus::Result<Self> {
        const SESSION: [&str; 2] = ["session", "role"];
        let info = IntGaugeVec::new(
            Opts::new(
                "bridge_build_info",
                "Always 1; which bridge it is, and its version, are in the labels.",
            ),
            &["bridge", "version"],
        )?;
        info.with_label_values(&[bridge.as_str(), env!("CARGO_PKG_VERSION")])
            .set(1);
        registry.register(Box::new(info))?;
        for (name, help, value) in [
            (
                "bridge_journal_lost_records",
                "Records that turned out to be missing when the journal was opened, at least.",
                opened.lost_records(),
            ),
            (
                "bridge_journal_new_damage",
                "Pieces of damage that were found when the journal was opened, and never before.",
                opened.new_damage(),
            ),
        ] {
            let gauge = IntGauge::new(name, help)?;
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(Box::new(gauge))?;
        }
        let certificate_expiry = IntGaugeVec::new(
            Opts::new(
                "bridge_tls_certificate_expiry_timestamp_seconds",
                "When the client certificate in use ends, in seconds since 1970.",
            ),
            &SESSION,
        )?;
        registry.register(Box::new(certificate_expiry.clone()))?;
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGaugeVec> {
            let name = format!("bridge_mqtt_session_{name}");
            let gauge = IntGaugeVec::new(Opts::new(name, help), &SESSION)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let counter = |(name, help, _): Of<SessionStats>| -> prometheus::Result<IntCounterVec> {
            let name = format!("bridge_mqtt_session_{name}");
            let counter = IntCounterVec::new(Opts::new(name, help), &SESSION)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let journal_counter =
            |(name, help, _): Of<JournalStats>| -> prometheus::Result<IntCounter> {
                let counter = IntCounter::new(format!("bridge_journal_{name}"), help)?;
                registry.register(Box::new(counter.clone()))?;
                Ok(counter)
            };
        let journal_gauge = |(name, help, _): Of<JournalStats>| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(format!("bridge_journal_{name}"), help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        Ok(Self {
            journal_counters: JOURNAL_COUNTERS
                .into_iter()
                .map(journal_counter)
                .collect::<Result<_, _>>()?,
            journal_gauges: JOURNAL_GAUGES
                .into_iter()
                .map(journal_gauge)
                .collect::<Result<_, _>>()?,
            connected: gauge("connected", "1 while there is a connection.")?,
            refused_subscriptions: gauge(
                "refused_subscriptions",
                "Topic filters that the broker refuses at the moment.",
            )?,
            downgraded_subscriptions: gauge(
                "downgraded_subscriptions",
                "Topic filters that the broker grants at a lower QoS than was asked for.",
            )?,
            certificate_expiry,
            counters: SESSION_COUNTERS
                .into_iter()
                .map(counter)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Brings the metrics of the journal up to date. Not to be called twice at once.
    pub(crate) fn journal(&self, stats: &JournalStats) {
        for (counter, (_, _, value)) in self.journal_counters.iter().zip(JOURNAL_COUNTERS) {
            counter.inc_by(value(stats).saturating_sub(counter.get()));
        }
        for (gauge, (_, _, value)) in self.journal_gauges.iter().zip(JOURNAL_GAUGES) {
            gauge.set(i64::try_from(value(stats)).unwrap_or(i64::MAX));
        }
    }

    /// Brings the metrics of one side of a session up to date. Not to be called twice at once.
    pub(crate) fn session(&self, session: &Name, role: &str, stats: &SessionStats) {
        let labels = [session.as_str(), role];
        let set = |gauge: &IntGaugeVec, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            gauge.with_label_values(&labels).set(value);
        };
        set(&self.connected, u64::from(stats.connected));
        set(&self.refused_subscriptions, stats.refused_subscriptions);
        set(
            &self.downgraded_subscriptions,
            stats.downgraded_subscriptions,
        );
        // A session without a certificate has no series.
        if let Some(expiry) = stats.certificate_expiry {
            set(&self.certificate_expiry, expiry.as_millis() / 1_000);
        }
        for (counter, (_, _, value)) in self.counters.iter().zip(SESSION_COUNTERS) {
            let counter = counter.with_label_values(&labels);
            counter.inc_by(value(stats).saturating_sub(counter.get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_say_which_bridge_it_is() {
        let registry = Registry::new();
        let bridge = Name::parse("plant-7").unwrap();
        ProcessMetrics::register(&registry, &bridge, &RecoveryReport::default()).unwrap();
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let info = format!("bridge_build_info{{bridge=\"plant-7\",version=\"{version}\"}} 1\n");
        assert!(text.contains(&info), "{text}");
    }
}
