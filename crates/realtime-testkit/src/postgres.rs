//! A PostgreSQL server of a test's own.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};

use realtime_node::args::from_environment;
use realtime_node::postgres::private::{Server, ServerOptions};
use realtime_node::postgres::{Dsn, PgOptions, connect};
use tempfile::TempDir;
use tokio_postgres::Client;

/// Which PostgreSQL the tests run on.
#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Folder with the server's programs; the newest of the machine's own without it.
    #[arg(long, env = "ANVILBASE_TEST_POSTGRES_BIN")]
    postgres_bin: Option<PathBuf>,
    /// Its major version, so that a run that is meant for one cannot be on another.
    #[arg(long, env = "ANVILBASE_TEST_POSTGRES_MAJOR")]
    postgres_major: Option<u32>,
}

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
        let wanted: TestArgs = from_environment().unwrap();
        let bin_dir = wanted.postgres_bin;
        let (target, bins) = (data_dir.clone(), bin_dir.clone());
        tokio::task::spawn_blocking(move || {
            Server::copy_folder(&template(bins.as_deref()), &target).unwrap();
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
            bin_dir,
        };
        let postgres = Self {
            server: Server::start(options).await.unwrap(),
            _folder: folder,
        };
        assert!(
            wanted
                .postgres_major
                .is_none_or(|major| major == postgres.major())
        );
        postgres
    }

    /// The server's major version.
    pub fn major(&self) -> u32 {
        let version = self.server.data_dir().join("cluster/PG_VERSION");
        std::fs::read_to_string(version).unwrap().trim().parse().unwrap()
    }

    /// A standby that follows this server, which is stopped for a moment to be copied.
    pub async fn standby(&mut self) -> Self {
        let folder = TempDir::with_prefix("anvilbase-test-pg-").unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let data_dir = folder.path().join("server");
        self.server.stop(false);
        Server::copy_folder(self.server.data_dir(), &data_dir).unwrap();
        self.server.resume().await.unwrap();
        std::fs::write(data_dir.join("cluster/standby.signal"), "").unwrap();
        let primary = self.superuser_dsn("postgres").to_key_values();
        let settings = [("primary_conninfo", primary.expose()), ("max_connections", "200")];
        let options = ServerOptions {
            data_dir,
            port: 0,
            settings: settings.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
            bin_dir: from_environment::<TestArgs>().unwrap().postgres_bin,
        };
        Self {
            server: Server::start(options).await.unwrap(),
            _folder: folder,
        }
    }

    /// Whether the server runs a statement: not every build has ICU or libxml.
    pub async fn can(&self, sql: &str) -> bool {
        self.connect("postgres").await.batch_execute(sql).await.is_ok()
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

/// The prepared folder, made by whoever comes first: one for each PostgreSQL.
fn template(bin_dir: Option<&Path>) -> PathBuf {
    let name = match bin_dir {
        Some(bin_dir) => {
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(bin_dir);
            format!("anvilbase-test-pg-template-1-{hash:016x}")
        }
        None => "anvilbase-test-pg-template-1".to_owned(),
    };
    let path = std::env::temp_dir().join(name);
    let lock = std::fs::File::create(path.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !is_prepared(&path) {
        let making = path.with_extension("making");
        if making.exists() {
            std::fs::remove_dir_all(&making).unwrap();
        }
        Server::prepare_folder(&making, bin_dir).unwrap();
        std::fs::rename(&making, &path).unwrap();
    }
    path
}

fn is_prepared(path: &Path) -> bool {
    path.join("cluster/PG_VERSION").exists()
}
