//! A connection pooler before a test's PostgreSQL.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use realtime_node::postgres::private::free_port;
use tempfile::TempDir;

use crate::postgres::Postgres;
use crate::wait::until;

/// A pooler of its own; dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts the machine's pgbouncer before a server, in `session` or `transaction` mode, for one login.
    ///
    /// # Panics
    /// There is none: `make setup` installs it.
    pub async fn start(postgres: &Postgres, mode: &str, login: &str, password: &str) -> Self {
        let folder = TempDir::with_prefix("anvilbase-pgbouncer-").unwrap();
        let port = free_port().unwrap();
        let users = folder.path().join("users.txt");
        let config = folder.path().join("pgbouncer.ini");
        std::fs::write(&users, format!("\"{login}\" \"{password}\"\n")).unwrap();
        std::fs::write(
            &config,
            format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = {mode}\n",
                postgres.server.port(),
                users.display()
            ),
        )
        .unwrap();
        // Like PostgreSQL, it does not run as root.
        for path in [folder.path(), &users, &config] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let as_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
        let mut command = Command::new(binary());
        if as_root {
            command.args(["-u", "nobody"]);
        }
        let child = command
            .arg("-q")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("pgbouncer listens", || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        Self {
            child,
            port,
            _folder: folder,
        }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> &'static Path {
    let places = [
        "/usr/sbin/pgbouncer",
        "/usr/bin/pgbouncer",
        "/usr/local/bin/pgbouncer",
    ];
    let found = places.into_iter().map(Path::new).find(|path| path.exists());
    found.expect("no pgbouncer on this machine: run `make setup`")
}
