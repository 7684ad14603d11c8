//! A private PostgreSQL server from the machine's own binaries: for `anvilbase dev` and for tests.
//!
//! Must never touch a server or a folder that it did not make. PostgreSQL refuses to run as
//! root: then the server runs as an unprivileged user.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::{Dsn, PgOptions, connect};
use crate::secret::Secret;

/// Login of the superuser of a private server.
pub const SUPERUSER: &str = "postgres";

const START_DEADLINE: Duration = Duration::from_secs(30);

/// What to start.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The server's folder: made and filled where it is missing or empty.
    pub data_dir: PathBuf,
    /// TCP port on 127.0.0.1; 0 = any free one.
    pub port: u16,
    /// Settings such as `("fsync", "off")`.
    pub settings: Vec<(String, String)>,
    /// Folder with `initdb` and `postgres`; searched for where `None`.
    pub bin_dir: Option<PathBuf>,
}

/// A running private server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    options: ServerOptions,
    password: Secret,
    port: u16,
}

/// The user that the server runs as, where this process is root.
#[derive(Debug, Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Server {
    /// Starts a server, making its folder first where there is none, and waits until it answers.
    ///
    /// # Errors
    /// No PostgreSQL on the machine; the folder cannot be used; it does not answer in 30 s.
    pub async fn start(options: ServerOptions) -> anyhow::Result<Self> {
        let bin_dir = bin_dir_or_found(options.bin_dir.as_deref())?;
        let prepared = options.clone();
        let bins = bin_dir.clone();
        let password = tokio::task::spawn_blocking(move || prepare(&prepared.data_dir, &bins)).await??;
        let port = if options.port == 0 {
            free_port()?
        } else {
            options.port
        };
        let child = spawn(&options, &bin_dir, port)?;
        let mut server = Self {
            child,
            options,
            password,
            port,
        };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Makes a server's folder without starting it; one that is already there is left alone.
    /// `bin_dir` as in [`ServerOptions`].
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn prepare_folder(data_dir: &Path, bin_dir: Option<&Path>) -> anyhow::Result<()> {
        prepare(data_dir, &bin_dir_or_found(bin_dir)?).map(drop)
    }

    /// Copies a server's folder, ownership included.
    ///
    /// # Errors
    /// The folder cannot be copied.
    pub fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
        let copied = Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(to)
            .status()
            .context("cp: cannot run")?;
        if copied.success() {
            Ok(())
        } else {
            bail!("{}: cannot be copied", from.display())
        }
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's folder.
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// The superuser's connection string for a database, password included: for handing to
    /// clients on this machine, never for a log.
    pub fn superuser_url(&self, database: &str) -> String {
        self.url(SUPERUSER, self.password.expose(), database)
    }

    /// A login's connection string for a database.
    pub fn url(&self, user: &str, password: &str, database: &str) -> String {
        format!(
            "postgresql://{user}:{password}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// The superuser's connection to a database.
    ///
    /// # Errors
    /// The database's name cannot be put in a connection string.
    pub fn superuser_dsn(&self, database: &str) -> anyhow::Result<Dsn> {
        Ok(Dsn::parse(&self.superuser_url(database))?)
    }

    /// Ends the server and starts it again on the same port. `immediate`: as in a crash.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn restart(&mut self, immediate: bool) -> anyhow::Result<()> {
        self.stop(immediate);
        self.resume().await
    }

    /// Starts the server again after [`Server::stop`].
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn resume(&mut self) -> anyhow::Result<()> {
        let bin_dir = bin_dir_or_found(self.options.bin_dir.as_deref())?;
        self.child = spawn(&self.options, &bin_dir, self.port)?;
        self.wait_until_ready().await
    }

    /// Ends the server and waits for its end. `immediate`: as in a crash.
    pub fn stop(&mut self, immediate: bool) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let signal = if immediate { "-QUIT" } else { "-INT" };
        let sent = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        if !sent.is_ok_and(|status| status.success()) && self.child.kill().is_err() {
            return;
        }
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "private PostgreSQL: its end cannot be awaited");
        }
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let dsn = self.superuser_dsn("postgres")?;
        let options = PgOptions::new("anvilbase private server");
        let deadline = tokio::time::Instant::now() + START_DEADLINE;
        loop {
            match connect(&dsn, &options).await {
                Ok(_) => return Ok(()),
                Err(error) if tokio::time::Instant::now() > deadline => {
                    bail!("private PostgreSQL: not ready after {START_DEADLINE:?}: {error}")
                }
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait()? {
                let log = self.options.data_dir.join("server.log");
                bail!(
                    "private PostgreSQL: ended at once ({status}); see {}",
                    log.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(true);
    }
}

/// A TCP port on 127.0.0.1 that is free just now.
///
/// # Errors
/// None is.
pub fn free_port() -> anyhow::Result<u16> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(probe.local_addr()?.port())
}

fn bin_dir_or_found(bin_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    bin_dir.map_or_else(find_bin_dir, |folder| Ok(folder.to_owned()))
}

/// The folder with the newest `initdb` and `postgres` of the machine.
fn find_bin_dir() -> anyhow::Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
    {
        let bin = entry.path().join("bin");
        let version = entry.file_name().to_string_lossy().parse();
        if let (Ok(version), true) = (
            version,
            bin.join("postgres").exists() && bin.join("initdb").exists(),
        ) {
            found.push((version, bin));
        }
    }
    if let Some((_, bin)) = found.into_iter().max() {
        return Ok(bin);
    }
    for folder in [
        "/usr/local/bin",
        "/usr/bin",
        "/usr/local/pgsql/bin",
        "/opt/homebrew/bin",
    ] {
        let folder = Path::new(folder);
        if folder.join("postgres").exists() && folder.join("initdb").exists() {
            return Ok(folder.to_owned());
        }
    }
    bail!(
        "no PostgreSQL server on this machine: install it (Debian: apt-get install postgresql), or name a database"
    )
}

