//! A provisioned database, the events of its channel, and authz over it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use realtime_authz::service::Service;
use realtime_authz::{AuthzServer, LimitArgs};
use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::Role;
use realtime_core::envelope::{Message, decode};
use realtime_core::id::ProjectId;
use realtime_node::catalog::{Catalog, DatabaseConfig, Listen, ProjectConfig};
use realtime_node::metrics::Metrics;
use realtime_node::postgres::{Dsn, PgOptions, connect};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::authz_service_server::AuthzService as _;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::wait::until;
use serde_json::{Value, json};
use tokio_postgres::{AsyncMessage, Client};
use tonic::{Request, Status};

pub const DATABASE: &str = "app";
pub const PROBER: &str = "anvilbase_realtime_prober";
pub const U1: &str = "00000000-0000-4000-8000-000000000001";
pub const U2: &str = "00000000-0000-4000-8000-000000000002";

/// In the order in which provisioning runs them.
pub const PROVISION: [&str; 10] = [
    include_str!("../../../realtime-listener/src/sql/roles.sql"),
    include_str!("../../../realtime-listener/src/sql/schema.sql"),
    include_str!("../../../realtime-listener/src/sql/emit.sql"),
    include_str!("../../../realtime-listener/src/sql/attach.sql"),
    include_str!("../../../realtime-listener/src/sql/judge.sql"),
    include_str!("../../../realtime-listener/src/sql/feed.sql"),
    include_str!("../../../realtime-listener/src/sql/auth.sql"),
    include_str!("../../../realtime-listener/src/sql/events.sql"),
    include_str!("../../../realtime-listener/src/sql/grants.sql"),
    "alter role anvilbase_realtime_prober password 'prober'",
];
const PLATFORM: &str = include_str!("../../../realtime-listener/src/sql/platform.sql");

pub struct Fixture {
    pub pg: Postgres,
    pub admin: Client,
    pub authz: Service,
    pub metrics: Metrics,
    pub tasks: Tasks,
    pub catalog: Catalog,
    seen: Arc<Mutex<VecDeque<String>>>,
}

/// A verdict as a test compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Delivered; old image visible; `None` = every column.
    Row { old: bool, columns: Option<Vec<String>> },
    /// Dropped, with an SQLSTATE where there is one.
    No(v1::Reason, String),
}

pub const WHOLE: Seen = Seen::Row {
    old: false,
    columns: None,
};
pub const WHOLE_OLD: Seen = Seen::Row {
    old: true,
    columns: None,
};
pub const HIDDEN: Seen = Seen::No(v1::Reason::NotVisible, String::new());

pub fn no(reason: v1::Reason) -> Seen {
    Seen::No(reason, String::new())
}

pub fn policy_error(sqlstate: &str) -> Seen {
    Seen::No(v1::Reason::PolicyError, sqlstate.to_owned())
}

pub fn user(sub: &str) -> v1::Subject {
    subject(json!({"role": "authenticated", "sub": sub}))
}

pub fn anon() -> v1::Subject {
    subject(json!({"role": "anon"}))
}

pub fn subject(claims: Value) -> v1::Subject {
    v1::Subject {
        role: claims["role"].as_str().unwrap().to_owned(),
        claims_json: claims.to_string(),
    }
}

