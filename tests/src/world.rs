//! The three services as tasks of this process, on the bus within it, over a real PostgreSQL: for
//! tests that ask what a subscriber gets. [`crate::stack::Stack`] runs the binaries instead.

use std::time::Duration;

use realtime_authz::{AuthzServer, LimitArgs};
use realtime_core::claims::Role;
use realtime_core::id::ProjectId;
use realtime_gateway::authz::AuthzArgs;
use realtime_gateway::limits::Limits;
use realtime_listener::provision::{
    LISTENER_ROLE, PLATFORM_SQL, PROBER_ROLE, Password, ProvisionOptions, SERVICE_ROLE, provision,
};
use realtime_listener::{Listener, ListenerConfig};
use realtime_node::admin::Readiness;
use realtime_node::args::from_environment;
use realtime_node::bus::Bus;
use realtime_node::catalog::{Catalog, DatabaseConfig, Listen, ProjectConfig, TokenConfig};
use realtime_node::fetch::{Call, FetchLimits, Method, call};
use realtime_node::metrics::Metrics;
use realtime_node::postgres::Dsn;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::tokens;
use realtime_testkit::ws::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::stack::JWT_SECRET;

/// A signed-in user of organisation A.
pub const U1: &str = "00000000-0000-4000-8000-000000000001";
/// A signed-in user of organisation B.
pub const U2: &str = "00000000-0000-4000-8000-000000000002";
/// The organisation of [`U1`].
pub const ORG_A: &str = "00000000-0000-4000-8000-0000000000a1";
/// The organisation of [`U2`].
pub const ORG_B: &str = "00000000-0000-4000-8000-0000000000a2";

/// The table that most tests write to, and the one whose changes prove that a socket lives.
const FIXTURE: &str = "
    create table notes (id bigint primary key, owner uuid, room int, title text, done bool,
      amount numeric(20,4), at timestamptz, tags text[], meta jsonb);
    alter table notes enable row level security;
    create policy own on notes for select to authenticated using (owner = auth.uid());
    create table sentinel (n bigint primary key);
    alter table sentinel enable row level security;
    create policy everybody on sentinel for select to anon, authenticated using (true);
";

/// A database that is provisioned, and the services over it.
pub struct World {
    /// The database server.
    pub postgres: Postgres,
    /// A superuser's client.
    pub sql: tokio_postgres::Client,
    /// The edge's port on 127.0.0.1.
    pub port: u16,
    /// The metrics of all three services.
    pub metrics: Metrics,
    /// The tasks of all three services.
    pub tasks: Tasks,
    sentinels: std::sync::atomic::AtomicI64,
}

/// Who a subscriber is: the claims of its token, an hour from expiry where they name none.
#[derive(Debug, Clone)]
pub struct Who(Value);

impl Who {
    /// A holder of the anon key.
    pub fn anon() -> Self {
        Self(json!({ "role": "anon" }))
    }

    /// A trusted server.
    pub fn service() -> Self {
        Self(json!({ "role": "service_role" }))
    }

    /// [`U1`] of [`ORG_A`].
    pub fn u1() -> Self {
        Self::user(U1, ORG_A)
    }

    /// [`U2`] of [`ORG_B`].
    pub fn u2() -> Self {
        Self::user(U2, ORG_B)
    }

    /// A signed-in user of an organisation.
    pub fn user(sub: &str, org: &str) -> Self {
        Self(json!({ "role": "authenticated", "sub": sub, "app_metadata": { "org": org } }))
    }

    /// Any claims.
    pub fn claims(claims: Value) -> Self {
        Self(claims)
    }

    /// A token over these claims, signed with the project's secret.
    pub fn token(&self) -> String {
        let mut claims = self.0.clone();
        if claims.get("exp").is_none() {
            claims["exp"] = json!(tokens::now() + 3600);
        }
        tokens::mint(JWT_SECRET, &claims)
    }
}

impl World {
    /// Starts everything with the default limits.
    pub async fn start() -> Self {
        Self::start_with(|_| {}, Bus::local()).await
    }

    /// Starts everything with limits of the test's own, on a bus of its own.
    pub async fn start_with(limits: impl FnOnce(&mut Limits), bus: Bus) -> Self {
        let postgres = Postgres::start().await;
        let mut sql = postgres.connect("postgres").await;
        prepare(&mut sql).await;
        sql.batch_execute(FIXTURE).await.unwrap();
        let (metrics, tasks) = (Metrics::new(), Tasks::new());
        let mut gateway_limits: Limits = from_environment().unwrap();
        limits(&mut gateway_limits);
        let port = services(&postgres, bus, gateway_limits, &metrics, &tasks).await;
        Self {
            postgres,
            sql,
            port,
            metrics,
            tasks,
            sentinels: 0.into(),
        }
    }

