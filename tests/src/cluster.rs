//! The services as they are run by an operator: several of each, as binaries, on one NATS and one
//! PostgreSQL, to be killed, stopped and started again.

pub mod faults;
pub mod journal;
pub mod ledger;
pub mod run;
pub mod subscriber;

use std::path::Path;

use realtime_listener::provision::{
    LISTENER_ROLE, PLATFORM_SQL, PROBER_ROLE, Password, ProvisionOptions, provision,
};
use realtime_node::postgres::private::free_port;
use realtime_testkit::nats::{GATEWAY_PASSWORD, LISTENER_PASSWORD, Nats};
use realtime_testkit::postgres::Postgres;
use realtime_testkit::process::Process;
use tempfile::TempDir;

use crate::stack::JWT_SECRET;

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Listener replicas.
    pub listeners: usize,
    /// authz replicas.
    pub authz: usize,
    /// Gateway replicas.
    pub gateways: usize,
    /// Projects, each with a database of its own name; the database `postgres` is that of the first.
    pub projects: Vec<String>,
    /// Settings of PostgreSQL.
    pub postgres: Vec<(&'static str, &'static str)>,
    /// Further environment of all services.
    pub env: Vec<(&'static str, String)>,
}

/// A running cluster.
pub struct Cluster {
    /// The database server.
    pub postgres: Postgres,
    /// The bus.
    pub nats: Nats,
    /// The listeners.
    pub listeners: Vec<Service>,
    /// The authz replicas.
    pub authz: Vec<Service>,
    /// The gateways.
    pub gateways: Vec<Service>,
    _folder: TempDir,
}

/// One replica of a service; it comes back with the same addresses.
pub struct Service {
    /// The binary.
    pub name: &'static str,
    /// Where it serves; of a listener, its admin port again.
    pub port: u16,
    /// Its admin port.
    pub admin_port: u16,
    process: Option<Process>,
    env: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listeners: 2,
            authz: 2,
            gateways: 2,
            projects: vec!["dev".to_owned()],
            postgres: Vec::new(),
            env: Vec::new(),
        }
    }
}

impl Cluster {
    /// Starts everything and waits until it is ready.
    pub async fn start(options: Options) -> Self {
        let folder = TempDir::new().unwrap();
        let postgres = Postgres::start_with(&options.postgres).await;
        let nats = Nats::start_with_permissions().await;
        write_projects(&postgres, folder.path(), &options.projects).await;
        for (user, password) in [("listener", LISTENER_PASSWORD), ("gateway", GATEWAY_PASSWORD)] {
            std::fs::write(folder.path().join(user), password).unwrap();
        }
        let authz: Vec<_> = (0..options.authz)
            .map(|_| Service::new("realtime-authz", folder.path(), &nats, &options))
            .collect();
        let authz_urls: Vec<_> = authz
            .iter()
            .map(|replica| format!("http://127.0.0.1:{}", replica.port))
            .collect();
        let listeners = (0..options.listeners)
            .map(|_| Service::new("realtime-listener", folder.path(), &nats, &options))
            .collect();
        let gateways = (0..options.gateways)
            .map(|_| {
                let mut gateway = Service::new("realtime-gateway", folder.path(), &nats, &options);
                gateway.set("ANVILBASE_REALTIME_AUTHZ_URLS", authz_urls.join(","));
                gateway
            })
            .collect();
        let mut cluster = Self {
            postgres,
            nats,
            listeners,
            authz,
            gateways,
            _folder: folder,
        };
        for service in cluster.services() {
            service.spawn();
        }
        for service in cluster.services() {
            service.wait_ready().await;
        }
        cluster
    }

    /// All replicas of all services.
    pub fn services(&mut self) -> impl Iterator<Item = &mut Service> {
        self.authz
            .iter_mut()
            .chain(&mut self.listeners)
            .chain(&mut self.gateways)
    }

    /// The index of the listener that holds a project's feed, by its debug page.
    pub async fn holder(&self, project: &str) -> Option<usize> {
        for (n, listener) in self.listeners.iter().enumerate() {
            if listener.held().await.iter().any(|held| held == project) {
                return Some(n);
            }
        }
        None
    }

    /// Tells every process to stop, and checks that it ends in order and without an ERROR line.
    pub async fn stop(mut self) {
        for service in self.services() {
            if let Some(process) = service.process.take() {
                end(service.name, process).await;
            }
        }
    }
}

async fn end(name: &str, mut process: Process) {
    process.signal("TERM");
    let code = process.wait().await;
    let log = process.log();
    assert_eq!(code, Some(0), "{name} said:\n{log}");
    assert!(!log.contains("\"level\":\"ERROR\""), "{name} said:\n{log}");
}

