//! The gateway under test and its scripted peers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use realtime_core::claims::Role;
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::subject;
use realtime_gateway::authz::Authz;
use realtime_gateway::limits::Limits;
use realtime_gateway::{Config, Gateway, run};
use realtime_node::admin::Readiness;
use realtime_node::bus::{Bus, Delivery};
use realtime_node::catalog::{Catalog, Listen, ProjectConfig, TokenConfig};
use realtime_node::metrics::Metrics;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::attach_reply::Outcome;
use realtime_proto::v1::authz_service_server::{AuthzService, AuthzServiceServer};
use realtime_proto::v1::feed_status::{Down, Gap, Kind, TableChanged, Up};
use realtime_proto::v1::table_service_server::{TableService, TableServiceServer};
use realtime_testkit::tokens;
use realtime_testkit::ws::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

pub const SECRET: &str = "a secret of at least thirty-two bytes";

pub const OPERATOR_TOKEN: &str = "an-operator-token-of-the-tests-0123456789";

/// A gateway of the one project `p`, and what it talks to.
pub struct World {
    pub bus: Bus,
    pub authz: Arc<ScriptedAuthz>,
    pub gateway: Gateway,
    pub catalog: Catalog,
    pub metrics: Metrics,
    pub readiness: Readiness,
    /// The gateway's tasks.
    pub tasks: Tasks,
    /// The peers' tasks.
    peers: Tasks,
    pub address: std::net::SocketAddr,
    epoch: AtomicU64,
    seq: AtomicU64,
}

/// Answers by what the row says: `delay` (ms), `deny`, `hang`, `down`, `short`, `saturated`,
/// `policy`; `readable` restricts the columns. Facts are those of `tables`.
#[derive(Default)]
pub struct ScriptedAuthz {
    pub tables: Mutex<HashMap<String, v1::DescribeTableResponse>>,
    pub checks: Mutex<Vec<v1::CheckRequest>>,
    pub describes: Mutex<Vec<v1::DescribeTableRequest>>,
    pub describe_fails: Mutex<bool>,
    /// How long a description takes.
    pub describe_takes: Mutex<Duration>,
    describing: Mutex<usize>,
    /// How many descriptions were on their way at once at most.
    pub describing_most: Mutex<usize>,
    /// The settings that were asked for.
    pub settings: Mutex<Vec<v1::SetTableRequest>>,
    pub listings: Mutex<Vec<v1::ListTablesRequest>>,
}

#[tonic::async_trait]
impl AuthzService for ScriptedAuthz {
    async fn check(&self, request: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        let request = request.into_inner();
        self.checks.lock().push(request.clone());
        let event = request.event.unwrap();
        let row: Value = serde_json::from_str(event.new_json.or(event.old_json).as_deref().unwrap()).unwrap();
        if let Some(delay) = row["delay"].as_u64() {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if row["hang"] == true {
            std::future::pending::<()>().await;
        }
        if row["down"] == true {
            return Err(Status::unavailable("down"));
        }
        let verdict = |subject: &v1::Subject| judge(&row, subject);
        let mut verdicts: Vec<v1::Verdict> = request.subjects.iter().map(verdict).collect();
        if row["short"] == true {
            verdicts.pop();
        }
        Ok(Response::new(v1::CheckResponse { verdicts }))
    }

    async fn describe_table(
        &self,
        request: Request<v1::DescribeTableRequest>,
    ) -> Result<Response<v1::DescribeTableResponse>, Status> {
        let request = request.into_inner();
        self.describes.lock().push(request.clone());
        let takes = *self.describe_takes.lock();
        if !takes.is_zero() {
            let describing = {
                let mut describing = self.describing.lock();
                *describing += 1;
                *describing
            };
            let most = *self.describing_most.lock();
            *self.describing_most.lock() = most.max(describing);
            tokio::time::sleep(takes).await;
            *self.describing.lock() -= 1;
        }
        if *self.describe_fails.lock() {
            return Err(Status::unavailable("down"));
        }
        let known = self.tables.lock().get(&request.table).cloned();
        Ok(Response::new(known.unwrap_or_else(|| {
            facts(&request.schema, &request.table, "int4")
        })))
    }
}

/// What it answers depends on the table: `missing`, `busy`, `foreign`, `bare`, `broken`, `hang`; a list of the
/// schema `many` has more than one answer holds.
#[tonic::async_trait]
impl TableService for ScriptedAuthz {
    async fn list_tables(
        &self,
        request: Request<v1::ListTablesRequest>,
    ) -> Result<Response<v1::ListTablesResponse>, Status> {
        let request = request.into_inner();
        self.listings.lock().push(request.clone());
        Ok(Response::new(v1::ListTablesResponse {
            tables: vec![table_state(&request.schema, "notes")],
            more: request.schema == "many",
        }))
    }

