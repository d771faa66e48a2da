//! The lease of the exclusive sessions: kept, shown, and given back when they have closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use bridge_core::{Clock, Name, Permit};
use bridge_dlq_admin::{LeaseFacts, LeaseHolder};
use bridge_lease::{
    FileLease, Keeper, LeaseStats, LeaseStore as Store, Owner, PostgresLease, Role,
};
use prometheus::{IntCounter, IntGauge, Registry};
use tracing::info;

use crate::config::{Config, LeaseStore, Mode};

/// The lease, and the sessions that wait for it.
pub(crate) struct Lease {
    keeper: Arc<Keeper>,
    owner: Owner,
    sessions: BTreeSet<Name>,
    metrics: Metrics,
}

impl Lease {
    /// Begins to keep it, where there are exclusive sessions.
    ///
    /// A store that does not answer is waited for: until it does, this instance is a standby.
    pub(crate) fn keep(
        config: &Config,
        clock: &Arc<dyn Clock>,
        registry: &Registry,
    ) -> anyhow::Result<Option<Self>> {
        let Some(lease) = &config.lease else {
            return Ok(None);
        };
        let owner = Owner::new(lease.instance_id.as_str()).context("bridge.instance_id")?;
        let store: Arc<dyn Store> = match &lease.store {
            LeaseStore::File(path) => Arc::new(FileLease::new(path, Arc::clone(clock))),
            LeaseStore::Postgres(settings) => Arc::new(PostgresLease::new(
                settings.as_ref().clone(),
                Arc::clone(clock),
            )),
        };
        let identities = config.identities.iter();
        let sessions: BTreeSet<Name> = identities
            .filter(|(_, identity)| identity.mode == Mode::Exclusive)
            .map(|(name, _)| name.clone())
            .collect();
        info!(
            event = "lease",
            lease = %lease.name,
            %store,
            %owner,
            sessions = sessions.iter().map(Name::as_str).collect::<Vec<_>>().join(","),
            lease_ttl_ms = millis(lease.settings.lease_ttl()),
            "the exclusive sessions wait for the lease: standby until it is here"
        );
        Ok(Some(Self {
            metrics: Metrics::register(registry)?,
            keeper: Keeper::start(
                store,
                lease.name.clone(),
                owner.clone(),
                lease.settings,
                Arc::clone(clock),
            ),
            owner,
            sessions,
        }))
    }

    /// What that session has to ask before it connects, if it is exclusive.
    pub(crate) fn permit(&self, session: &Name) -> Option<Arc<dyn Permit>> {
        let keeper = || Arc::clone(&self.keeper) as Arc<dyn Permit>;
        self.sessions.contains(session).then(keeper)
    }

    /// Whether that session is not expected to be connected, because another instance has it.
    pub(crate) fn excuses(&self, session: &Name) -> bool {
        self.sessions.contains(session) && !self.is_active()
    }

    /// What the listeners tell of it.
    pub(crate) fn facts(&self) -> LeaseFacts {
        let held = |owner: &Owner, token| LeaseHolder {
            owner: owner.instance().to_owned(),
            token,
        };
        match self.keeper.role() {
            Role::Active { token } => LeaseFacts {
                active: true,
                holder: Some(held(&self.owner, token)),
            },
            Role::Standby { holder } => LeaseFacts {
                active: false,
                holder: holder.map(|holder| held(&holder.owner, holder.token)),
            },
        }
    }

    fn is_active(&self) -> bool {
        matches!(self.keeper.role(), Role::Active { .. })
    }

    /// Brings the metrics up to date. Not to be called twice at once.
    pub(crate) fn refresh_metrics(&self) {
        let token = match self.keeper.role() {
            Role::Active { token } => Some(token),
            Role::Standby { .. } => None,
        };
        self.metrics.refresh(token, &self.keeper.stats());
    }

    /// Gives it back: the sessions have closed.
    pub(crate) async fn release(&self) {
        self.keeper.release().await;
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a metric is called, what is said of it, and where its value stands.
type Of = (&'static str, &'static str, fn(&LeaseStats) -> u64);

const COUNTERS: [Of; 4] = [
    (
        "bridge_lease_acquired_total",
        "Times that the lease was acquired.",
        |stats| stats.acquired,
    ),
    (
        "bridge_lease_lost_total",
        "Times that the lease was lost: not renewed in time, or taken by another.",
        |stats| stats.lost,
    ),
    (
        "bridge_lease_renew_failures_total",
        "Renewals that failed, for whatever reason.",
        |stats| stats.renew_failures,
    ),
    (
        "bridge_lease_store_errors_total",
        "Requests that the store of the lease did not answer, or answered with an error.",
        |stats| stats.store_errors,
    ),
];

struct Metrics {
    held: IntGauge,
    token: IntGauge,
    counters: Vec<IntCounter>,
}

impl Metrics {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let counter = |(name, help, _): Of| -> prometheus::Result<IntCounter> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        Ok(Self {
            held: gauge(
                "bridge_lease_held",
                "1 while this instance holds the lease of the exclusive sessions: it is active.",
            )?,
            token: gauge(
                "bridge_lease_token",
                "The number of the tenure, greater for each of any instance; 0 on standby.",
            )?,
            counters: COUNTERS
                .into_iter()
                .map(counter)
                .collect::<Result<_, _>>()?,
        })
    }

    fn refresh(&self, token: Option<u64>, stats: &LeaseStats) {
        self.held.set(i64::from(token.is_some()));
        let token = token.unwrap_or_default();
        self.token.set(i64::try_from(token).unwrap_or(i64::MAX));
        for (counter, (_, _, value)) in self.counters.iter().zip(COUNTERS) {
            counter.inc_by(value(stats).saturating_sub(counter.get()));
        }
    }
}
