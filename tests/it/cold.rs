//! "Subscribed to PostgreSQL" is never said too early: on a project that nobody held, a row that
//! is committed right after it arrives. The services run as tasks here, so that each round can
//! begin from nothing.

use std::time::Duration;

use realtime_node::args::from_environment;
use realtime_node::bus::Bus;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use realtime_testkit::nats::Nats;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::ws::Client;

use realtime_tests::world::{Socket, Who, binding, prepare, services};

/// From nothing.
const ROUNDS: u64 = 100;

/// Subscriptions in a round; the first one is the one that makes the project live.
const JOINS: u64 = 10;

#[tokio::test]
async fn i09_a_row_right_after_subscribed_arrives() {
    let postgres = Postgres::start().await;
    let mut sql = postgres.connect("postgres").await;
    prepare(&mut sql).await;
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
        // Nobody holds the project yet.
        let limits = from_environment().unwrap();
        let port = services(&postgres, bus, limits, &Metrics::new(), &tasks).await;
        for join in 0..JOINS {
            let id = (round * JOINS + join) as i64;
            let mut client = subscribe(port).await;
            sql.execute("insert into cold values ($1)", &[&id]).await.unwrap();
            let (change, before) = client
                .until("the row", |frame| frame[3] == "postgres_changes")
                .await;
            assert_eq!(change[4]["data"]["new"]["id"], id, "after {before:?}");
            client.close().await;
        }
        assert!(
            tasks.drain(Duration::from_secs(10)).await,
            "round {round} left tasks"
        );
    }
}

async fn subscribe(port: u16) -> Client {
    let mut socket = Socket::at(port, &Who::u1().token()).await;
    let all = [binding("*", "cold")];
    socket.join("realtime:cold", &all, None).await.unwrap();
    socket.subscribed("realtime:cold").await;
    socket.client
}