    async fn set_table(
        &self,
        request: Request<v1::SetTableRequest>,
    ) -> Result<Response<v1::SetTableResponse>, Status> {
        let request = request.into_inner();
        self.settings.lock().push(request.clone());
        match &*request.table {
            "missing" => Err(Status::not_found("table")),
            "busy" => Err(Status::aborted("table")),
            "foreign" => Err(Status::permission_denied("table")),
            "bare" => Err(Status::failed_precondition("database")),
            "broken" => Err(Status::internal("hunter2")),
            "hang" => std::future::pending().await,
            table => Ok(Response::new(v1::SetTableResponse {
                table: Some(v1::TableState {
                    cdc_enabled: request.cdc_enabled.unwrap_or(true),
                    ..table_state(&request.schema, table)
                }),
            })),
        }
    }
}

fn table_state(schema: &str, table: &str) -> v1::TableState {
    v1::TableState {
        schema: schema.into(),
        table: table.into(),
        cdc_enabled: true,
        rls_enabled: true,
        delete_events: true,
        emitting: true,
        ..Default::default()
    }
}

fn judge(row: &Value, subject: &v1::Subject) -> v1::Verdict {
    let claims: Value = serde_json::from_str(&subject.claims_json).unwrap();
    // `owner` decides as a policy would; without one everybody may see the row.
    let owned = row["owner"].is_null() || row["owner"] == claims["sub"];
    let policy_error = row["policy"].is_string() && row["policy"] == claims["sub"];
    let drop = |reason: v1::Reason| v1::Verdict {
        decision: v1::Decision::Drop.into(),
        reason: reason.into(),
        ..Default::default()
    };
    if row["saturated"] == true {
        return drop(v1::Reason::PoolSaturated);
    }
    if policy_error {
        return v1::Verdict {
            sqlstate: "22P02".into(),
            ..drop(v1::Reason::PolicyError)
        };
    }
    if row["deny"] == true || !owned {
        return drop(v1::Reason::NotVisible);
    }
    let readable = row["readable"].as_array();
    v1::Verdict {
        decision: v1::Decision::Deliver.into(),
        old_visible: true,
        all_columns: readable.is_none(),
        readable_columns: readable
            .into_iter()
            .flatten()
            .map(|c| c.as_str().unwrap().to_owned())
            .collect(),
        ..Default::default()
    }
}

/// Facts of a table with `id` (its key, int8), `room` (of a type of choice) and `title` (text).
pub fn facts(schema: &str, table: &str, room_type: &str) -> v1::DescribeTableResponse {
    let column = |name: &str, type_name: &str, comparison: v1::Comparison, key| v1::Column {
        name: name.into(),
        type_name: type_name.into(),
        readable: true,
        primary_key: key,
        comparison: comparison.into(),
        ..Default::default()
    };
    let room = if room_type == "text" {
        v1::Comparison::Text
    } else {
        v1::Comparison::Decimal
    };
    v1::DescribeTableResponse {
        schema: schema.into(),
        table: table.into(),
        relid: 1,
        columns: vec![
            column("id", "int8", v1::Comparison::Decimal, true),
            column("room", room_type, room, false),
            column("title", "text", v1::Comparison::Text, false),
        ],
        cannot_emit: v1::CannotEmit::Unspecified.into(),
        delete_events: true,
        relation_kind: v1::RelationKind::Unspecified.into(),
    }
}

impl World {
    /// A gateway whose feed a listener holds.
    pub async fn start() -> Self {
        let world = Self::without_listener(|_| {}).await;
        world.listen().await;
        world
    }

    pub async fn with_limits(limit: impl FnOnce(&mut Limits)) -> Self {
        let world = Self::without_listener(limit).await;
        world.listen().await;
        world
    }

    pub async fn without_listener(limit: impl FnOnce(&mut Limits)) -> Self {
        Self::gateway(Bus::local(), Arc::default(), limit).await
    }

    /// Another gateway of the same project on the same bus.
    pub async fn another_gateway(&self) -> Self {
        Self::gateway(self.bus.clone(), Arc::clone(&self.authz), |_| {}).await
    }

