//! A NATS server of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use realtime_node::bus::{Bus, NatsOptions};
use realtime_node::postgres::private::free_port;
use realtime_node::tasks::Tasks;
use tempfile::NamedTempFile;

use crate::wait::until;

/// The listener's password at a server that runs with our configuration.
pub const LISTENER_PASSWORD: &str = "listener-password-of-tests";

/// The password of an internal service that reads the project `dev`.
pub const READER_PASSWORD: &str = "reader-password-of-tests";

/// The gateway's.
pub const GATEWAY_PASSWORD: &str = "gateway-password-of-tests";

/// A server of its own; dropping it ends it.
#[derive(Debug)]
pub struct Nats {
    child: Child,
    binary: PathBuf,
    config: Option<PathBuf>,
    port: u16,
    _config_file: Option<NamedTempFile>,
}

impl Nats {
    /// Starts the machine's nats-server on a free port.
    pub async fn start() -> Self {
        Self::start_binary(&binaries().remove(0), None).await
    }

    /// Starts the machine's nats-server with our services' users and permissions, and with the
    /// line of a project's reader that the file shows in force for `dev-reader` of the project `dev`.
    pub async fn start_with_permissions() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
        let text = std::fs::read_to_string(path).unwrap();
        let with_reader = text
            .replace("# { user: prj-a-reader", "{ user: dev-reader")
            .replace("$PRJ_A_READER_PASSWORD", READER_PASSWORD)
            .replace("anvilbase.rt.prj-a.", "anvilbase.rt.dev.");
        assert!(
            with_reader.contains("{ user: dev-reader"),
            "the line of a reader is not where it was"
        );
        let file = NamedTempFile::with_prefix("anvilbase-nats-").unwrap();
        std::fs::write(file.path(), with_reader).unwrap();
        let mut nats = Self::start_binary(&binaries().remove(0), Some(file.path())).await;
        nats._config_file = Some(file);
        nats
    }

    /// Starts the given binary, with a configuration file of the test's own, which must not name a port.
    pub async fn start_binary(binary: &Path, config: Option<&Path>) -> Self {
        let port = free_port().unwrap();
        let mut nats = Self {
            child: spawn(binary, config, port),
            binary: binary.to_owned(),
            config: config.map(Path::to_owned),
            port,
            _config_file: None,
        };
        nats.wait().await;
        nats
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// A connection of its own.
    pub async fn bus(&self, tasks: &Tasks) -> Bus {
        self.bus_as(None, 4096, tasks).await
    }

    /// A connection of its own as a user of the server, holding at most `capacity` messages.
    pub async fn bus_as(&self, user: Option<(&str, &str)>, capacity: usize, tasks: &Tasks) -> Bus {
        let options = NatsOptions {
            servers: vec![self.url()],
            name: "test".to_owned(),
            user: user.map(|(name, _)| name.to_owned()),
            password: user.map(|(_, password)| realtime_node::secret::Secret::new(password)),
            ca_file: None,
            subscription_capacity: capacity,
        };
        Bus::connect_nats(options, tasks).await.unwrap()
    }

    /// Sends the server a signal, such as `STOP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, after [`Nats::kill`].
    pub async fn resume(&mut self) {
        self.child = spawn(&self.binary, self.config.as_deref(), self.port);
        self.wait().await;
    }

    async fn wait(&mut self) {
        let port = self.port;
        until("nats-server listens", || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every nats-server of the machine: Debian's, and the one of the Python environment.
///
/// # Panics
/// There is none: `make setup` installs them.
pub fn binaries() -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [
        PathBuf::from("/usr/sbin/nats-server"),
        PathBuf::from("/usr/bin/nats-server"),
        PathBuf::from("/usr/local/bin/nats-server"),
        workspace.join(".venv/bin/nats-server"),
    ];
    let found: Vec<_> = places.into_iter().filter(|path| path.exists()).collect();
    assert!(
        !found.is_empty(),
        "no nats-server on this machine: run `make setup`"
    );
    found
}

fn spawn(binary: &Path, config: Option<&Path>, port: u16) -> Child {
    let mut command = Command::new(binary);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
    if let Some(config) = config {
        // The passwords that deploy/nats/nats.conf takes from the environment.
        command
            .arg("-c")
            .arg(config)
            .env("ANVILBASE_REALTIME_NATS_LISTENER_PASSWORD", LISTENER_PASSWORD)
            .env("ANVILBASE_REALTIME_NATS_GATEWAY_PASSWORD", GATEWAY_PASSWORD);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
