//! A PostgreSQL server of a test's own.

use std::path::{Path, PathBuf};

use realtime_node::postgres::private::{Server, ServerOptions};
use realtime_node::postgres::{Dsn, PgOptions, connect};
use tempfile::TempDir;
use tokio_postgres::Client;

/// A server of its own, with a superuser; dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    /// The server.
    pub server: Server,
    _folder: TempDir,
}

impl Postgres {
    /// Starts a server from a copy of a prepared folder, which is made once per machine.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with settings of the test's own.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let folder = TempDir::with_prefix("anvilbase-test-pg-").unwrap();
        // The server may run as another user, who must be able to come through.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let data_dir = folder.path().join("server");
        let target = data_dir.clone();
        tokio::task::spawn_blocking(move || {
            Server::copy_folder(&template(), &target).unwrap();
        })
        .await
        .unwrap();
        let fast = [
            ("fsync", "off"),
            ("synchronous_commit", "off"),
            ("full_page_writes", "off"),
            ("shared_buffers", "32MB"),
            ("autovacuum", "off"),
            ("max_connections", "200"),
        ];
        let settings = fast
            .iter()
            .chain(settings)
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let options = ServerOptions {
            data_dir,
            port: 0,
            settings,
            bin_dir: None,
        };
        Self {
            server: Server::start(options).await.unwrap(),
            _folder: folder,
        }
    }

    /// The superuser's connection string for a database.
    pub fn superuser_dsn(&self, database: &str) -> Dsn {
        self.server.superuser_dsn(database).unwrap()
    }

    /// Creates a database.
    pub async fn create_database(&self, name: &str) {
        let client = self.connect("postgres").await;
        let quoted = realtime_node::postgres::quote_identifier(name);
        client
            .batch_execute(&format!("create database {quoted}"))
            .await
            .unwrap();
    }

    /// A superuser's client.
    pub async fn connect(&self, database: &str) -> Client {
        connect_as(&self.superuser_dsn(database)).await
    }

    /// The client of a login.
    pub async fn connect_login(&self, user: &str, password: &str, database: &str) -> Client {
        connect_as(&Dsn::parse(&self.server.url(user, password, database)).unwrap()).await
    }
}

/// A client by its connection string; its connection is driven until the client is dropped.
pub async fn connect_as(dsn: &Dsn) -> Client {
    let (client, connection) = connect(dsn, &PgOptions::new("anvilbase tests")).await.unwrap();
    realtime_node::tasks::Tasks::new().spawn("test client", connection.drive());
    client
}

/// The prepared folder, made by whoever comes first.
fn template() -> PathBuf {
    let path = std::env::temp_dir().join("anvilbase-test-pg-template-1");
    let lock = std::fs::File::create(path.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !is_prepared(&path) {
        let making = path.with_extension("making");
        if making.exists() {
            std::fs::remove_dir_all(&making).unwrap();
        }
        Server::prepare_folder(&making).unwrap();
        std::fs::rename(&making, &path).unwrap();
    }
    path
}

fn is_prepared(path: &Path) -> bool {
    path.join("cluster/PG_VERSION").exists()
}
