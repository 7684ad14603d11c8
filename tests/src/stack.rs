//! The services as they are deployed: three kinds of binary, a real NATS with our permissions, a
//! real PostgreSQL, projects in files.

use std::path::Path;

use realtime_node::postgres::private::free_port;
use realtime_testkit::nats::{GATEWAY_PASSWORD, LISTENER_PASSWORD, Nats};
use realtime_testkit::postgres::Postgres;
use realtime_testkit::process::Process;
use realtime_testkit::tokens;
use realtime_testkit::wait::until;
use realtime_testkit::ws::Client;
use tempfile::TempDir;

/// The project's token secret.
pub const JWT_SECRET: &str = "a-secret-of-tests-that-is-long-enough-for-hs256";

/// The token that the gateways take for the operator's.
pub const OPERATOR_TOKEN: &str = "an-operator-token-of-the-tests-0123456789";

/// A running deployment with one project, `dev`.
pub struct Stack {
    /// The database server.
    pub postgres: Postgres,
    /// The NATS server, with our permissions.
    pub nats: Nats,
    /// The listener.
    pub listener: Process,
    /// authz.
    pub authz: Process,
    /// The gateways, each of which serves the one project.
    pub gateways: Vec<Gateway>,
    log: String,
    authz_addr: String,
    folder: TempDir,
}

/// A running gateway.
pub struct Gateway {
    /// Its process.
    pub process: Process,
    /// The port of its edge on 127.0.0.1.
    pub port: u16,
    /// The port of its admin server on 127.0.0.1.
    pub admin_port: u16,
}

impl Stack {
    /// Starts everything and waits until it is ready. The services log at debug level, so that
    /// [`Stack::stop`] finds whatever they would ever say.
    pub async fn start(gateways: usize) -> Self {
        Self::start_with(gateways, "debug,h2=info,hyper=info,tower=info", &[]).await
    }

    /// As [`Stack::start`], with log directives and PostgreSQL settings of the caller's own.
    pub async fn start_with(gateways: usize, log: &str, settings: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let postgres = Postgres::start_with(settings).await;
        let nats = Nats::start_with_permissions().await;
        provision(&postgres, &folder.path().join("databases")).await;
        let secrets = folder.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(
            secrets.join("dev.toml"),
            format!("[tokens]\njwt_secret = \"{JWT_SECRET}\"\n"),
        )
        .unwrap();
        let passwords = [
            ("listener", LISTENER_PASSWORD),
            ("gateway", GATEWAY_PASSWORD),
            ("operator", OPERATOR_TOKEN),
        ];
        for (user, password) in passwords {
            std::fs::write(folder.path().join(user), password).unwrap();
        }

        let env = Env {
            folder: folder.path(),
            nats: nats.url(),
            log,
        };
        let authz_port = free_port().unwrap();
        let admin_ports: Vec<u16> = (0..gateways + 2).map(|_| free_port().unwrap()).collect();
        let authz_addr = format!("127.0.0.1:{authz_port}");
        let mut authz = env.start(
            "realtime-authz",
            admin_ports[0],
            "databases",
            None,
            &[("ANVILBASE_REALTIME_AUTHZ_ADDR", &authz_addr)],
        );
        let mut listener = env.start(
            "realtime-listener",
            admin_ports[1],
            "databases",
            Some("listener"),
            &[],
        );
        let mut started = Vec::new();
        for admin_port in &admin_ports[2..] {
            let port = free_port().unwrap();
            let mut process = env.gateway(*admin_port, port, &authz_addr);
            process.wait_ready(*admin_port).await;
            started.push(Gateway {
                process,
                port,
                admin_port: *admin_port,
            });
        }
        authz.wait_ready(admin_ports[0]).await;
        listener.wait_ready(admin_ports[1]).await;
        Self {
            postgres,
            nats,
            listener,
            authz,
            gateways: started,
            log: log.to_owned(),
            authz_addr,
            folder,
        }
    }

    /// Writes another `[tokens]` section for the gateways, which read it within a second or so.
    pub fn set_tokens(&self, section: &str) {
        let path = self.folder.path().join("secrets/dev.toml");
        // At once, as a mounted secret changes: never half a file.
        let written = path.with_extension("new");
        std::fs::write(&written, section).unwrap();
        std::fs::rename(written, path).unwrap();
    }

    /// Waits until every gateway takes this key.
    pub async fn wait_for_key(&self, key: &str) {
        for gateway in &self.gateways {
            let url = format!(
                "ws://127.0.0.1:{}/realtime/v1/websocket?vsn=2.0.0&apikey={key}",
                gateway.port
            );
            until("the key is taken", || async {
                Client::try_connect(&url).await.ok()
            })
            .await;
        }
    }

