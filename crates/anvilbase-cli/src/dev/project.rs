//! The one project of `anvilbase dev`: its logins, its token secret, its keys.
//!
//! Kept in a catalog file below the data folder, in the form that the services read: what runs
//! here in one process can be carried over to three.

use std::path::Path;

use anyhow::{Context as _, bail};
use realtime_core::id::ProjectId;
use realtime_node::catalog::{Catalog, ProjectConfig};
use realtime_node::postgres::{Dsn, PgOptions, connect};
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use serde_json::{Map, Value};

use super::database::Database;
use crate::project_file::{Logins, toml_string, write};
use crate::provision::{has_logins, install};
use crate::token::mint;

/// The project's id.
pub const PROJECT: &str = "dev";

/// The user that the printed user key is of.
const USER_ID: &str = "00000000-0000-4000-8000-000000000001";

/// Ten years: keys of a development project do not expire over a holiday.
const KEY_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// The project, and keys for it.
#[derive(Debug)]
pub struct Project {
    /// As the services know it.
    pub config: ProjectConfig,
    /// A token of the role anon.
    pub anon_key: String,
    /// A token of a user with the role authenticated.
    pub user_key: String,
    /// That user's id.
    pub user_id: String,
    /// A token of the role service_role.
    pub service_key: String,
}

/// Provisions the database, and gives the project from its file; makes the file first where
/// there is none, or where it is of another database.
pub async fn open(data_dir: &Path, database: &Database, take_logins: bool) -> anyhow::Result<Project> {
    let folder = data_dir.join("projects.d");
    let path = folder.join(format!("{PROJECT}.toml"));
    let id = ProjectId::parse(PROJECT)?;
    let kept = kept_project(&folder, &id, &database.dsn).await;
    let config = match kept {
        Some(config) => {
            install(&database.dsn, None, false).await?;
            config
        }
        None => {
            if database.server.is_none() && !take_logins && has_logins(&database.dsn).await? {
                bail!(
                    "this server has AnvilBase's logins already, and {} does not know their passwords: name the data folder that does with --data-dir, or give them new ones with --take-logins, which shuts out whatever uses them now",
                    path.display()
                );
            }
            let logins = Logins::random()?;
            install(&database.dsn, Some(&logins), false).await?;
            let secret = format!("{}{}", Secret::random()?.expose(), Secret::random()?.expose());
            let text = format!(
                "{}\n[tokens]\njwt_secret = {}\n",
                logins.section(&database.dsn),
                toml_string(&secret)
            );
            write(&path, &text)?;
            let made = Catalog::load(&folder)?
                .get(&id)
                .context("the project's file is not read")?;
            ProjectConfig::clone(&made)
        }
    };
    if database.server.is_some() {
        grant_platform_rights(&database.dsn).await?;
    }
    keys(config)
}

/// The project's file, if its logins still lead to this database.
async fn kept_project(folder: &Path, id: &ProjectId, dsn: &Dsn) -> Option<ProjectConfig> {
    let mut config = ProjectConfig::clone(&*Catalog::load(folder).ok()?.get(id)?);
    config.tokens.as_ref()?;
    let logins = config.database.as_mut()?;
    // A private server may be on another port than last time.
    for login in [
        &mut logins.listener_dsn,
        &mut logins.prober_dsn,
        &mut logins.service_dsn,
    ] {
        let kept = login.take()?;
        let password = String::from_utf8(kept.config().get_password()?.to_vec()).ok()?;
        *login = Some(dsn.with_login(kept.config().get_user()?, &password));
    }
    let listener = logins.listener_dsn.as_ref()?;
    connect(listener, &PgOptions::new("anvilbase dev")).await.ok()?;
    Some(config)
}

/// What a platform of projects grants: everybody may ask for every table of `public`, and
/// row-level security decides. Only in a private server: elsewhere it is not ours to grant.
async fn grant_platform_rights(dsn: &Dsn) -> anyhow::Result<()> {
    let (client, connection) = connect(dsn, &PgOptions::new("anvilbase dev")).await?;
    Tasks::new().spawn("grants connection", connection.drive());
    let granted = client
        .batch_execute(realtime_listener::provision::PLATFORM_SQL)
        .await;
    granted.map_err(|error| anyhow::anyhow!("grants: {}", realtime_node::postgres::describe(&error)))
}

fn keys(config: ProjectConfig) -> anyhow::Result<Project> {
    let secret = config
        .tokens
        .as_ref()
        .and_then(|tokens| tokens.secrets.first().cloned())
        .context("the project's file has no token secret")?;
    let user_id = USER_ID.to_owned();
    let of = |role: &str, sub: Option<&str>| {
        let mut claims = Map::new();
        claims.insert("ref".into(), PROJECT.into());
        if let Some(sub) = sub {
            claims.insert("sub".into(), Value::from(sub));
            claims.insert("aud".into(), "authenticated".into());
        }
        mint(&secret, role, KEY_SECONDS, claims)
    };
    Ok(Project {
        anon_key: of("anon", None)?,
        user_key: of("authenticated", Some(&user_id))?,
        service_key: of("service_role", None)?,
        user_id,
        config,
    })
}
