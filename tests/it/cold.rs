//! "Subscribed to PostgreSQL" is never said too early: on a project that nobody held, a row that
//! is committed right after it arrives. The services run as tasks here, so that each round can
//! begin from nothing.

use std::time::Duration;

use realtime_authz::{AuthzServer, LimitArgs};
use realtime_core::claims::Role;
use realtime_core::id::ProjectId;
use realtime_gateway::authz::AuthzArgs;
use realtime_listener::provision::{
    LISTENER_ROLE, PLATFORM_SQL, PROBER_ROLE, Password, ProvisionOptions, provision,
};
use realtime_listener::{Listener, ListenerConfig};
use realtime_node::admin::Readiness;
use realtime_node::args::from_environment;
use realtime_node::bus::Bus;
use realtime_node::catalog::{Catalog, DatabaseConfig, Listen, ProjectConfig, TokenConfig};
use realtime_node::metrics::Metrics;
use realtime_node::postgres::Dsn;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use realtime_testkit::nats::Nats;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::tokens;
use realtime_testkit::ws::Client;
use serde_json::json;
use tokio::net::TcpListener;

use realtime_tests::stack::JWT_SECRET;

const ROUNDS: u64 = 200;

#[tokio::test]
async fn a_row_right_after_subscribed_arrives_200_times_from_cold() {
    let postgres = Postgres::start().await;
    let mut sql = postgres.connect("postgres").await;
    let options = ProvisionOptions {
        listener_password: Password::of("l"),
        prober_password: Password::of("p"),
        ..ProvisionOptions::default()
    };
    provision(&mut sql, options).await.unwrap();
    sql.batch_execute(PLATFORM_SQL).await.unwrap();
    sql.batch_execute(
        "create table cold (id bigint primary key);
         alter table cold enable row level security;
         create policy everybody on cold for select to authenticated using (true)",
    )
    .await
    .unwrap();
    let nats = Nats::start().await;
    for round in 0..ROUNDS {
        // Every other round on the bus within the process.
        let tasks = Tasks::new();
        let bus = if round % 2 == 0 {
            Bus::local()
        } else {
            nats.bus(&Tasks::new()).await
        };
        let port = start(&postgres, bus, &tasks).await;
        let mut client = subscribe(port).await;
        sql.execute("insert into cold values ($1)", &[&(round as i64)])
            .await
            .unwrap();
        let (change, before) = client
            .until("the row", |frame| frame[3] == "postgres_changes")
            .await;
        assert_eq!(change[4]["data"]["new"]["id"], round, "after {before:?}");
        client.close().await;
        assert!(
            tasks.drain(Duration::from_secs(10)).await,
            "round {round} left tasks"
        );
    }
}

/// Starts the three services; nobody holds the project yet.
async fn start(postgres: &Postgres, bus: Bus, tasks: &Tasks) -> u16 {
    let dsn = |role, password| Some(Dsn::parse(&postgres.server.url(role, password, "postgres")).unwrap());
    let database = DatabaseConfig {
        listener_dsn: dsn(LISTENER_ROLE, "l"),
        prober_dsn: dsn(PROBER_ROLE, "p"),
        service_dsn: None,
    };
    let metrics = Metrics::new();
    let databases = Catalog::from_projects(vec![project(Some(database), None)]);
    Listener::start(
        ListenerConfig::default(),
        bus.clone(),
        databases.clone(),
        &metrics,
        tasks,
    )
    .await
    .unwrap();
    let authz = AuthzServer::new(databases, &LimitArgs::default(), &metrics, tasks)
        .bind(([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let authz = AuthzArgs {
        authz_urls: vec![format!("http://{authz}")],
        authz_ca_file: None,
        authz_cert_file: None,
        authz_key_file: None,
    };
    let tokens = TokenConfig {
        jwt_secret: Secret::new(JWT_SECRET),
    };
    let edge = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = edge.local_addr().unwrap().port();
    let config = realtime_gateway::Config {
        catalog: Catalog::from_projects(vec![project(None, Some(tokens))]),
        bus,
        authz: authz.client().await.unwrap(),
        limits: from_environment().unwrap(),
        metrics,
        readiness: Readiness::default(),
        name: "test".to_owned(),
        drain: Duration::from_millis(100),
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

async fn subscribe(port: u16) -> Client {
    let token = tokens::mint(JWT_SECRET, &tokens::user("00000000-0000-4000-8000-000000000001"));
    let url = format!("ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={token}");
    let mut client = Client::connect(&url).await;
    let config = json!({ "postgres_changes": [{ "event": "*", "schema": "public", "table": "cold" }] });
    client
        .send_json(&json!(["1", "1", "realtime:cold", "phx_join", { "config": config }]))
        .await;
    client
        .until("Subscribed to PostgreSQL", |frame| {
            frame[4]["message"] == "Subscribed to PostgreSQL"
        })
        .await;
    client
}
