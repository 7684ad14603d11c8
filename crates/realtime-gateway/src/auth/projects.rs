//! The verifiers of all projects: made when they are first needed, and anew when a project's
//! file or key set changes.
//!
//! Must never make another verifier for the same keys: sessions compare them to see a change.

use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::catalog::{Catalog, ProjectConfig, TokenConfig};
use realtime_node::tasks::Tasks;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use super::jwks::{Jwks, Refresh};
use super::keys::Key;
use super::{Verifier, equal, static_digest};
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;

/// The verifiers.
pub struct Verifiers {
    catalog: Catalog,
    limits: Arc<Limits>,
    metrics: GatewayMetrics,
    tasks: Tasks,
    entries: Mutex<FxHashMap<ProjectId, Entry>>,
    changed: watch::Sender<u64>,
}

struct Entry {
    /// What it was made from.
    config: Arc<ProjectConfig>,
    fetched: Arc<[Key]>,
    /// The last good one; `None` where there was none yet.
    verifier: Option<Arc<Verifier>>,
    jwks: Option<Jwks>,
}

impl Verifiers {
    /// The verifiers of a catalog's projects; key sets are fetched by tasks within `tasks`.
    pub fn new(catalog: Catalog, limits: Arc<Limits>, metrics: GatewayMetrics, tasks: Tasks) -> Self {
        Self {
            catalog,
            limits,
            metrics,
            tasks,
            entries: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Changes whenever a fetched key set did.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The verifier of a project as it is now; `None` where there is no such project or its
    /// tokens cannot be verified. The same one for as long as keys, roles and rules are the same.
    pub fn get(&self, project: &ProjectId) -> Option<Arc<Verifier>> {
        let mut entries = self.entries.lock();
        let config = self.catalog.get(project);
        let Some((config, tokens)) = config.as_ref().and_then(|c| Some((c, c.tokens.as_ref()?))) else {
            if let Some(jwks) = entries.remove(project).and_then(|entry| entry.jwks) {
                jwks.end();
            }
            return None;
        };
        let entry = match entries.entry(project.clone()) {
            std::collections::hash_map::Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                self.follow(entry, config, tokens);
                entry
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let jwks = self.jwks(project, tokens);
                let fetched: Arc<[Key]> = jwks.as_ref().map_or_else(|| Arc::from([]), Jwks::keys);
                vacant.insert(Entry {
                    verifier: self.make(config, tokens, &fetched),
                    config: Arc::clone(config),
                    fetched,
                    jwks,
                })
            }
        };
        entry.verifier.clone()
    }

    /// The project that has this static key; none where several have it.
    pub fn project_of_static(&self, key: &str) -> Option<ProjectId> {
        let digest = static_digest(key);
        let projects = self.catalog.projects();
        let mut found = projects.iter().filter(|project| {
            let mut keys = project.tokens.iter().flat_map(|tokens| &tokens.keys);
            keys.any(|key| equal(&key.sha256, &digest))
        });
        let first = found.next()?;
        found.next().is_none().then(|| first.id.clone())
    }

    /// Fetches a project's key set anew, for a token whose key is not in it.
    pub async fn refresh(&self, project: &ProjectId) -> Refresh {
        let jwks = self
            .entries
            .lock()
            .get(project)
            .and_then(|entry| entry.jwks.clone());
        match jwks {
            Some(jwks) => jwks.refresh().await,
            None => Refresh::NotNow,
        }
    }

    /// Brings an entry up to date.
    fn follow(&self, entry: &mut Entry, config: &Arc<ProjectConfig>, tokens: &TokenConfig) {
        let mut stale = false;
        if !Arc::ptr_eq(&entry.config, config) {
            let old = entry.config.tokens.as_ref();
            stale = old != Some(tokens) || entry.config.roles != config.roles;
            let source = |tokens: &TokenConfig| (tokens.jwks_url.clone(), tokens.jwks_ca_file.clone());
            if old.map(source) != Some(source(tokens)) {
                if let Some(jwks) = entry.jwks.take() {
                    jwks.end();
                }
                entry.jwks = self.jwks(&config.id, tokens);
            }
            entry.config = Arc::clone(config);
        }
        let fetched = entry.jwks.as_ref().map_or_else(|| Arc::from([]), Jwks::keys);
        if !Arc::ptr_eq(&fetched, &entry.fetched) && *fetched != *entry.fetched {
            entry.fetched = fetched;
            stale = true;
        }
        if stale && let Some(verifier) = self.make(config, tokens, &entry.fetched) {
            entry.verifier = Some(verifier);
        }
    }

    fn make(&self, config: &ProjectConfig, tokens: &TokenConfig, fetched: &[Key]) -> Option<Arc<Verifier>> {
        let (bytes_max, keys_max) = (self.limits.token_bytes_max, self.limits.jwks_keys_max);
        match Verifier::new(tokens, &config.roles, fetched, bytes_max, keys_max) {
            Ok(verifier) => Some(Arc::new(verifier.of(&config.id))),
            Err(error) => {
                let project = &config.id;
                tracing::error!(%project, %error, "the project's keys cannot be used; the last good ones stay, if there were any");
                None
            }
        }
    }

    fn jwks(&self, project: &ProjectId, tokens: &TokenConfig) -> Option<Jwks> {
        let (limits, metrics) = (Arc::clone(&self.limits), self.metrics.clone());
        Jwks::new(
            project,
            tokens,
            limits,
            metrics,
            &self.tasks,
            self.changed.clone(),
        )
    }
}