    /// Ends a gateway by a signal, and starts another in its place.
    pub async fn replace_gateway(&mut self, n: usize, signal: &str) {
        let env = Env {
            folder: self.folder.path(),
            nats: self.nats.url(),
            log: &self.log,
        };
        let gateway = &mut self.gateways[n];
        gateway.process.signal(signal);
        gateway.process.wait().await;
        gateway.process = env.gateway(gateway.admin_port, gateway.port, &self.authz_addr);
        gateway.process.wait_ready(gateway.admin_port).await;
    }

    /// All processes of ours, with their names.
    pub fn processes(&mut self) -> Vec<(&'static str, &mut Process)> {
        let mut all = vec![("listener", &mut self.listener), ("authz", &mut self.authz)];
        all.extend(
            self.gateways
                .iter_mut()
                .map(|gateway| ("gateway", &mut gateway.process)),
        );
        all
    }

    /// Tells every process to stop and checks how it ends: code 0, no line of level ERROR, and
    /// none of `secrets` in any line.
    pub async fn stop(mut self, secrets: &[&str]) {
        for (name, process) in self.processes() {
            process.signal("TERM");
            let code = process.wait().await;
            let log = process.log();
            assert_eq!(code, Some(0), "{name} said:\n{log}");
            assert!(!log.contains("\"level\":\"ERROR\""), "{name} said:\n{log}");
            for secret in
                secrets
                    .iter()
                    .chain(&[JWT_SECRET, LISTENER_PASSWORD, GATEWAY_PASSWORD, OPERATOR_TOKEN])
            {
                assert!(!log.contains(secret), "{name} logged a secret");
            }
        }
    }

    /// A key of a role of the project.
    pub fn key(role: &str) -> String {
        tokens::mint(JWT_SECRET, &tokens::claims(role))
    }
}

struct Env<'a> {
    folder: &'a Path,
    nats: String,
    log: &'a str,
}

impl Env<'_> {
    fn gateway(&self, admin_port: u16, port: u16, authz_addr: &str) -> Process {
        self.start(
            "realtime-gateway",
            admin_port,
            "secrets",
            Some("gateway"),
            &[
                ("ANVILBASE_REALTIME_GATEWAY_ADDR", &format!("127.0.0.1:{port}")),
                ("ANVILBASE_REALTIME_AUTHZ_URLS", &format!("http://{authz_addr}")),
                ("ANVILBASE_REALTIME_PROJECTS_POLL_SECONDS", "1"),
                (
                    "ANVILBASE_REALTIME_OPERATOR_TOKEN_FILE",
                    self.folder.join("operator").to_str().unwrap(),
                ),
                ("ANVILBASE_REALTIME_MANAGEMENT_CALLS_PER_SECOND_MAX", "1000"),
            ],
        )
    }

    fn start(
        &self,
        name: &'static str,
        admin_port: u16,
        projects: &str,
        nats_user: Option<&str>,
        more: &[(&str, &str)],
    ) -> Process {
        let admin = format!("127.0.0.1:{admin_port}");
        let projects = self.folder.join(projects);
        let password_file = nats_user.map(|user| self.folder.join(user));
        let mut env = vec![
            ("ANVILBASE_REALTIME_ADMIN_ADDR", admin.as_str()),
            ("ANVILBASE_REALTIME_PROJECTS_DIR", projects.to_str().unwrap()),
            ("ANVILBASE_REALTIME_DRAIN_SECONDS", "5"),
            ("ANVILBASE_REALTIME_LOG", self.log),
        ];
        if let (Some(user), Some(file)) = (nats_user, &password_file) {
            env.push(("ANVILBASE_REALTIME_NATS_URL", &self.nats));
            env.push(("ANVILBASE_REALTIME_NATS_USER", user));
            env.push(("ANVILBASE_REALTIME_NATS_PASSWORD_FILE", file.to_str().unwrap()));
        }
        env.extend_from_slice(more);
        Process::start(name, &[], &env)
    }
}

/// Provisions the server's database as an operator does, and grants what the platform grants.
async fn provision(postgres: &Postgres, folder: &Path) {
    let url = postgres.server.superuser_url("postgres");
    let mut cli = Process::start(
        "anvilbase",
        &[
            "realtime",
            "provision",
            "--project",
            "dev",
            "--write-database-file",
            folder.to_str().unwrap(),
        ],
        &[("DATABASE_URL", &url)],
    );
    let code = cli.wait().await;
    assert_eq!(code, Some(0), "{}", cli.log());
    let client = postgres.connect("postgres").await;
    client
        .batch_execute(realtime_listener::provision::PLATFORM_SQL)
        .await
        .unwrap();
}