    async fn gateway(bus: Bus, authz: Arc<ScriptedAuthz>, limit: impl FnOnce(&mut Limits)) -> Self {
        let (tasks, peers) = (Tasks::new(), Tasks::new());
        let replica = serve_authz(Arc::clone(&authz), &peers).await;
        let mut limits = Limits::defaults();
        limit(&mut limits);
        let catalog = Catalog::from_projects(vec![project()]);
        let (metrics, readiness) = (Metrics::new(), Readiness::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config {
            catalog: catalog.clone(),
            bus: bus.clone(),
            authz: Authz::new([("a".to_owned(), replica)]),
            limits,
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            name: "g".into(),
            drain: Duration::from_secs(2),
            operator_token: Some(Secret::new(OPERATOR_TOKEN)).into(),
        };
        let gateway = run(listener, config, &tasks);
        Self {
            bus,
            authz,
            gateway,
            catalog,
            metrics,
            readiness,
            tasks,
            peers,
            address,
            epoch: AtomicU64::new(1),
            seq: AtomicU64::new(0),
        }
    }

    /// A listener takes requests to attach from now on, and says at each that the feed is up.
    pub async fn listen(&self) {
        let bus = self.bus.clone();
        let mut requests = bus
            .queue_subscribe(subject::ATTACH, subject::ATTACH_QUEUE, 16)
            .await
            .unwrap();
        let (epoch, seq) = (self.epoch.load(Ordering::SeqCst), self.seq.load(Ordering::SeqCst));
        self.peers.spawn("scripted listener", async move {
            while let Some(Delivery::Message(request)) = requests.next().await {
                let reply = v1::AttachReply {
                    outcome: Outcome::Accepted.into(),
                    listener: "l".into(),
                };
                bus.respond(&request, reply.encode_to_vec().into()).await.unwrap();
                status(&bus, Kind::Up(Up {}), epoch, seq).await;
            }
        });
    }

    pub fn url(&self, vsn: &str) -> String {
        self.url_as(vsn, &token("anon", "-"))
    }

    pub fn url_as(&self, vsn: &str, key: &str) -> String {
        format!(
            "ws://{}/realtime/v1/websocket?apikey={key}&vsn={vsn}",
            self.address
        )
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.url("2.0.0")).await
    }

    /// A client whose channel on these bindings is live, and the ids of its bindings.
    pub async fn joined(&self, token: &str, bindings: Value) -> (Client, Vec<u64>) {
        let mut client = self.client().await;
        let ids = join(&mut client, "room", token, bindings).await;
        subscribed(&mut client).await;
        (client, ids)
    }

    /// Publishes an INSERT into `public.notes`.
    pub async fn insert(&self, row: Value) {
        self.insert_into("notes", row).await;
    }

    pub async fn insert_into(&self, table: &str, row: Value) {
        let seq = self.seq.fetch_add(1, Ordering::SeqCst) + 1;
        self.publish(table, row, self.epoch.load(Ordering::SeqCst), seq)
            .await;
    }

    pub async fn publish(&self, table: &str, row: Value, epoch: u64, seq: u64) {
        let event = v1::ChangeEvent {
            id: format!("{epoch}-{seq}"),
            schema: "public".into(),
            table: table.into(),
            operation: v1::Operation::Insert.into(),
            commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
            new_json: Some(row.to_string()),
            relid: 1,
            position: Some(v1::Position { epoch, seq }),
            ..Default::default()
        };
        let subject = subject::change(&project().id, &TableRef::new("public", table));
        self.bus
            .publish(&subject, event.encode_to_vec().into())
            .await
            .unwrap();
    }

    /// Messages are lost on the way to this gateway.
    pub fn skip(&self, messages: u64) {
        self.seq.fetch_add(messages, Ordering::SeqCst);
    }

    /// Another owner takes the feed over.
    pub fn new_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.seq.store(0, Ordering::SeqCst);
    }

    pub async fn up(&self) {
        let (epoch, seq) = (self.epoch.load(Ordering::SeqCst), self.seq.load(Ordering::SeqCst));
        status(&self.bus, Kind::Up(Up {}), epoch, seq).await;
    }

    pub async fn down(&self) {
        let (epoch, seq) = (self.epoch.load(Ordering::SeqCst), self.seq.load(Ordering::SeqCst));
        status(&self.bus, Kind::Down(Down::default()), epoch, seq).await;
    }

    pub async fn up_of(&self, epoch: u64, seq: u64) {
        status(&self.bus, Kind::Up(Up {}), epoch, seq).await;
    }

    pub async fn table_changed(&self, table: &str) {
        let changed = TableChanged {
            relid: 1,
            schema: "public".into(),
            table: table.into(),
        };
        self.numbered(Kind::TableChanged(changed)).await;
    }

