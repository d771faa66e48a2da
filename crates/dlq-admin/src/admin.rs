//! The admin listener, composed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use bridge_core::{BindingKey, Clock, Name};
use bridge_runtime::{Control, RouteSpec, Status};
use prometheus::proto::MetricFamily;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::api;
use crate::auth::{Auth, TokenOrigin};
use crate::files::{FileError, Look};
use crate::guard;
use crate::listener::{Certificates, Limits, TlsFiles, bind, serve};
use crate::page;
use crate::problem::Problem;
use crate::rates::Rates;

/// How often counters and renewed files are looked at.
const PACE: Duration = Duration::from_secs(2);
/// How long a stop waits for the requests under way.
const GRACE: Duration = Duration::from_secs(10);
/// How long it waits for what goes on without a request; a bridge that has stopped ends it.
const LAST_ACTS: Duration = Duration::from_secs(1);
/// What connections may cost. A long export or a redrive that is waited for is one request.
const LIMITS: Limits = Limits {
    connections: 128,
    head: Duration::from_secs(10),
    stall: Duration::from_secs(30),
    lifetime: Duration::from_secs(10 * 60),
    last_request: Duration::from_secs(60 * 60),
};

/// How the admin API is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What opens it.
    pub token: TokenOrigin,
    /// How it is encrypted, if it is.
    pub tls: Option<TlsFiles>,
}

/// Why a listener does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {address} ({field}): is the port in use?")]
    Listen {
        /// Where the configuration names it.
        field: &'static str,
        /// Which address.
        address: SocketAddr,
        /// The system's own words.
        #[source]
        error: std::io::Error,
    },
    /// A file of the token or of the certificate is of no use.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The bridge behind the listeners.
pub trait Observed: Send + Sync + 'static {
    /// How it goes, or `None` once it is stopping. What is not expected of a standby is left out.
    fn status(&self) -> Option<Status>;
    /// Every metric, up to date.
    fn metrics(&self) -> Vec<MetricFamily>;
    /// What it is.
    fn described(&self) -> Arc<Described>;
    /// How it stands with the lease of its exclusive sessions, where it has any.
    fn lease(&self) -> Option<LeaseFacts>;
}

/// How an instance stands with the lease of its exclusive sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Whether it holds the lease: it is active, or else on standby.
    pub active: bool,
    /// Who holds the lease, as far as is known.
    pub holder: Option<LeaseHolder>,
}

impl LeaseFacts {
    /// The word for what the instance is.
    pub(crate) const fn role(&self) -> &'static str {
        if self.active { "active" } else { "standby" }
    }
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The name of the instance.
    pub owner: String,
    /// The number of its tenure.
    pub token: u64,
}

/// What a bridge is, apart from how it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub bridge: Name,
    /// The version of the program.
    pub version: &'static str,
    /// Its routes, in the order of the configuration.
    pub routes: Vec<RouteSpec>,
    /// Its sessions.
    pub sessions: Vec<SessionFacts>,
}

impl Described {
    /// Whether there is such a binding.
    pub(crate) fn has(&self, binding: &BindingKey) -> bool {
        let route = self.routes.iter().find(|route| route.name == binding.route);
        route.is_some_and(|route| route.bindings.iter().any(|b| b.name == binding.binding))
    }
}

/// What a session is, without anything secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// Its name.
    pub name: Name,
    /// The URLs of its brokers.
    pub brokers: Vec<String>,
    /// The version of MQTT.
    pub protocol: String,
    /// The client id of the connection that reads, where one does.
    pub reads_as: Option<String>,
    /// The client id of the connection that writes, where one does.
    pub writes_as: Option<String>,
    /// What the broker keeps of it: `ephemeral` or `persistent`.
    pub mode: String,
}

/// What every call sees.
pub(crate) struct App {
    pub(crate) observed: Arc<dyn Observed>,
    pub(crate) control: Control,
    pub(crate) auth: Arc<Auth>,
    pub(crate) clock: Arc<dyn Clock>,
    rates: Mutex<Rates>,
    /// What was begun and is not over, whether who asked is still there or not.
    acts: TaskTracker,
}

impl App {
    pub(crate) fn new(
        observed: Arc<dyn Observed>,
        control: Control,
        auth: Arc<Auth>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            observed,
            control,
            auth,
            clock,
            rates: Mutex::new(Rates::default()),
            acts: TaskTracker::new(),
        })
    }

    /// Whether the running configuration has that binding.
    pub(crate) fn is_configured(&self, binding: &BindingKey) -> bool {
        self.observed.described().has(binding)
    }

    pub(crate) fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what was begun.
    pub(crate) async fn end(&self) {
        self.acts.close();
        self.acts.wait().await;
    }

    /// Does it in a task of its own, so that it comes to its end, and its end into the audit log,
    /// also when who asked has hung up.
    pub(crate) async fn act<T: Send + 'static>(
        &self,
        act: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.acts.spawn(act).await.unwrap_or_else(|failure| {
            error!(event = "call_failed", error = %failure, "a defect; please report it");
            Err(Problem::defect())
        })
    }
}

/// A bound listener, so that what is wrong with its address, token or certificate stops the start
/// before anything else has begun.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    auth: Arc<Auth>,
    certificates: Option<Arc<Certificates>>,
    clock: Arc<dyn Clock>,
}

impl Admin {
    /// Reads what `options` name, and binds the address.
    pub async fn bind(options: &AdminOptions, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let auth = Auth::open(&options.token, clock.clone())?;
        let certificates = options.tls.as_ref().map(Certificates::open_pair);
        let certificates = certificates.transpose()?.map(Arc::new);
        Ok(Self {
            listener: bind(options.listen, "admin.listen").await?,
            auth: Arc::new(auth),
            certificates,
            clock,
        })
    }

    /// The address that is really listened on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is cancelled, and then until what is under way has ended.
    pub async fn serve(
        self,
        observed: Arc<dyn Observed>,
        control: Control,
        stop: CancellationToken,
    ) {
        let app = App::new(observed, control, self.auth, self.clock);
        let routes: Router = guard::around(api::routes().merge(page::routes()), &app);
        let watching = watch(app.clone(), self.certificates.clone());
        let serving = serve(
            self.listener,
            self.certificates,
            routes,
            LIMITS,
            stop,
            GRACE,
        );
        tokio::select! {
            () = serving => {}
            () = watching => {}
        }
        if timeout(LAST_ACTS, app.end()).await.is_err() {
            let acts = app.acts.len();
            warn!(
                event = "requests_cut_off",
                acts, "some calls did not end in time"
            );
        }
    }
}

/// Looks at the counters and at renewed files, for ever.
async fn watch(app: Arc<App>, certificates: Option<Arc<Certificates>>) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (app, certificates) = (app.clone(), certificates.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let now = app.clock.monotonic();
            let metrics = app.observed.metrics();
            app.rates().look(now, &metrics);
            app.auth.look();
            if let Some(certificates) = certificates {
                look_at(&certificates);
            }
        });
        if let Err(defect) = looking.await {
            error!(event = "admin_watch_failed", error = %defect, "a defect; please report it");
        }
    }
}

fn look_at(certificates: &Certificates) {
    match certificates.look() {
        Look::Same => {}
        Look::Renewed => info!(
            event = "admin_certificate_renewed",
            "new connections are shown the new one"
        ),
        Look::Useless(why) => error!(
            event = "admin_certificate_unusable",
            error = %why,
            "the certificate in use stays; mend the files of admin.tls"
        ),
    }
}
