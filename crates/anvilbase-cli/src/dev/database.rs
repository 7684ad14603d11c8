//! The database that `anvilbase dev` serves.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use realtime_node::postgres::Dsn;
use realtime_node::postgres::private::{Server, ServerOptions};
use realtime_node::secret::Secret;

/// The database.
#[derive(Debug)]
pub struct Database {
    /// Its connection string, as its owner or a superuser.
    pub dsn: Dsn,
    /// The same as a text, for whoever asked for a private one.
    pub url: Secret,
    /// The private server; `None` where a database was named.
    pub server: Option<Server>,
}

/// Where the data is kept when nobody says: below this folder; as root below `/var/tmp`, since
/// PostgreSQL then runs as a user who cannot come into root's own folders.
pub fn default_data_dir() -> anyhow::Result<PathBuf> {
    if std::fs::metadata("/proc/self")?.uid() == 0 {
        return Ok(PathBuf::from("/var/tmp/anvilbase-dev"));
    }
    Ok(std::env::current_dir()?.join(".anvilbase"))
}

/// Removes a data folder, if it is one.
pub fn remove(data_dir: &Path) -> anyhow::Result<()> {
    if !data_dir.exists() {
        return Ok(());
    }
    if !data_dir.join("postgres").exists() && !data_dir.join("projects.d").exists() {
        bail!(
            "{}: not a data folder of anvilbase dev, so it is not removed",
            data_dir.display()
        );
    }
    std::fs::remove_dir_all(data_dir).with_context(|| format!("{}: cannot be removed", data_dir.display()))
}

/// Opens the named database, or starts a private server.
pub async fn open(named: Option<Dsn>, data_dir: &Path, port: u16) -> anyhow::Result<Database> {
    if let Some(dsn) = named {
        let url = dsn.to_key_values();
        return Ok(Database {
            dsn,
            url,
            server: None,
        });
    }
    prepare_parents(data_dir)?;
    let options = ServerOptions {
        data_dir: data_dir.join("postgres"),
        port,
        settings: vec![("max_connections".to_owned(), "100".to_owned())],
        bin_dir: None,
    };
    let server = Server::start(options).await?;
    Ok(Database {
        dsn: server.superuser_dsn("postgres")?,
        url: Secret::new(server.superuser_url("postgres")),
        server: Some(server),
    })
}

/// Makes the folder, open to be passed through by the server's user.
fn prepare_parents(data_dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("{}: cannot be made", data_dir.display()))?;
    let as_root = std::fs::metadata("/proc/self")?.uid() == 0;
    if !as_root {
        return Ok(());
    }
    std::fs::set_permissions(data_dir, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    for folder in data_dir.ancestors().skip(1) {
        if std::fs::metadata(folder)?.mode() & 0o001 == 0 {
            bail!(
                "{}: only its owner may pass through it, and as root PostgreSQL runs as another user; name a folder elsewhere with --data-dir",
                folder.display()
            );
        }
    }
    Ok(())
}