    /// Runs statements as the superuser.
    pub async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    /// What a query of the superuser gives: the first column of each row, as text.
    pub async fn column(&self, sql: &str) -> Vec<String> {
        let rows = self.sql.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What REST would answer this subscriber: the query's first column, run as its role under its claims.
    pub async fn rest(&self, who: &Who, sql: &str) -> Vec<String> {
        self.run("begin read only").await;
        let subject = "select set_config('role', $1, true), set_config('request.jwt.claims', $2, true)";
        let role = who.0["role"].as_str().unwrap();
        self.sql
            .execute(subject, &[&role, &who.0.to_string()])
            .await
            .unwrap();
        let answer = self.column(sql).await;
        self.run("rollback").await;
        answer
    }

    /// Commits a sentinel and gives the text of all frames that the socket got before it, byte for byte.
    pub async fn texts(&self, socket: &mut Socket) -> Vec<String> {
        let n = self.sentinels.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        self.run(&format!("insert into sentinel values ({n})")).await;
        socket.texts_until_sentinel(n).await
    }

    /// A socket of this subscriber, with a channel on which sentinels arrive.
    pub async fn socket(&self, who: &Who) -> Socket {
        self.socket_with_key(&who.token()).await
    }

    /// As [`World::socket`], with the token itself.
    pub async fn socket_with_key(&self, key: &str) -> Socket {
        let mut socket = Socket::at(self.port, key).await;
        let all = [json!({ "event": "INSERT", "schema": "public", "table": "sentinel" })];
        socket.join("realtime:sentinel", &all, None).await.unwrap();
        socket.subscribed("realtime:sentinel").await;
        socket
    }

    /// A socket of this subscriber whose channel `realtime:test` has these bindings and is live.
    pub async fn subscriber(&self, who: &Who, bindings: &[Value]) -> Socket {
        let mut socket = self.socket(who).await;
        socket.join("realtime:test", bindings, None).await.unwrap();
        socket.subscribed("realtime:test").await;
        socket
    }

    /// Commits a sentinel and gives all frames that the socket got before it, in order.
    pub async fn frames(&self, socket: &mut Socket) -> Vec<Value> {
        let n = self.sentinels.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        self.run(&format!("insert into sentinel values ({n})")).await;
        socket.until_sentinel(n).await
    }

    /// Commits a sentinel and gives the `data` of all changes that the socket got before it. A gap
    /// before it fails the test: something else than the rules would have withheld a change.
    pub async fn changes(&self, socket: &mut Socket) -> Vec<Value> {
        let frames = self.frames(socket).await;
        assert!(
            frames.iter().all(|frame| frame[4]["code"] != "gap"),
            "an unexpected gap: {frames:?}"
        );
        let changes = frames.into_iter().filter(|frame| frame[3] == "postgres_changes");
        changes.map(|mut frame| frame[4]["data"].take()).collect()
    }

    /// Sets a table of `public` as the project's own server does, by the management API.
    pub async fn set_table(&self, table: &str, settings: Value) {
        let url = format!(
            "http://127.0.0.1:{}/api/v1/projects/dev/realtime/tables/{table}",
            self.port
        );
        let asked = Call {
            method: Method::PUT,
            token: &Secret::new(Who::service().token()),
            body: Some(settings.to_string()),
        };
        let limits = FetchLimits {
            bytes_max: 64 << 10,
            deadline: Duration::from_secs(20),
        };
        let answer = call(&url.parse().unwrap(), asked, None, limits).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }

    /// Ends the services.
    pub async fn stop(self) {
        assert!(self.tasks.drain(Duration::from_secs(10)).await, "tasks were left");
    }
}

/// A client's socket, version 2.0.0 of the protocol: frames are `[join_ref, ref, topic, event, payload]`.
pub struct Socket {
    /// The connection.
    pub client: Client,
    refs: u64,
}

impl Socket {
    /// One at a gateway of 127.0.0.1, without a channel.
    pub async fn at(port: u16, key: &str) -> Self {
        let url = format!("ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={key}");
        Self {
            client: Client::connect(&url).await,
            refs: 0,
        }
    }

    /// Joins a channel and gives the reply's `response`, of an ok or of an error reply.
    pub async fn join(
        &mut self,
        topic: &str,
        bindings: &[Value],
        token: Option<&str>,
    ) -> Result<Value, Value> {
        let mut payload = json!({ "config": { "postgres_changes": bindings } });
        if let Some(token) = token {
            payload["access_token"] = json!(token);
        }
        self.push(topic, "phx_join", payload).await
    }

    /// Joins `realtime:test` with bindings that must be refused, and gives the reason.
    pub async fn refused(&mut self, bindings: &[Value]) -> String {
        let response = self.join("realtime:test", bindings, None).await.unwrap_err();
        response["reason"].as_str().unwrap().to_owned()
    }

    /// Sends an event and waits for its reply's `response`. The join reference is the topic.
    pub async fn push(&mut self, topic: &str, event: &str, payload: Value) -> Result<Value, Value> {
        let reference = self.send(topic, event, payload).await;
        let (mut reply, _) = self
            .client
            .until("a reply", |frame| {
                frame[3] == "phx_reply" && frame[1] == reference.as_str()
            })
            .await;
        let response = reply[4]["response"].take();
        if reply[4]["status"] == "ok" {
            Ok(response)
        } else {
            Err(response)
        }
    }

