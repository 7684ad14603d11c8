//! A provisioned database, the events of its channel, authz over it, and PostgreSQL's own answers.

use anyhow::{Context as _, Result, ensure};
use realtime_authz::service::Service;
use realtime_authz::{AuthzServer, LimitArgs};
use realtime_core::change::ChangeEvent;
use realtime_core::claims::Role;
use realtime_core::envelope::{Message, decode};
use realtime_core::id::ProjectId;
use realtime_listener::provision::{PLATFORM_SQL, PROBER_ROLE, Password, ProvisionOptions, provision};
use realtime_node::catalog::{Catalog, DatabaseConfig, Listen, ProjectConfig};
use realtime_node::metrics::Metrics;
use realtime_node::postgres::{Dsn, PgOptions, connect};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::authz_service_server::AuthzService as _;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::wait::within;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::random::{Table, WORLD};

const DATABASE: &str = "oracle";

/// The payloads of the tokens that are judged for.
pub const SUBJECTS: [&str; 7] = [
    r#"{"role":"authenticated","sub":"00000000-0000-4000-8000-000000000001","email":"acme","app_metadata":{"org":"acme"}}"#,
    r#"{"role":"authenticated","sub":"00000000-0000-4000-8000-000000000002","app_metadata":{"org":"Ümläut"}}"#,
    r#"{"role":"authenticated","sub":"00000000-0000-4000-8000-000000000003","app_metadata":{"org":"3"}}"#,
    r#"{"role":"authenticated","sub":"user_2abc","app_metadata":{"org":"null"}}"#,
    r#"{"role":"authenticated"}"#,
    r#"{"role":"anon"}"#,
    r#"{"role":"anon","sub":"00000000-0000-4000-8000-000000000001"}"#,
];

/// What a subject is shown of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Visible,
    Hidden,
    /// An error of this SQLSTATE.
    Error(String),
}

/// What authz says.
#[derive(Debug)]
pub struct Verdict {
    pub new: Answer,
    pub old: bool,
}

pub struct World {
    admin: Client,
    events: mpsc::Receiver<String>,
    authz: Service,
    _pg: Postgres,
    _tasks: Tasks,
}

impl World {
    pub async fn start() -> Result<Self> {
        let pg = Postgres::start().await;
        pg.create_database(DATABASE).await;
        let (mut admin, mut connection) =
            connect(&pg.superuser_dsn(DATABASE), &PgOptions::new("oracle")).await?;
        let tasks = Tasks::new();
        let (sender, events) = mpsc::channel(10_000);
        tasks.spawn("tap", async move {
            while let Some(Ok(message)) = connection.next_message().await {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification.payload().to_owned()).await.is_err()
                {
                    return;
                }
            }
        });
        let options = ProvisionOptions {
            prober_password: Password::of("prober"),
            ..ProvisionOptions::default()
        };
        provision(&mut admin, options).await?;
        admin.batch_execute(PLATFORM_SQL).await?;
        admin.batch_execute(WORLD).await?;
        let channel = admin
            .query_one("select channel from anvilbase_realtime.settings", &[])
            .await?;
        admin
            .batch_execute(&format!("listen {}", channel.get::<_, &str>(0)))
            .await?;
        let project = ProjectConfig {
            id: ProjectId::parse("oracle")?,
            listen: Listen::Demand,
            roles: ["anon", "authenticated"].map(Role::new).to_vec(),
            database: Some(DatabaseConfig {
                listener_dsn: None,
                prober_dsn: Some(Dsn::parse(&pg.server.url(PROBER_ROLE, "prober", DATABASE))?),
                service_dsn: None,
            }),
            tokens: None,
        };
        // No judgement here is to hang on how fast the machine is.
        let limits = LimitArgs {
            authz_deadline_ms: 60_000,
            query_pool_acquire_ms: 60_000,
            ..LimitArgs::default()
        };
        let catalog = Catalog::from_projects(vec![project]);
        let authz = AuthzServer::new(catalog, &limits, &Metrics::new(), &tasks).service();
        Ok(Self {
            admin,
            events,
            authz,
            _pg: pg,
            _tasks: tasks,
        })
    }

    pub async fn run(&self, sql: &str) -> Result<()> {
        self.admin
            .batch_execute(sql)
            .await
            .with_context(|| sql.to_owned())
    }

    /// Runs a statement that changes one row, and gives its event.
    pub async fn change(&mut self, sql: &str) -> Result<ChangeEvent> {
        self.run(sql).await?;
        loop {
            let text = within("the event", self.events.recv())
                .await
                .context("the tap ended")?;
            match decode(&text)? {
                Message::Change(event) => {
                    ensure!(!event.is_reference(), "the row is too big for this oracle: {sql}");
                    return Ok(event);
                }
                // Facts changed: the tables are made as the oracle goes.
                _ => continue,
            }
        }
    }

    /// What each subject is shown of a row by PostgreSQL.
    pub async fn ask(&self, table: &Table, id: usize) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(SUBJECTS.len());
        for claims in SUBJECTS {
            self.run("begin").await?;
            let role = role_of(claims)?;
            self.admin
                .execute(
                    "select set_config('role', $1, true), set_config('request.jwt.claims', $2, true)",
                    &[&role, &claims],
                )
                .await?;
            let question = format!("select count(*) from {} where id = {id}", table.sql_name());
            let answer = match self.admin.query_one(&question, &[]).await {
                Ok(row) if row.get::<_, i64>(0) == 1 => Answer::Visible,
                Ok(_) => Answer::Hidden,
                Err(error) => Answer::Error(error.code().context("no SQLSTATE")?.code().to_owned()),
            };
            self.run("rollback").await?;
            answers.push(answer);
        }
        Ok(answers)
    }

    /// What authz says of an event, for each subject.
    pub async fn judge(&self, event: &ChangeEvent) -> Result<Vec<Verdict>> {
        let mut subjects = Vec::with_capacity(SUBJECTS.len());
        for claims in SUBJECTS {
            subjects.push(v1::Subject {
                role: role_of(claims)?,
                claims_json: claims.to_owned(),
            });
        }
        let request = v1::CheckRequest {
            project: "oracle".into(),
            event: Some(event.into()),
            subjects,
            facts: None,
        };
        let answer = self.authz.check(tonic::Request::new(request)).await?.into_inner();
        answer.verdicts.into_iter().map(read).collect()
    }
}

fn role_of(claims: &str) -> Result<String> {
    let claims: serde_json::Value = serde_json::from_str(claims)?;
    Ok(claims["role"].as_str().context("no role")?.to_owned())
}

fn read(verdict: v1::Verdict) -> Result<Verdict> {
    let new = match (verdict.decision(), verdict.reason()) {
        (v1::Decision::Deliver, _) => Answer::Visible,
        (v1::Decision::Drop, v1::Reason::NotVisible) => Answer::Hidden,
        (v1::Decision::Drop, v1::Reason::PolicyError) => Answer::Error(verdict.sqlstate),
        (_, reason) => anyhow::bail!("no verdict: {reason:?}"),
    };
    Ok(Verdict {
        new,
        old: verdict.old_visible,
    })
}
