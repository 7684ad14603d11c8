//! What authz keeps per project: its connections and its facts.
//!
//! Must never outlive the project's file: a project that was changed there is begun anew.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_core::verdict::DropReason;
use realtime_node::catalog::{Catalog, ProjectConfig};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::metrics::AuthzMetrics;
use crate::pools::{Pool, PoolError, Pools};
use crate::tables::{Facts, FactsLimits};

/// How often the log says the same of one project's database.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// One project as it is configured now.
pub struct Project {
    /// Its configuration.
    pub config: Arc<ProjectConfig>,
    /// Its connections.
    pub pool: Arc<Pool>,
    /// What is known of its tables.
    pub facts: Facts,
    complaints: Complaints,
}

/// What was said of a project's database lately, by its cause: while that is down, every check would say it.
#[derive(Default)]
struct Complaints(Mutex<FxHashMap<&'static str, Said>>);

struct Said {
    at: Instant,
    since: u64,
}

/// The projects that were asked about.
pub struct Projects {
    catalog: Catalog,
    pools: Arc<Pools>,
    limits: FactsLimits,
    known: Mutex<FxHashMap<ProjectId, Arc<Project>>>,
}

/// Why a project cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoProject {
    /// No file of that name.
    #[error("project: unknown")]
    Unknown,
    /// Its file has no `prober_dsn`.
    #[error("project: has no [database] prober_dsn")]
    NoProber,
}

impl Projects {
    /// The projects of a catalog.
    pub fn new(catalog: Catalog, pools: Arc<Pools>, limits: FactsLimits) -> Self {
        Self {
            catalog,
            pools,
            limits,
            known: Mutex::new(FxHashMap::default()),
        }
    }

    /// A project by its id.
    ///
    /// # Errors
    /// See [`NoProject`].
    pub fn get(&self, id: &ProjectId) -> Result<Arc<Project>, NoProject> {
        let mut known = self.known.lock();
        let Some(config) = self.catalog.get(id) else {
            known.remove(id);
            return Err(NoProject::Unknown);
        };
        if let Some(project) = known.get(id)
            && Arc::ptr_eq(&project.config, &config)
        {
            return Ok(Arc::clone(project));
        }
        let dsn = config
            .database
            .as_ref()
            .and_then(|database| database.prober_dsn.clone());
        let dsn = dsn.ok_or(NoProject::NoProber)?;
        let pool = self.pools.pool(id.clone(), dsn);
        let project = Arc::new(Project {
            config,
            pool,
            facts: Facts::new(self.limits),
            complaints: Complaints::default(),
        });
        known.insert(id.clone(), Arc::clone(&project));
        Ok(project)
    }
}

impl Project {
    /// The reason to give where no connection, or no answer from one, came. Counted each time; logged here, once for each
    /// cause in a while.
    pub fn unavailable(&self, error: &PoolError, metrics: &AuthzMetrics) -> DropReason {
        let cause = match error {
            PoolError::Saturated => return DropReason::PoolSaturated,
            PoolError::Role => return DropReason::NoPrivilege,
            PoolError::Connect(_) => "connect",
            PoolError::Prober(_) => "login",
            PoolError::Database(_) => "database",
        };
        metrics.unavailable.inc();
        if let Some(unsaid) = self.complaints.due(cause) {
            let project = &self.config.id;
            tracing::warn!(%project, %error, unsaid, "the project's database cannot be asked");
        }
        DropReason::DatabaseUnavailable
    }
}

impl Complaints {
    /// Whether it is time to say it, and then how often it was not said since the last time.
    fn due(&self, cause: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut said = self.0.lock();
        match said.get_mut(cause) {
            Some(said) if now.duration_since(said.at) < SAID_EVERY => {
                said.since += 1;
                None
            }
            Some(said) => {
                said.at = now;
                Some(std::mem::take(&mut said.since))
            }
            None => {
                said.insert(cause, Said { at: now, since: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cause_is_said_once_in_ten_seconds_and_each_on_its_own() {
        let complaints = Complaints::default();
        assert_eq!(complaints.due("connect"), Some(0));
        for _ in 0..1_000 {
            assert_eq!(complaints.due("connect"), None);
        }
        assert_eq!(complaints.due("login"), Some(0));
        tokio::time::advance(SAID_EVERY).await;
        assert_eq!(complaints.due("connect"), Some(1_000));
        assert_eq!(complaints.due("connect"), None);
        assert_eq!(complaints.due("login"), Some(0));
    }
}
