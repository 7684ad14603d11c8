//! The projects that a process serves, from one file each, re-read when they change.
//!
//! Each service's files hold only what it may know: listeners and authz the connection strings,
//! gateways the token secrets (invariant 4).

mod folder;
mod tokens;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::metrics::gauge::Gauge;
use realtime_core::claims::Role;
use realtime_core::id::ProjectId;
use serde::Deserialize;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::postgres::{Dsn, PgError};
use crate::secret::Secret;
use crate::tasks::Tasks;
use folder::Folder;
pub use tokens::{ALGORITHMS, LEEWAY_SECONDS_MAX, SECRET_BYTES_MIN, StaticKey, TokenConfig};

/// When a project's feed is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// While a gateway has sessions of it.
    #[default]
    Demand,
    /// Always: for projects that internal services read from the bus.
    Always,
}

/// One project.
#[derive(Debug, Clone)]
pub struct ProjectConfig {
    /// Its id: the file's name without `.toml`.
    pub id: ProjectId,
    /// When its feed is held.
    pub listen: Listen,
    /// The roles that its tokens may name.
    pub roles: Vec<Role>,
    /// How its database is reached. Not in a gateway's files.
    pub database: Option<DatabaseConfig>,
    /// How its tokens are verified. Only in a gateway's files.
    pub tokens: Option<TokenConfig>,
}

/// Logins at a project's database.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    /// The listener's login.
    pub listener_dsn: Option<Dsn>,
    /// The login that asks what tokens' roles may see.
    pub prober_dsn: Option<Dsn>,
    /// The login for work as service_role.
    pub service_dsn: Option<Dsn>,
}

/// Why a project's file cannot be used. Shows the file's name and what is wrong, no value.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The folder or a file cannot be read.
    #[error("projects folder: {path}: {error}")]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file's name is not a project id.
    #[error("projects folder: {0}: the name before .toml is not a project id")]
    Name(PathBuf),
    /// A file's content is not what is expected.
    #[error("projects folder: {path}: {message}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and on which line.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    listen: Listen,
    #[serde(default = "default_roles")]
    roles: Vec<String>,
    database: Option<DatabaseConfig>,
    tokens: Option<tokens::Section>,
}

fn default_roles() -> Vec<String> {
    ["anon", "authenticated", "service_role"]
        .map(str::to_owned)
        .to_vec()
}

/// The projects. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    projects: RwLock<BTreeMap<ProjectId, Arc<ProjectConfig>>>,
    changes: watch::Sender<u64>,
    /// Files that cannot be used just now.
    unusable: Gauge,
}

impl Catalog {
    /// A catalog of given projects.
    pub fn from_projects(projects: Vec<ProjectConfig>) -> Self {
        Self(Arc::new(Inner {
            projects: RwLock::new(by_id(projects.into_iter().map(Arc::new))),
            changes: watch::Sender::new(0),
            unusable: Gauge::default(),
        }))
    }

    /// Reads a folder once.
    ///
    /// # Errors
    /// The folder or one of its files cannot be used.
    pub fn load(folder: &Path) -> Result<Self, CatalogError> {
        Ok(Self::from_projects(Folder::read(folder)?.projects_owned()))
    }

    /// Reads a folder, and each of its files again when it changed, looked at every `interval`. A file that
    /// cannot be used later on is logged once and tried again each time; its last good state stays, and the other
    /// files' changes count meanwhile. A file that is gone takes its project with it.
    ///
    /// # Errors
    /// The folder or one of its files cannot be used at the start.
    pub fn watch(folder: PathBuf, interval: Duration, tasks: &Tasks) -> Result<Self, CatalogError> {
        let mut known = Folder::read(&folder)?;
        let catalog = Self::from_projects(known.projects_owned());
        let watched = catalog.clone();
        let group = tasks.clone();
        tasks.spawn("project catalog", async move {
            loop {
                tokio::select! {
                    () = group.cancelled() => return,
                    () = tokio::time::sleep(interval) => {}
                }
                if known.look_again(&folder) {
                    let projects = by_id(known.projects());
                    tracing::info!(projects = projects.len(), "projects re-read");
                    watched.put(projects);
                }
                watched.0.unusable.set(known.unusable() as i64);
            }
        });
        Ok(catalog)
    }

    /// Tells in a process's metrics how many files cannot be used.
    pub fn register(&self, metrics: &Metrics) {
        let help = "Files of the projects folder that cannot be used: their projects' last good state stays";
        metrics.register("node_project_files_unusable", help, self.0.unusable.clone());
    }

    /// A project.
    pub fn get(&self, id: &ProjectId) -> Option<Arc<ProjectConfig>> {
        self.0.projects.read().get(id).cloned()
    }

    /// All projects, by id.
    pub fn projects(&self) -> Vec<Arc<ProjectConfig>> {
        self.0.projects.read().values().cloned().collect()
    }

    /// Changes whenever the projects did.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Puts other projects in place.
    pub fn replace(&self, projects: Vec<ProjectConfig>) {
        self.put(by_id(projects.into_iter().map(Arc::new)));
    }

    fn put(&self, projects: BTreeMap<ProjectId, Arc<ProjectConfig>>) {
        *self.0.projects.write() = projects;
        self.0.changes.send_modify(|changes| *changes += 1);
    }
}

fn by_id(projects: impl IntoIterator<Item = Arc<ProjectConfig>>) -> BTreeMap<ProjectId, Arc<ProjectConfig>> {
    let projects = projects.into_iter();
    projects.map(|project| (project.id.clone(), project)).collect()
}

impl ProjectConfig {
    /// Whether tokens may name this role.
    pub fn allows_role(&self, role: &Role) -> bool {
        self.roles.contains(role)
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    let entries = std::fs::read_dir(folder).map_err(|error| io(folder, error))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| io(folder, error))?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads one project's file. `beside` is told of each file that it names, before that is read.
fn read_file(
    folder: &Path,
    path: &Path,
    mut beside: impl FnMut(&Path),
) -> Result<ProjectConfig, CatalogError> {
    let name = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let id = ProjectId::parse(name).map_err(|_| CatalogError::Name(path.to_owned()))?;
    let text = std::fs::read_to_string(path).map_err(|error| io(path, error))?;
    let file: File = toml::from_str(&text).map_err(|error| CatalogError::Content {
        path: path.to_owned(),
        message: format!("{}{}", rule_of(error.message()), line_of(&text, error.span())),
    })?;
    let roles: Vec<Role> = file.roles.into_iter().map(Role::new).collect();
    let tokens = match file.tokens {
        Some(section) => {
            let jwks = match section.jwks_path(folder) {
                Some(named) => {
                    beside(&named);
                    let read = std::fs::read_to_string(&named).map_err(|error| io(&named, error));
                    Some(Secret::from(read?))
                }
                None => None,
            };
            let checked = section.check(&roles, jwks, folder);
            Some(checked.map_err(|message| CatalogError::Content {
                path: path.to_owned(),
                message,
            })?)
        }
        None => None,
    };
    Ok(ProjectConfig {
        id,
        listen: file.listen,
        roles,
        database: file.database,
        tokens,
    })
}

/// What was expected, without what was found: that may be a secret, and the parser repeats it.
fn rule_of(message: &str) -> String {
    let ours = message.starts_with("missing field") || message == PgError::Dsn.to_string();
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if ours => message.to_owned(),
        None => "not valid TOML".to_owned(),
    }
}

fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return String::new();
    };
    format!(" (line {})", before.matches('\n').count() + 1)
}

fn io(path: &Path, error: std::io::Error) -> CatalogError {
    CatalogError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests;