    /// Sends an event and gives its reference.
    pub async fn send(&mut self, topic: &str, event: &str, payload: Value) -> String {
        self.refs += 1;
        let reference = self.refs.to_string();
        self.client
            .send_json(&json!([topic, reference, topic, event, payload]))
            .await;
        reference
    }

    /// Waits for "Subscribed to PostgreSQL" on a topic and gives the frames before it.
    pub async fn subscribed(&mut self, topic: &str) -> Vec<Value> {
        let ok = |frame: &Value| {
            frame[2] == topic && frame[3] == "system" && frame[4]["message"] == "Subscribed to PostgreSQL"
        };
        self.client.until("Subscribed to PostgreSQL", ok).await.1
    }

    /// Waits for a `system` frame with this code on any topic and gives its payload.
    pub async fn hint(&mut self, code: &str) -> Value {
        let (mut frame, _) = self
            .client
            .until(code, |frame| frame[3] == "system" && frame[4]["code"] == code)
            .await;
        frame[4].take()
    }

    /// As [`Socket::until_sentinel`], with the frames' text, which need not be JSON that a test can read.
    pub async fn texts_until_sentinel(&mut self, n: i64) -> Vec<String> {
        let here = [
            "[null,null,\"realtime:sentinel\",\"postgres_changes\",".to_owned(),
            format!("\"new\":{{\"n\":{n}}}"),
        ];
        let mut before = Vec::new();
        loop {
            let text = self.client.next_text().await;
            if !text.starts_with(&here[0]) {
                before.push(text);
            } else if text.contains(&here[1]) {
                return before;
            }
        }
    }

    /// Waits for a sentinel that the test has committed, and gives the frames before it.
    pub async fn until_sentinel(&mut self, n: i64) -> Vec<Value> {
        let here = |frame: &Value| {
            frame[2] == "realtime:sentinel"
                && frame[3] == "postgres_changes"
                && frame[4]["data"]["new"]["n"] == n
        };
        let (_, mut before) = self.client.until("the sentinel", here).await;
        // Earlier sentinels, which other sockets asked for.
        before.retain(|frame| frame[2] != "realtime:sentinel" || frame[3] != "postgres_changes");
        before
    }
}

/// A binding.
pub fn binding(event: &str, table: &str) -> Value {
    json!({ "event": event, "schema": "public", "table": table })
}

/// A binding with a filter.
pub fn filtered(event: &str, table: &str, filter: &str) -> Value {
    json!({ "event": event, "schema": "public", "table": table, "filter": filter })
}

/// Provisions a database as an operator does, with the platform's own roles and helpers.
pub async fn prepare(sql: &mut tokio_postgres::Client) {
    let options = ProvisionOptions {
        listener_password: Password::of("l"),
        prober_password: Password::of("p"),
        service_password: Password::of("s"),
        ..ProvisionOptions::default()
    };
    provision(sql, options).await.unwrap();
    sql.batch_execute(PLATFORM_SQL).await.unwrap();
}

/// Starts the three services over a database that [`prepare`] was run on, and gives the edge's port.
pub async fn services(
    postgres: &Postgres,
    bus: Bus,
    limits: Limits,
    metrics: &Metrics,
    tasks: &Tasks,
) -> u16 {
    let dsn = |role, password| Some(Dsn::parse(&postgres.server.url(role, password, "postgres")).unwrap());
    let database = DatabaseConfig {
        listener_dsn: dsn(LISTENER_ROLE, "l"),
        prober_dsn: dsn(PROBER_ROLE, "p"),
        service_dsn: dsn(SERVICE_ROLE, "s"),
    };
    let databases = Catalog::from_projects(vec![project(Some(database), None)]);
    let config = ListenerConfig::default();
    Listener::start(config, bus.clone(), databases.clone(), metrics, tasks)
        .await
        .unwrap();
    let authz = AuthzServer::new(databases, &LimitArgs::default(), metrics, tasks)
        .bind(([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let authz = AuthzArgs {
        authz_urls: vec![format!("http://{authz}")],
        authz_ca_file: None,
        authz_cert_file: None,
        authz_key_file: None,
    };
    let tokens = TokenConfig::by_secret(Secret::new(JWT_SECRET));
    let edge = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = edge.local_addr().unwrap().port();
    let config = realtime_gateway::Config {
        catalog: Catalog::from_projects(vec![project(None, Some(tokens))]),
        bus,
        authz: authz.client().await.unwrap(),
        limits,
        metrics: metrics.clone(),
        readiness: Readiness::default(),
        name: "test".to_owned(),
        drain: Duration::from_millis(100),
        operator_token: None.into(),
    };
    realtime_gateway::run(edge, config, tasks);
    port
}

fn project(database: Option<DatabaseConfig>, tokens: Option<TokenConfig>) -> ProjectConfig {
    ProjectConfig {
        id: ProjectId::parse("dev").unwrap(),
        listen: Listen::Demand,
        roles: ["anon", "authenticated", "service_role"].map(Role::new).to_vec(),
        database,
        tokens,
    }
}
