//! What authz counts.
//!
//! Must never carry a label whose values come from a database or a token (invariant 10).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use realtime_node::metrics::Metrics;

/// The verdicts' label: `deliver`, or the reason of a drop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// See the type.
    pub outcome: &'static str,
}

/// What authz counts. Cloning shares the counters.
#[derive(Clone, Default)]
pub struct AuthzMetrics {
    /// `Check` calls.
    pub checks: Counter,
    /// Verdicts by outcome.
    pub verdicts: Family<OutcomeLabel, Counter>,
    /// Times that a connection did not become free in time.
    pub saturated: Counter,
    /// Times that a project's database could not be asked.
    pub unavailable: Counter,
    /// Connections opened.
    pub connections_opened: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Connections closed because nothing is known of their session any more.
    pub connections_suspect: Counter,
    /// Reads of a table's facts.
    pub facts_loads: Counter,
    /// Seconds per `Check`.
    pub check_seconds: Seconds,
}

/// A histogram of seconds, from 0.1 ms to 3 s.
#[derive(Clone)]
pub struct Seconds(pub Histogram);

/// Counts one connection as open while it lives.
pub struct Counted(Gauge);

impl AuthzMetrics {
    /// Registers everything.
    pub fn new(metrics: &Metrics) -> Self {
        let own = Self::default();
        let add = |name, help, counter: &Counter| metrics.register(name, help, counter.clone());
        add("authz_checks", "Check calls", &own.checks);
        add(
            "authz_pool_saturated",
            "Times that no database connection became free in time",
            &own.saturated,
        );
        add(
            "authz_database_unavailable",
            "Times that a project's database could not be asked",
            &own.unavailable,
        );
        add(
            "authz_connections_opened",
            "Database connections opened",
            &own.connections_opened,
        );
        add(
            "authz_connections_suspect",
            "Database connections closed for what their session may hold",
            &own.connections_suspect,
        );
        add("authz_facts_loads", "Reads of a table's facts", &own.facts_loads);
        metrics.register(
            "authz_connections",
            "Database connections open now",
            own.connections.clone(),
        );
        metrics.register("authz_verdicts", "Verdicts by outcome", own.verdicts.clone());
        metrics.register(
            "authz_check_seconds",
            "Seconds per Check",
            own.check_seconds.0.clone(),
        );
        own
    }

    /// Counts a connection as open until the value is dropped.
    pub fn count_connection(&self) -> Counted {
        self.connections.inc();
        Counted(self.connections.clone())
    }

    /// Counts a verdict.
    pub fn verdict(&self, outcome: &'static str) {
        self.verdicts.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

impl Default for Seconds {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.0001, 2.0, 15)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
