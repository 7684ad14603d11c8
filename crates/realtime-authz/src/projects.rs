//! What authz keeps per project: its connections and its facts.
//!
//! Must never outlive the project's file: a project that was changed there is begun anew.

use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::catalog::{Catalog, ProjectConfig};
use rustc_hash::FxHashMap;

use crate::pools::{Pool, Pools};
use crate::tables::{Facts, FactsLimits};

/// One project as it is configured now.
pub struct Project {
    /// Its configuration.
    pub config: Arc<ProjectConfig>,
    /// Its connections.
    pub pool: Arc<Pool>,
    /// What is known of its tables.
    pub facts: Facts,
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
        });
        known.insert(id.clone(), Arc::clone(&project));
        Ok(project)
    }
}
