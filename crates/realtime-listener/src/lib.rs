//! Holds one database session per project and turns its notifications into events on the bus.
//!
//! Must never publish a project's event except while the session that it came from holds that project's lock
//! (invariant 5), and must never name a row's values, a password or a channel in a log line.

mod attach;
mod config;
mod feed;
mod metrics;
pub mod provision;
mod publish;
mod roster;
pub mod session;
mod slots;
pub mod source;

use std::sync::Arc;

use realtime_node::bus::Bus;
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;

pub use config::{InvalidLimits, ListenerArgs, ListenerConfig};
pub use slots::HeldFeed;

/// A listener at work. It ends when the tasks that it was started in are drained: each feed then says `Down`, gives
/// its lock back, and closes its session.
#[derive(Clone)]
pub struct Listener {
    slots: slots::Slots,
}

impl Listener {
    /// Starts a listener. When it returns, it answers attach requests.
    ///
    /// # Errors
    /// The limits contradict each other, or the bus refuses the subscriptions.
    pub async fn start(
        config: ListenerConfig,
        bus: Bus,
        catalog: Catalog,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        config.validate()?;
        let config = Arc::new(config);
        let metrics = metrics::ListenerMetrics::register(metrics);
        let slots = slots::Slots::new(Arc::clone(&config), bus.clone(), metrics.clone(), tasks.clone());
        let roster = roster::Roster::start(&bus, &slots, &config, tasks).await?;
        let attach = attach::Attach {
            bus,
            catalog,
            slots: slots.clone(),
            roster,
            metrics,
            config,
            tasks: tasks.clone(),
        };
        attach.start().await?;
        Ok(Self { slots })
    }

    /// What it holds, by project.
    pub fn held(&self) -> Vec<HeldFeed> {
        self.slots.held()
    }

    /// What it holds, as JSON, for `/debug/feeds`.
    pub fn debug_page(&self) -> String {
        serde_json::to_string(&self.held()).unwrap_or_default()
    }
}
