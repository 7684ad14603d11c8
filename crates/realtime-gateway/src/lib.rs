//! Sockets and sessions of every face; gate, shape, deliver.
//!
//! A gateway holds no database credentials (invariant 4): what a table is like and who may see a
//! row it asks of authz, what changed it hears on the bus.

pub mod args;
pub mod auth;
pub mod authz;
pub mod disconnect;
pub mod feed;
pub mod http;
pub mod ids;
pub mod limits;
pub mod management;
pub mod metrics;
pub mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use realtime_core::id::ProjectId;
use realtime_node::admin::Readiness;
use realtime_node::bus::Bus;
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use tokio::net::TcpListener;

use auth::Verifier;
use auth::projects::Verifiers;
use authz::Authz;
use disconnect::Disconnects;
use feed::registry::{Registry, Shared};
use ids::Interner;
use limits::Limits;
use management::access::Turns;
use management::operator::OperatorToken;
use metrics::GatewayMetrics;
use session::SessionId;

/// What a gateway is made of.
pub struct Config {
    /// The projects, with their token secrets.
    pub catalog: Catalog,
    /// The bus.
    pub bus: Bus,
    /// authz.
    pub authz: Authz,
    /// The limits.
    pub limits: Limits,
    /// Where its metrics are registered.
    pub metrics: Metrics,
    /// Its readiness.
    pub readiness: Readiness,
    /// Its name towards other services, for their logs.
    pub name: String,
    /// How long a stopping gateway may take: most of it is used to spread the closes.
    pub drain: Duration,
    /// Who shows it may call the management API for every project.
    pub operator_token: OperatorToken,
}

/// A gateway. Cloning shares it.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    limits: Arc<Limits>,
    metrics: GatewayMetrics,
    registry: Registry,
    interner: Interner,
    verifiers: Verifiers,
    disconnects: Disconnects,
    sessions: Tasks,
    /// Apart from the sessions: feeds go on while sessions drain.
    feeds: Tasks,
    next_session: AtomicU64,
    open_sessions: AtomicUsize,
    drain: Duration,
    authz: Authz,
    turns: Turns,
    operator_token: OperatorToken,
}

/// A session that is counted as open for as long as this lives.
pub(crate) struct OpenSession(Gateway);

impl Gateway {
    /// A gateway whose sessions are a group within `tasks`.
    pub fn new(config: Config, tasks: &Tasks) -> Self {
        let metrics = GatewayMetrics::new(&config.metrics);
        let limits = Arc::new(config.limits);
        let disconnects = Disconnects::new(config.bus.clone());
        let shared = Shared::new(
            config.bus,
            config.authz.clone(),
            Arc::clone(&limits),
            metrics.clone(),
            &config.name,
        );
        let feeds = Tasks::new();
        let verifiers = Verifiers::new(
            config.catalog.clone(),
            Arc::clone(&limits),
            metrics.clone(),
            feeds.child(),
        );
        Self(Arc::new(Inner {
            catalog: config.catalog,
            authz: config.authz,
            turns: Turns::new(&limits),
            operator_token: config.operator_token,
            limits,
            metrics,
            registry: Registry::new(shared, feeds.clone()),
            interner: Interner::default(),
            verifiers,
            disconnects,
            sessions: tasks.child(),
            feeds,
            next_session: AtomicU64::new(0),
            open_sessions: AtomicUsize::new(0),
            drain: config.drain,
        }))
    }

    /// The feeds as JSON, for operators.
    pub fn feeds_page(&self) -> String {
        self.0.registry.page()
    }

