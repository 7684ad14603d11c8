//! The feeds that this gateway follows: one per project with channels, shared by its sessions.
//!
//! Must never end a feed that a session still holds: a feed is held for as long as anybody has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::bus::Bus;
use realtime_node::tasks::Tasks;
use tokio::sync::mpsc;

use super::Command;
use super::actor::{COMMANDS_MAX, Feed};
use super::owners::Owners;
use super::tables::Tables;
use crate::authz::Authz;
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;

/// What every feed needs. Cloning shares it.
#[derive(Clone)]
pub struct Shared {
    /// The bus.
    pub bus: Bus,
    /// authz.
    pub authz: Authz,
    /// Facts about tables.
    pub tables: Tables,
    /// The gateway's limits.
    pub limits: Arc<Limits>,
    /// The gateway's metrics.
    pub metrics: GatewayMetrics,
    /// When each listener was last heard.
    pub owners: Owners,
    /// The gateway's name towards others.
    pub gateway: Arc<str>,
    feeds: Arc<Mutex<BTreeMap<ProjectId, Arc<FeedHandle>>>>,
}

/// The feeds. Cloning shares them.
#[derive(Clone)]
pub struct Registry {
    shared: Shared,
    tasks: Tasks,
}

/// A feed as a session holds it.
#[derive(Debug)]
pub struct FeedHandle {
    commands: mpsc::Sender<Command>,
    page: Arc<FeedPage>,
}

/// The feed has ended by itself, which only a failure of its own brings about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("feed: ended")]
pub struct FeedEnded;

/// What an operator sees of a feed.
#[derive(Debug, Default)]
pub struct FeedPage(Mutex<Shown>);

#[derive(Debug, Default, Clone, Copy, serde::Serialize)]
struct Shown {
    live: bool,
    deferred: bool,
    channels: usize,
    waiting_for_verdict: usize,
}

impl Shared {
    /// What feeds over this bus need.
    pub fn new(bus: Bus, authz: Authz, limits: Arc<Limits>, metrics: GatewayMetrics, gateway: &str) -> Self {
        Self {
            bus,
            tables: Tables::new(authz.clone()),
            authz,
            limits,
            metrics,
            owners: Owners::default(),
            gateway: gateway.into(),
            feeds: Arc::default(),
        }
    }

    /// Takes a feed off the list unless somebody holds it. `true`: it is off, and must end.
    pub(super) fn end_if_unused(&self, project: &ProjectId) -> bool {
        let mut feeds = self.feeds.lock();
        // Handles are given out under this lock: at a count of one nobody else has it, and
        // nobody can come to have it.
        let unused = feeds
            .get(project)
            .is_none_or(|handle| Arc::strong_count(handle) == 1);
        if unused && feeds.remove(project).is_some() {
            self.metrics.feeds.dec();
        }
        unused
    }
}

impl Registry {
    /// No feeds yet; their tasks are spawned in `tasks`.
    pub fn new(shared: Shared, tasks: Tasks) -> Self {
        shared.owners.hear(shared.bus.clone(), &tasks);
        Self { shared, tasks }
    }

    /// Facts about tables.
    pub fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    /// A project's feed, begun where there is none.
    pub fn feed(&self, project: &ProjectId) -> Arc<FeedHandle> {
        let mut feeds = self.shared.feeds.lock();
        if let Some(handle) = feeds.get(project).filter(|handle| !handle.commands.is_closed()) {
            return Arc::clone(handle);
        }
        let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
        let page = Arc::new(FeedPage::default());
        let handle = Arc::new(FeedHandle {
            commands: sender,
            page: Arc::clone(&page),
        });
        let feed = Feed::new(project.clone(), self.shared.clone(), receiver, page);
        self.tasks.spawn("feed", feed.run(self.tasks.clone()));
        if feeds.insert(project.clone(), Arc::clone(&handle)).is_none() {
            self.shared.metrics.feeds.inc();
        }
        handle
    }

    /// The feeds as JSON, for operators.
    pub fn page(&self) -> String {
        let feeds = self.shared.feeds.lock();
        let shown: BTreeMap<&str, Shown> = feeds
            .iter()
            .map(|(project, handle)| (project.as_str(), *handle.page.0.lock()))
            .collect();
        serde_json::to_string(&shown).unwrap_or_else(|_| "{}".into())
    }
}

impl FeedHandle {
    /// Tells the feed; waits while too many commands wait.
    ///
    /// # Errors
    /// The feed has ended.
    pub async fn send(&self, command: Command) -> Result<(), FeedEnded> {
        self.commands.send(command).await.map_err(|_| FeedEnded)
    }

    /// Completes when the feed has ended.
    pub async fn ended(&self) {
        self.commands.closed().await;
    }
}

impl FeedPage {
    pub(super) fn show(&self, live: bool, deferred: bool, channels: usize, waiting_for_verdict: usize) {
        *self.0.lock() = Shown {
            live,
            deferred,
            channels,
            waiting_for_verdict,
        };
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({} feeds)", self.shared.feeds.lock().len())
    }
}
