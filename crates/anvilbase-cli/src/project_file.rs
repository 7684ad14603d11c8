//! A project's catalog file, written for the services.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use realtime_listener::provision::{LISTENER_ROLE, PROBER_ROLE, SERVICE_ROLE};
use realtime_node::postgres::Dsn;
use realtime_node::secret::Secret;

/// The passwords of a database's three logins.
#[derive(Debug, Clone)]
pub struct Logins {
    /// The listener's.
    pub listener: Secret,
    /// The prober's.
    pub prober: Secret,
    /// The one for service_role work.
    pub service: Secret,
}

impl Logins {
    /// New passwords.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn random() -> anyhow::Result<Self> {
        Ok(Self {
            listener: Secret::random()?,
            prober: Secret::random()?,
            service: Secret::random()?,
        })
    }

    /// The `[database]` section for the database that `dsn` leads to.
    pub fn section(&self, dsn: &Dsn) -> String {
        let line = |key: &str, role: &str, password: &Secret| {
            let text = dsn.with_login(role, password.expose()).to_key_values();
            format!("{key} = {}\n", toml_string(text.expose()))
        };
        format!(
            "[database]\n{}{}{}",
            line("listener_dsn", LISTENER_ROLE, &self.listener),
            line("prober_dsn", PROBER_ROLE, &self.prober),
            line("service_dsn", SERVICE_ROLE, &self.service),
        )
    }
}

/// Writes a file that only its owner may read, whole or not at all.
///
/// # Errors
/// The folder cannot be written to.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("{}: cannot be made", parent.display()))?;
    let partial = path.with_extension("partial");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)
        .with_context(|| format!("{}: cannot be written", partial.display()))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&partial, path).with_context(|| format!("{}: cannot be written", path.display()))
}

/// A text as a TOML basic string.
pub fn toml_string(text: &str) -> String {
    // JSON's escapes are TOML's too.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use realtime_node::catalog::Catalog;

    use super::*;

    #[test]
    fn the_services_read_what_is_written() {
        let folder = std::env::temp_dir().join(format!("anvilbase-cli-{}", std::process::id()));
        let dsn = Dsn::parse("postgresql://owner:o'w\"n@127.0.0.1:5433/my%20db?sslmode=require").unwrap();
        let logins = Logins {
            listener: Secret::new("a'b\\c d"),
            prober: Secret::new("p\"q"),
            service: Secret::random().unwrap(),
        };
        write(&folder.join("dev.toml"), &logins.section(&dsn)).unwrap();
        let catalog = Catalog::load(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let projects = catalog.projects();
        let database = projects[0].database.as_ref().unwrap();
        let config = database.listener_dsn.as_ref().unwrap().config();
        assert_eq!(config.get_user(), Some(LISTENER_ROLE));
        assert_eq!(config.get_password(), Some(b"a'b\\c d".as_slice()));
        assert_eq!(config.get_dbname(), Some("my db"));
        assert_eq!(config.get_ports(), [5433]);
        assert_eq!(format!("{:?}", config.get_ssl_mode()), "Require");
        assert_eq!(
            database.prober_dsn.as_ref().unwrap().config().get_password(),
            Some(b"p\"q".as_slice())
        );
    }
}