    /// How many sockets are open.
    pub fn open_sessions(&self) -> usize {
        self.0.open_sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.0.limits
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub(crate) fn metrics(&self) -> &GatewayMetrics {
        &self.0.metrics
    }

    pub(crate) fn authz(&self) -> &Authz {
        &self.0.authz
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    pub(crate) fn operator_token(&self) -> &OperatorToken {
        &self.0.operator_token
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn interner(&self) -> &Interner {
        &self.0.interner
    }

    pub(crate) fn session_tasks(&self) -> &Tasks {
        &self.0.sessions
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis() as u64
    }

    /// What operators end.
    pub(crate) fn disconnects(&self) -> &Disconnects {
        &self.0.disconnects
    }

    /// The verifiers of all projects.
    pub(crate) fn verifiers(&self) -> &Verifiers {
        &self.0.verifiers
    }

    /// The verifier of a project as it is now; see [`Verifiers::get`].
    pub(crate) fn verifier(&self, project: &ProjectId) -> Option<Arc<Verifier>> {
        self.0.verifiers.get(project)
    }

    /// The one project of a gateway that has one.
    pub(crate) fn only_project(&self) -> Option<ProjectId> {
        match self.0.catalog.projects().as_slice() {
            [one] => Some(one.id.clone()),
            _ => None,
        }
    }

    /// A new session's id, and its place, which is held from before the handshake so that many
    /// handshakes at once do not pass the limit; nothing while too many are open.
    pub(crate) fn open_session(&self) -> Option<(SessionId, OpenSession)> {
        let max = self.0.limits.sockets_max as usize;
        let one_more = |open| (open < max).then_some(open + 1);
        let place = self
            .0
            .open_sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        place.ok()?;
        self.0.metrics.sessions.inc();
        let id = SessionId(self.0.next_session.fetch_add(1, Ordering::Relaxed));
        Some((id, OpenSession(self.clone())))
    }

    /// How long a session waits, from the signal to stop, before it is closed: sessions are
    /// spread over most of the drain window whatever their number.
    pub(crate) fn drain_delay(&self, session: SessionId) -> Duration {
        drain_delay(self.0.drain, session, fastrand::f64())
    }

    /// How long a session that was closed while draining waits for its peer's answer, so that even
    /// the last to be closed ends within the window.
    pub(crate) fn drain_rest(&self) -> Duration {
        self.0.drain.mul_f64(0.1)
    }

    /// Closes the sessions, spread over the window, then ends the feeds.
    async fn stop(&self) {
        let drained = self.0.sessions.drain(self.0.drain).await;
        if !drained {
            tracing::warn!("sessions were left after the drain window");
        }
        self.0.feeds.drain(Duration::from_secs(1)).await;
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.0.open_sessions.fetch_sub(1, Ordering::Relaxed);
        self.0.0.metrics.sessions.dec();
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({} sessions)", self.open_sessions())
    }
}

/// Starts a gateway on a listener that is bound already, and returns at once. It serves until
/// `tasks` are told to stop; then it is unready, accepts no more, and closes its sockets with
/// 1012, spread over the drain window.
pub fn run(listener: TcpListener, config: Config, tasks: &Tasks) -> Gateway {
    let readiness = config.readiness.clone();
    let gateway = Gateway::new(config, tasks);
    readiness.set("gateway", true);
    let routes = http::router(gateway.clone());
    let limits = gateway.limits().edge();
    tasks.spawn("disconnects", gateway.disconnects().clone().hear(tasks.clone()));
    let edge = http::edge::serve(listener, routes, limits, gateway.metrics().clone(), tasks.clone());
    tasks.spawn("gateway edge", edge);
    let (stop, stopping) = (tasks.cancelled(), gateway.clone());
    tasks.spawn("gateway drain", async move {
        stop.await;
        readiness.set("gateway", false);
        stopping.stop().await;
    });
    gateway
}

/// The golden ratio's fraction puts consecutive sessions far apart and any number of them evenly
/// over the window; jitter keeps two gateways from the same pattern. A fifth of the window is
/// left for the closes themselves.
fn drain_delay(window: Duration, session: SessionId, jitter: f64) -> Duration {
    const FRACTION: f64 = 0.618_033_988_749_895;
    let place = (session.0 as f64 * FRACTION + jitter / 50.0).fract();
    window.mul_f64(place * 0.8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_are_spread_over_the_window_whatever_the_number() {
        let window = Duration::from_secs(30);
        for sessions in [5u64, 50, 500] {
            let mut delays: Vec<f64> = (1_000..1_000 + sessions)
                .map(|id| drain_delay(window, SessionId(id), (id % 7) as f64 / 7.0).as_secs_f64())
                .collect();
            delays.sort_by(f64::total_cmp);
            let widest = delays
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .fold(0.0, f64::max);
            assert!(widest < 4.0 * 24.0 / sessions as f64, "{sessions}: {widest}");
            assert!(delays.iter().all(|delay| *delay <= 24.0));
        }
    }
}