impl Service {
    fn new(name: &'static str, folder: &Path, nats: &Nats, options: &Options) -> Self {
        let (port, admin_port) = (free_port().unwrap(), free_port().unwrap());
        let projects = if name == "realtime-gateway" {
            "secrets"
        } else {
            "databases"
        };
        let mut service = Self {
            name,
            port,
            admin_port,
            process: None,
            env: Vec::new(),
        };
        service.set("ANVILBASE_REALTIME_ADMIN_ADDR", format!("127.0.0.1:{admin_port}"));
        service.set(
            "ANVILBASE_REALTIME_PROJECTS_DIR",
            folder.join(projects).display().to_string(),
        );
        service.set("ANVILBASE_REALTIME_DRAIN_SECONDS", "5".to_owned());
        let addr = format!("127.0.0.1:{port}");
        match name {
            "realtime-authz" => service.set("ANVILBASE_REALTIME_AUTHZ_ADDR", addr),
            "realtime-gateway" => service.set("ANVILBASE_REALTIME_GATEWAY_ADDR", addr),
            _ => {}
        }
        if let Some(user) = match name {
            "realtime-listener" => Some("listener"),
            "realtime-gateway" => Some("gateway"),
            _ => None,
        } {
            service.set("ANVILBASE_REALTIME_NATS_URL", nats.url());
            service.set("ANVILBASE_REALTIME_NATS_USER", user.to_owned());
            let file = folder.join(user).display().to_string();
            service.set("ANVILBASE_REALTIME_NATS_PASSWORD_FILE", file);
        }
        for (key, value) in &options.env {
            service.set(key, value.clone());
        }
        service
    }

    /// Sets a variable of its environment, from its next start on.
    pub fn set(&mut self, key: &str, value: String) {
        self.env.retain(|(k, _)| k != key);
        self.env.push((key.to_owned(), value));
    }

    /// Its process.
    ///
    /// # Panics
    /// It does not run.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the service runs")
    }

    /// Starts it, without waiting.
    pub fn spawn(&mut self) {
        let env: Vec<_> = self.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        self.process = Some(Process::start(self.name, &[], &env));
    }

    /// Waits until it is ready.
    pub async fn wait_ready(&mut self) {
        let port = self.admin_port;
        self.process
            .as_mut()
            .expect("the service runs")
            .wait_ready(port)
            .await;
    }

    /// Kills it as an out-of-memory killer does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it as a rollout does, and checks how it ended.
    pub async fn terminate(&mut self) {
        if let Some(process) = self.process.take() {
            end(self.name, process).await;
        }
    }

    /// The projects that a listener holds with a live session.
    pub async fn held(&self) -> Vec<String> {
        let Some(page) = realtime_testkit::process::http_get(self.admin_port, "/debug/feeds").await else {
            return Vec::new();
        };
        let body = page.split("\r\n\r\n").nth(1).unwrap_or_default();
        let feeds: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let list = feeds.get("feeds").unwrap_or(&feeds).as_array().cloned();
        list.unwrap_or_default()
            .iter()
            .filter(|feed| feed["epoch"].as_u64().is_some_and(|epoch| epoch > 0))
            .filter_map(|feed| feed["project"].as_str().map(str::to_owned))
            .collect()
    }

    /// Its metrics; empty where it does not answer.
    pub async fn metrics(&self) -> String {
        realtime_testkit::process::http_get(self.admin_port, "/metrics")
            .await
            .unwrap_or_default()
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process().id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
    }
}

/// One file for each project, for gateways and for the others, over databases that are provisioned.
async fn write_projects(postgres: &Postgres, folder: &Path, projects: &[String]) {
    let (databases, secrets) = (folder.join("databases"), folder.join("secrets"));
    std::fs::create_dir(&databases).unwrap();
    std::fs::create_dir(&secrets).unwrap();
    for (n, project) in projects.iter().enumerate() {
        let database = if n == 0 { "postgres" } else { project.as_str() };
        if n > 0 {
            postgres.create_database(database).await;
        }
        let mut sql = postgres.connect(database).await;
        // Logins are the server's: the same passwords for all.
        let options = ProvisionOptions {
            listener_password: Password::of("l"),
            prober_password: Password::of("p"),
            ..ProvisionOptions::default()
        };
        provision(&mut sql, options).await.unwrap();
        sql.batch_execute(PLATFORM_SQL).await.unwrap();
        let url = |role, password| postgres.server.url(role, password, database);
        let text = format!(
            "[database]\nlistener_dsn = \"{}\"\nprober_dsn = \"{}\"\n",
            url(LISTENER_ROLE, "l"),
            url(PROBER_ROLE, "p")
        );
        std::fs::write(databases.join(format!("{project}.toml")), text).unwrap();
        let text = format!("[tokens]\njwt_secret = \"{JWT_SECRET}\"\n");
        std::fs::write(secrets.join(format!("{project}.toml")), text).unwrap();
    }
}