    pub async fn gap(&self, reason: &str) {
        self.numbered(Kind::Gap(Gap {
            reason: reason.into(),
            ..Default::default()
        }))
        .await;
    }

    async fn numbered(&self, kind: Kind) {
        let seq = self.seq.fetch_add(1, Ordering::SeqCst) + 1;
        status(&self.bus, kind, self.epoch.load(Ordering::SeqCst), seq).await;
    }

    /// A metric's value by its name with labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.metrics.encode_process().unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
        self.peers.cancel();
    }
}

async fn serve_authz(authz: Arc<ScriptedAuthz>, tasks: &Tasks) -> tonic::transport::Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = TableServiceServer::from_arc(Arc::clone(&authz));
    let service = AuthzServiceServer::from_arc(authz);
    let incoming = TcpIncoming::from(listener);
    tasks.spawn(
        "scripted authz",
        Server::builder()
            .add_service(service)
            .add_service(settings)
            .serve_with_incoming(incoming),
    );
    tonic::transport::Endpoint::from_shared(url)
        .unwrap()
        .connect_lazy()
}

async fn status(bus: &Bus, kind: Kind, epoch: u64, seq: u64) {
    let position = Some(v1::Position { epoch, seq });
    let status = v1::FeedStatus {
        owner: "l".into(),
        position,
        kind: Some(kind),
    };
    bus.publish(&subject::control(&project().id), status.encode_to_vec().into())
        .await
        .unwrap();
}

pub fn project() -> ProjectConfig {
    ProjectConfig {
        id: ProjectId::parse("p").unwrap(),
        listen: Listen::Demand,
        roles: ["anon", "authenticated", "service_role"].map(Role::new).to_vec(),
        database: None,
        tokens: Some(TokenConfig::by_secret(Secret::new(SECRET))),
    }
}

/// A token of a role and a subject, an hour from its end.
pub fn token(role: &str, sub: &str) -> String {
    tokens::mint(
        SECRET,
        &json!({ "role": role, "sub": sub, "exp": tokens::now() + 3_600 }),
    )
}

pub fn notes() -> Value {
    json!([{ "event": "*", "schema": "public", "table": "notes" }])
}

/// Joins and gives the bindings' ids.
pub async fn join(client: &mut Client, room: &str, token: &str, bindings: Value) -> Vec<u64> {
    let response = try_join(client, room, token, bindings).await;
    assert_eq!(response["status"], "ok", "{response}");
    let bindings = response["response"]["postgres_changes"].as_array().unwrap();
    bindings
        .iter()
        .map(|binding| binding["id"].as_u64().unwrap())
        .collect()
}

/// Joins and gives the reply's payload.
pub async fn try_join(client: &mut Client, room: &str, token: &str, bindings: Value) -> Value {
    let payload = json!({ "config": { "postgres_changes": bindings }, "access_token": token });
    client
        .send_json(&json!([
            room,
            room,
            format!("realtime:{room}"),
            "phx_join",
            payload
        ]))
        .await;
    let (reply, _) = client
        .until("the join's reply", |frame| frame[3] == "phx_reply")
        .await;
    reply[4].clone()
}

pub async fn subscribed(client: &mut Client) -> Value {
    let fits = |frame: &Value| frame[4]["message"] == "Subscribed to PostgreSQL";
    client.until("the feed is live", fits).await.0
}

pub fn is_gap(frame: &Value, reason: &str) -> bool {
    frame[3] == "system" && frame[4]["code"] == "gap" && frame[4]["reason"] == reason
}

pub fn is_row(frame: &Value, id: u64) -> bool {
    frame[3] == "postgres_changes" && frame[4]["data"]["record"]["id"] == id
}

/// The frames up to and with the row of this id, each as `gap:<reason>`, `row:<id>` or its event.
pub async fn story(client: &mut Client, last_id: u64) -> Vec<String> {
    let (last, mut frames) = client.until("the last row", |frame| is_row(frame, last_id)).await;
    frames.push(last);
    let tell = |frame: &Value| match frame[3].as_str() {
        Some("postgres_changes") => format!("row:{}", frame[4]["data"]["record"]["id"]),
        Some("system") => match frame[4]["code"].as_str() {
            Some("gap") => format!("gap:{}", frame[4]["reason"].as_str().unwrap()),
            Some(code) => code.to_owned(),
            None => frame[4]["message"].as_str().unwrap().to_owned(),
        },
        other => other.unwrap_or_default().to_owned(),
    };
    frames.iter().map(tell).collect()
}