/// Makes and fills the folder where needed; gives the superuser's password.
fn prepare(data_dir: &Path, bin_dir: &Path) -> anyhow::Result<Secret> {
    let account = unprivileged()?;
    let cluster = data_dir.join("cluster");
    let password_file = data_dir.join("superuser.password");
    if cluster.join("PG_VERSION").exists() && password_file.exists() {
        let text = std::fs::read_to_string(&password_file).context("private PostgreSQL: password file")?;
        return Ok(Secret::new(text.trim_end()));
    }
    std::fs::create_dir_all(data_dir).with_context(|| format!("{}: cannot be made", data_dir.display()))?;
    std::fs::set_permissions(data_dir, std::fs::Permissions::from_mode(0o711))?;
    let password = Secret::random().context("private PostgreSQL: password")?;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&password_file)?
        .write_all(password.expose().as_bytes())?;
    std::fs::create_dir_all(&cluster)?;
    for path in [data_dir, &password_file, &cluster] {
        own(path, account)?;
    }
    let mut initdb = Command::new(bin_dir.join("initdb"));
    initdb
        .arg("-D")
        .arg(&cluster)
        .args([
            "-U",
            SUPERUSER,
            "--auth-local=scram-sha-256",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
        ])
        // Text orders by bytes, so filters can be judged without the database.
        .args([
            "--lc-collate=C",
            "--lc-ctype=C.UTF-8",
            "--lc-messages=C",
            "--no-sync",
        ])
        .arg(format!("--pwfile={}", password_file.display()))
        .current_dir("/");
    let output = as_account(&mut initdb, account)
        .output()
        .context("initdb: cannot run")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!(
            "initdb in {}: {}",
            cluster.display(),
            reason.lines().next_back().unwrap_or("failed")
        );
    }
    Ok(password)
}

fn spawn(options: &ServerOptions, bin_dir: &Path, port: u16) -> anyhow::Result<Child> {
    let account = unprivileged()?;
    let log_path = options.data_dir.join("server.log");
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_path)?;
    let mut server = Command::new(bin_dir.join("postgres"));
    server
        .arg("-D")
        .arg(options.data_dir.join("cluster"))
        .arg("-p")
        .arg(port.to_string())
        .args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
    for (name, value) in &options.settings {
        server.arg("-c").arg(format!("{name}={value}"));
    }
    server
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    as_account(&mut server, account)
        .spawn()
        .context("postgres: cannot run")
}

fn as_account(command: &mut Command, account: Option<Account>) -> &mut Command {
    match account {
        Some(account) => command.uid(account.uid).gid(account.gid),
        None => command,
    }
}

fn own(path: &Path, account: Option<Account>) -> anyhow::Result<()> {
    let Some(account) = account else { return Ok(()) };
    std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid))
        .with_context(|| format!("{}: owner cannot be set", path.display()))
}

/// `None` where this process may run PostgreSQL itself.
fn unprivileged() -> anyhow::Result<Option<Account>> {
    let own_uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?);
    if own_uid != 0 {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let find = |name: &str| {
        passwd.lines().find_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            let [user, _, uid, gid, ..] = fields.as_slice() else {
                return None;
            };
            (*user == name).then_some(Account {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            })
        })
    };
    find("postgres")
        .or_else(|| find("nobody"))
        .map(Some)
        .context("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}
