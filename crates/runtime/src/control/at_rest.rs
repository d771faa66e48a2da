//! The operator's hands on a store with which nothing is sent or taken in.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_core::{BindingKey, Clock, Name, Store, StoreError};
use prometheus::Registry;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::Shared;
use crate::lane::Lane;
use crate::metrics::Metrics;
use crate::{Control, RouteSpec};

/// The bindings of a configuration over its store, without workers: dead letters are looked at,
/// redriven and deleted by the same code and within the same bounds as beside running routes, and
/// what is redriven waits for those.
#[derive(Debug)]
pub struct AtRest {
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
    store: Arc<dyn Store>,
}

impl AtRest {
    /// Takes the store in hand: nobody else may.
    pub fn over(
        routes: &[RouteSpec],
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, prometheus::Error> {
        // Who counts is a bridge that runs: these numbers end with this.
        let metrics = Metrics::register(&Registry::new())?;
        let puts = TaskTracker::new();
        let mut lanes: BTreeMap<Name, Vec<Arc<Lane>>> = BTreeMap::new();
        for route in routes {
            for spec in &route.bindings {
                let key = BindingKey::new(route.name.clone(), spec.name.clone());
                let of_it = metrics.binding(&key);
                let (spec, store, puts) = (spec.clone(), store.clone(), puts.clone());
                let lane = Lane::new(key, spec, route.mode, of_it, store, puts);
                let lanes = lanes.entry(route.name.clone()).or_default();
                lanes.push(Arc::new(lane));
            }
        }
        let (shared, serving) = Shared::new(routes, &lanes, store.clone(), clock, metrics, false);
        Ok(Self {
            shared,
            serving: tokio::spawn(serving),
            store,
        })
    }

    /// What can be done. A test message is never settled here.
    pub fn control(&self) -> Control {
        Control::of(&self.shared)
    }

    /// Waits for the end of what is under way, jobs stop where they are, and has the store make
    /// durable what it was told.
    pub async fn end(self) -> Result<(), StoreError> {
        self.shared.stop();
        self.shared.stopped().await;
        // It ends by itself, once it was told to stop.
        let _ = self.serving.await;
        self.store.flush().await
    }
}
