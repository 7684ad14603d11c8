//! What the listener counts.
//!
//! Must never take a table's name as a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use realtime_core::code::GapReason;
use realtime_core::id::ProjectId;
use realtime_node::metrics::Metrics;

/// Why something was counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    reason: &'static str,
}

/// Which project.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Project {
    project: String,
}

/// The listener's metrics. Cloning shares them.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    /// Change events published.
    pub events: Counter,
    /// Envelopes that were none.
    pub malformed: Counter,
    /// Sessions opened.
    pub sessions: Counter,
    /// Attach requests answered.
    pub attached: Counter,
    /// Projects held.
    pub held: Gauge,
    /// Projects that may be held.
    pub capacity: Gauge,
    gaps: Family<Reason, Counter>,
    failures: Family<Reason, Counter>,
    project_events: Family<Project, Counter>,
    queue_usage: Family<Project, Gauge<f64, std::sync::atomic::AtomicU64>>,
}

impl ListenerMetrics {
    /// Registers them.
    pub fn register(metrics: &Metrics) -> Self {
        Self {
            events: metrics.register("listener_events", "Change events published", Counter::default()),
            malformed: metrics.register(
                "listener_malformed",
                "Notifications that were no envelope",
                Counter::default(),
            ),
            sessions: metrics.register(
                "listener_sessions",
                "Sessions that took a feed",
                Counter::default(),
            ),
            attached: metrics.register(
                "listener_attach_requests",
                "Attach requests answered",
                Counter::default(),
            ),
            held: metrics.register("listener_projects", "Projects held", Gauge::default()),
            capacity: metrics.register(
                "listener_projects_max",
                "Projects that may be held",
                Gauge::default(),
            ),
            gaps: metrics.register("listener_gaps", "Gaps announced, by reason", Family::default()),
            failures: metrics.register(
                "listener_session_failures",
                "Sessions that failed, by reason",
                Family::default(),
            ),
            project_events: metrics.register_project(
                "listener_project_events",
                "Change events published, by project",
                Family::default(),
            ),
            queue_usage: metrics.register_project(
                "listener_notification_queue_ratio",
                "How full the server's notification queue is, 0 to 1; at 1 every commit that notifies fails",
                Family::default(),
            ),
        }
    }

    /// An event was published.
    pub fn event(&self, project: &ProjectId) {
        self.events.inc();
        self.project_events.get_or_create(&label(project)).inc();
    }

    /// A gap was announced.
    pub fn gap(&self, reason: GapReason) {
        self.gaps
            .get_or_create(&Reason {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// A session could not be opened, or ended by itself.
    pub fn failure(&self, reason: &'static str) {
        self.failures.get_or_create(&Reason { reason }).inc();
    }

    /// The server's notification queue was looked at.
    pub fn queue_usage(&self, project: &ProjectId, ratio: f64) {
        self.queue_usage.get_or_create(&label(project)).set(ratio);
    }

    /// A project is no longer held here.
    pub fn forget(&self, project: &ProjectId) {
        self.queue_usage.remove(&label(project));
        self.project_events.remove(&label(project));
    }
}

fn label(project: &ProjectId) -> Project {
    Project {
        project: project.to_string(),
    }
}
