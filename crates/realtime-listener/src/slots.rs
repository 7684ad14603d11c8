//! The projects that this replica holds, at most so many.
//!
//! Must never hold two feeds of one project, nor more feeds than the limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::bus::Bus;
use realtime_node::catalog::{Listen, ProjectConfig};
use realtime_node::postgres::Dsn;
use realtime_node::tasks::Tasks;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

use crate::config::ListenerConfig;
use crate::feed::{Feed, FeedState, FirstAttempt};
use crate::metrics::ListenerMetrics;
use crate::publish::Publisher;

/// The slots. Cloning shares them.
#[derive(Clone)]
pub struct Slots(Arc<Inner>);

struct Inner {
    config: Arc<ListenerConfig>,
    bus: Bus,
    metrics: ListenerMetrics,
    connections: Arc<Semaphore>,
    held: Mutex<BTreeMap<ProjectId, Slot>>,
    /// How many are held, for those who wait for room.
    count: watch::Sender<usize>,
    tasks: Tasks,
}

struct Slot {
    state: Arc<Mutex<FeedState>>,
    dsn: Dsn,
    tasks: Tasks,
}

/// What taking a project on came to.
#[derive(Debug)]
pub enum Taking {
    /// It is held here already.
    Held,
    /// A slot is reserved; the first attempt's outcome follows.
    Reserved(oneshot::Receiver<FirstAttempt>),
    /// All slots are taken.
    Full,
    /// The project has no login for the listener.
    NoLogin,
}

/// One held project, as `/debug/feeds` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HeldFeed {
    /// The project.
    pub project: String,
    /// Of its session; 0 while it has none.
    pub epoch: u64,
    /// The last sequence number at the last beat.
    pub seq: u64,
    /// Held whether or not anybody is interested.
    pub pinned: bool,
    /// Seconds since a gateway last said that it has sessions of the project.
    pub interest_seconds: u64,
    /// Sessions lost since the project was taken on.
    pub reconnects: u64,
}

impl Slots {
    /// Empty slots; feeds run in `tasks`.
    pub fn new(config: Arc<ListenerConfig>, bus: Bus, metrics: ListenerMetrics, tasks: Tasks) -> Self {
        metrics
            .capacity
            .set(i64::try_from(config.max_listeners).unwrap_or(i64::MAX));
        Self(Arc::new(Inner {
            connections: Arc::new(Semaphore::new(config.max_db_connections)),
            config,
            bus,
            metrics,
            held: Mutex::new(BTreeMap::new()),
            count: watch::Sender::new(0),
            tasks,
        }))
    }

    /// Takes a project on, unless it is held already. Being asked for counts as interest.
    pub fn take(&self, project: &ProjectConfig) -> Taking {
        let Some(dsn) = project
            .database
            .as_ref()
            .and_then(|database| database.listener_dsn.clone())
        else {
            return Taking::NoLogin;
        };
        let mut held = self.0.held.lock();
        if let Some(slot) = held.get(&project.id) {
            slot.state.lock().interest = Instant::now();
            return Taking::Held;
        }
        if held.len() >= self.0.config.max_listeners || self.0.tasks.is_cancelled() {
            return Taking::Full;
        }
        let state = Arc::new(Mutex::new(FeedState {
            interest: Instant::now(),
            pinned: project.listen == Listen::Always,
            epoch: 0,
            seq: 0,
            reconnects: 0,
        }));
        let tasks = self.0.tasks.child();
        held.insert(
            project.id.clone(),
            Slot {
                state: Arc::clone(&state),
                dsn: dsn.clone(),
                tasks: tasks.clone(),
            },
        );
        self.counted(held.len());
        drop(held);
        Taking::Reserved(self.start(&project.id, dsn, state, tasks))
    }

    fn start(
        &self,
        project: &ProjectId,
        dsn: Dsn,
        state: Arc<Mutex<FeedState>>,
        tasks: Tasks,
    ) -> oneshot::Receiver<FirstAttempt> {
        let inner = &self.0;
        let publisher = Publisher::new(
            inner.bus.clone(),
            project.clone(),
            inner.config.replica_id.clone(),
            inner.metrics.clone(),
        );
        let feed = Feed {
            project: project.clone(),
            dsn,
            config: Arc::clone(&inner.config),
            publisher,
            metrics: inner.metrics.clone(),
            state,
            connections: Arc::clone(&inner.connections),
            tasks: tasks.clone(),
        };
        let (outcome, first) = oneshot::channel();
        // Frees the slot however the feed ends, a panic included.
        let freed = Freed {
            slots: self.clone(),
            project: project.clone(),
        };
        tasks.spawn("feed", async move {
            let _freed = freed;
            feed.run(outcome).await;
        });
        first
    }

    /// A gateway has sessions of the project.
    pub fn touch(&self, project: &ProjectId) {
        if let Some(slot) = self.0.held.lock().get(project) {
            slot.state.lock().interest = Instant::now();
        }
    }

    /// Follows the catalog: lets go of what is gone or has another login, and notes what is pinned.
    pub fn reconcile(&self, projects: &[Arc<ProjectConfig>]) {
        for (id, slot) in self.0.held.lock().iter() {
            let listed = projects.iter().find(|project| project.id == *id);
            let login = listed.and_then(|project| project.database.as_ref()?.listener_dsn.as_ref());
            if login.is_none_or(|dsn| dsn.config() != slot.dsn.config()) {
                slot.tasks.cancel();
            } else if let Some(project) = listed {
                slot.state.lock().pinned = project.listen == Listen::Always;
            }
        }
    }

    /// Whether another project could be taken on.
    pub fn has_room(&self) -> bool {
        self.count() < self.0.config.max_listeners
    }

    /// How many projects are held.
    pub fn count(&self) -> usize {
        *self.0.count.borrow()
    }

    /// Changes whenever the number of held projects does.
    pub fn counts(&self) -> watch::Receiver<usize> {
        self.0.count.subscribe()
    }

    /// What is held.
    pub fn held(&self) -> Vec<HeldFeed> {
        let held = self.0.held.lock();
        held.iter()
            .map(|(project, slot)| {
                let state = slot.state.lock();
                HeldFeed {
                    project: project.to_string(),
                    epoch: state.epoch,
                    seq: state.seq,
                    pinned: state.pinned,
                    interest_seconds: state.interest.elapsed().as_secs(),
                    reconnects: state.reconnects,
                }
            })
            .collect()
    }

    fn free(&self, project: &ProjectId) {
        let mut held = self.0.held.lock();
        held.remove(project);
        self.counted(held.len());
        self.0.metrics.forget(project);
    }

    fn counted(&self, count: usize) {
        self.0.metrics.held.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.0.count.send_replace(count);
    }
}

struct Freed {
    slots: Slots,
    project: ProjectId,
}

impl Drop for Freed {
    fn drop(&mut self) {
        self.slots.free(&self.project);
    }
}