/// Limits that no test should hit by the slowness of a machine.
pub fn limits() -> LimitArgs {
    LimitArgs {
        authz_deadline_ms: 20_000,
        query_pool_acquire_ms: 10_000,
        facts_age_seconds: 3600,
        ..LimitArgs::default()
    }
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(limits()).await
    }

    pub async fn start_with(limits: LimitArgs) -> Self {
        let pg = Postgres::start().await;
        pg.create_database(DATABASE).await;
        let (admin, mut connection) = connect(&pg.superuser_dsn(DATABASE), &PgOptions::new("authz tests"))
            .await
            .unwrap();
        let tasks = Tasks::new();
        let seen = Arc::new(Mutex::new(VecDeque::new()));
        let heard = Arc::clone(&seen);
        tasks.spawn("tap", async move {
            while let Some(Ok(message)) = connection.next_message().await {
                if let AsyncMessage::Notification(notification) = message {
                    heard.lock().push_back(notification.payload().to_owned());
                }
            }
        });
        provision(&admin).await;
        admin.batch_execute(PLATFORM).await.unwrap();
        let channel = admin
            .query_one("select channel from anvilbase_realtime.settings", &[])
            .await
            .unwrap();
        let channel: &str = channel.get(0);
        admin.batch_execute(&format!("listen {channel}")).await.unwrap();
        let catalog = Catalog::from_projects(vec![project(&pg, "app", PROBER, "prober")]);
        let metrics = Metrics::new();
        let authz = AuthzServer::new(catalog.clone(), &limits, &metrics, &tasks).service();
        Self {
            pg,
            admin,
            authz,
            metrics,
            tasks,
            catalog,
            seen,
        }
    }

    pub async fn provision_again(&self) {
        provision(&self.admin).await;
    }

    /// Takes a role's guard away so that it counts as one that never had any.
    pub async fn unguard(&self, role: &str, undo: &str) {
        self.run(&format!(
            "{undo}; delete from anvilbase_realtime.guarded where role_name = '{role}'"
        ))
        .await;
    }

    /// All that the server has logged so far.
    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.pg.server.data_dir().join("server.log")).unwrap()
    }

    pub async fn run(&self, sql: &str) {
        if let Err(error) = self.admin.batch_execute(sql).await {
            panic!("{sql}: {error:?}");
        }
    }

    /// A collation under which other texts than equal ones are equal; an ordinary one where the server is built without
    /// ICU, and then false.
    pub async fn create_folded_collation(&self) -> bool {
        let folded =
            "create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        let folds = self.admin.batch_execute(folded).await.is_ok();
        if !folds {
            self.run("create collation folded from \"C\"").await;
        }
        folds
    }

    /// Runs a statement that changes one row, and gives the event that it emitted.
    pub async fn change(&self, sql: &str) -> ChangeEvent {
        self.changes(sql, 1).await.remove(0)
    }

    /// Runs statements that change rows, and gives their first `count` events.
    pub async fn changes(&self, sql: &str, count: usize) -> Vec<ChangeEvent> {
        self.seen.lock().clear();
        self.run(sql).await;
        until(&format!("{count} events of {sql}"), || async {
            let found: Vec<ChangeEvent> = self
                .seen
                .lock()
                .iter()
                .filter_map(|text| match decode(text).unwrap() {
                    Message::Change(event) => Some(event),
                    _ => None,
                })
                .collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }

    pub async fn judge(&self, event: &ChangeEvent, subjects: &[v1::Subject]) -> Vec<Seen> {
        self.judge_after(event, subjects, Position::default()).await
    }

    /// One subject's verdict.
    pub async fn sees(&self, event: &ChangeEvent, subject: v1::Subject) -> Seen {
        self.judge(event, &[subject]).await.remove(0)
    }

    /// Changes a row and judges it for some.
    pub async fn seen(&self, sql: &str, subjects: &[v1::Subject]) -> Vec<Seen> {
        let event = self.change(sql).await;
        self.judge(&event, subjects).await
    }

    pub async fn judge_after(
        &self,
        event: &ChangeEvent,
        subjects: &[v1::Subject],
        seen: Position,
    ) -> Vec<Seen> {
        self.check(event, subjects, seen).await.unwrap()
    }

    pub async fn check(
        &self,
        event: &ChangeEvent,
        subjects: &[v1::Subject],
        seen: Position,
    ) -> Result<Vec<Seen>, Status> {
        let request = v1::CheckRequest {
            project: "app".to_owned(),
            event: Some(event.into()),
            subjects: subjects.to_vec(),
            facts: Some(seen.into()),
        };
        let verdicts = self
            .authz
            .check(Request::new(request))
            .await?
            .into_inner()
            .verdicts;
        assert_eq!(verdicts.len(), subjects.len());
        Ok(verdicts.into_iter().map(Seen::from).collect())
    }

    pub async fn describe(
        &self,
        schema: &str,
        table: &str,
        role: &str,
    ) -> Result<v1::DescribeTableResponse, Status> {
        self.describe_after(schema, table, role, Position::default())
            .await
    }

    pub async fn describe_after(
        &self,
        schema: &str,
        table: &str,
        role: &str,
        seen: Position,
    ) -> Result<v1::DescribeTableResponse, Status> {
        let request = v1::DescribeTableRequest {
            project: "app".to_owned(),
            schema: schema.to_owned(),
            table: table.to_owned(),
            role: role.to_owned(),
            facts: Some(seen.into()),
        };
        Ok(self
            .authz
            .describe_table(Request::new(request))
            .await?
            .into_inner())
    }

    /// authz's sessions with the database.
    pub async fn sessions(&self) -> i64 {
        let sql = "select count(*) from pg_stat_activity where usename = $1";
        self.admin.query_one(sql, &[&PROBER]).await.unwrap().get(0)
    }
}

async fn provision(admin: &Client) {
    admin
        .batch_execute("begin; set local search_path = pg_catalog, pg_temp")
        .await
        .unwrap();
    for sql in PROVISION {
        admin.batch_execute(sql).await.unwrap();
    }
    admin.batch_execute("commit").await.unwrap();
}

impl From<v1::Verdict> for Seen {
    fn from(verdict: v1::Verdict) -> Self {
        match verdict.decision() {
            v1::Decision::Deliver => Self::Row {
                old: verdict.old_visible,
                columns: (!verdict.all_columns).then_some(verdict.readable_columns),
            },
            _ => Self::No(verdict.reason(), verdict.sqlstate),
        }
    }
}

pub fn project(pg: &Postgres, id: &str, login: &str, password: &str) -> ProjectConfig {
    let dsn = Dsn::parse(&pg.server.url(login, password, DATABASE)).unwrap();
    ProjectConfig {
        id: ProjectId::parse(id).unwrap(),
        listen: Listen::Demand,
        roles: ["anon", "authenticated", "service_role", "ghost"]
            .map(Role::new)
            .to_vec(),
        database: Some(DatabaseConfig {
            listener_dsn: None,
            prober_dsn: Some(dsn),
            service_dsn: None,
        }),
        tokens: None,
    }
}
