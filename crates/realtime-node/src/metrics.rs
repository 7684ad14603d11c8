//! The process's metrics, in two registries: one without a project label, small enough to
//! scrape often, and one with.
//!
//! Must never take a label whose values a client can choose freely (invariant 10).

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// What every metric's name begins with.
pub const PREFIX: &str = "anvilbase_realtime";

/// The registries of a process. Cloning shares them.
#[derive(Clone)]
pub struct Metrics {
    process: Arc<Mutex<Registry>>,
    projects: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// Empty registries.
    pub fn new() -> Self {
        let registry = || Arc::new(Mutex::new(Registry::with_prefix(PREFIX)));
        Self {
            process: registry(),
            projects: registry(),
        }
    }

    /// Adds a metric to `/metrics`. The name is `<service>_<noun>_<unit>`; counters get `_total`.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.process.lock().register(name, help, metric.clone());
        metric
    }

    /// Adds a metric with a `project` label to `/metrics/projects`.
    pub fn register_project<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.projects.lock().register(name, help, metric.clone());
        metric
    }

    /// The text of `/metrics`.
    pub fn encode_process(&self) -> Result<String, std::fmt::Error> {
        encode_registry(&self.process)
    }

    /// The text of `/metrics/projects`.
    pub fn encode_projects(&self) -> Result<String, std::fmt::Error> {
        encode_registry(&self.projects)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

fn encode_registry(registry: &Mutex<Registry>) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode(&mut text, &registry.lock())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn registries_are_apart_and_prefixed() {
        let metrics = Metrics::new();
        let events: Counter = metrics.register("listener_events", "Events published", Counter::default());
        events.inc();
        let text = metrics.encode_process().unwrap();
        assert!(
            text.contains("anvilbase_realtime_listener_events_total 1"),
            "{text}"
        );
        assert!(!metrics.encode_projects().unwrap().contains("listener_events"));
    }
}
