//! How long after COMMIT a subscriber has the change: one socket under row-level security, through
//! the three binaries and a real NATS, beside a bare LISTEN client on the same PostgreSQL server.
//!
//! The peer does the least that any LISTEN/NOTIFY feed must do: a trigger of one `pg_notify` with the row
//! as JSON, and a client that takes the notification. It checks no policy, crosses no bus and no WebSocket. Passes of
//! the two alternate, each at a fixed rate from one writer with a connection of its own.
//!
//! One process and one monotonic clock take every instant: `sent`, just before COMMIT is handed to the driver,
//! with the INSERT already answered; `committed`, when COMMIT's answer is taken; `received`, when the
//! subscriber's task is handed the frame (the notification), before it is parsed.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use realtime_node::postgres::{PgOptions, connect};
use realtime_node::tasks::Tasks;
use realtime_testkit::tokens;
use realtime_testkit::ws::{Client, Frame};
use realtime_tests::stack::{JWT_SECRET, Stack};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::AsyncMessage;

use crate::report::{Report, Row, Samples};

const USER: &str = "00000000-0000-4000-8000-000000000001";

/// The peer's table is outside of `public`, where no trigger of ours is attached.
const SCHEMA: &str = "
    create table public.items (id bigint primary key, owner uuid not null, body text not null);
    alter table public.items enable row level security;
    create policy own on public.items for select to authenticated using (owner = auth.uid());
    create schema peer;
    create table peer.items (id bigint primary key, owner uuid not null, body text not null);
    create function peer.tell() returns trigger language plpgsql as
        $$ begin perform pg_notify('peer', row_to_json(new)::text); return null; end $$;
    create trigger tell after insert on peer.items for each row execute function peer.tell();
";

/// How long the last changes of a pass are waited for.
const TAIL_DEADLINE: Duration = Duration::from_secs(10);

/// Receipts that may wait to be counted.
const RECEIPTS_MAX: usize = 65_536;

/// What to measure.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    /// Commits per second, comma separated; one series each.
    #[arg(long, default_value = "100,500", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rates: Vec<u32>,
    /// Length of one pass, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Length of what goes before each pass and is not counted, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=60))]
    warm_up_seconds: u32,
    /// Passes of each system at each rate, alternating.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10))]
    passes: u32,
}

/// Which system a pass is about.
#[derive(Debug, Clone, Copy)]
enum System {
    Feed,
    Listen,
}

/// A change that a subscriber was handed.
type Receipt = (i64, Instant);

/// The two subscribers and the writer.
struct Bench {
    writer: tokio_postgres::Client,
    feed: mpsc::Receiver<Receipt>,
    listen: mpsc::Receiver<Receipt>,
    next_id: i64,
}

/// Runs the scenario on a deployment of its own.
pub async fn run(args: &LatencyArgs) -> anyhow::Result<Report> {
    // As a production server commits, unlike those of tests.
    let durable = [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("shared_buffers", "256MB"),
    ];
    let stack = Stack::start_with(1, "warn", &durable).await;
    let tasks = Tasks::new();
    let mut bench = Bench::start(&stack, &tasks).await?;
    let mut rows = Vec::new();
    for &rate in &args.rates {
        let mut both = [System::Feed, System::Listen].map(|system| (system, Samples::default()));
        for _ in 0..args.passes {
            for (system, samples) in &mut both {
                bench.pass(*system, rate, args.warm_up_seconds).await?;
                samples.add(bench.pass(*system, rate, args.seconds).await?);
            }
        }
        rows.extend(both.map(|(system, samples)| Row {
            system: system.name(),
            rate,
            samples,
        }));
    }
    let setting = setting(&bench.writer, args).await?;
    tasks.cancel();
    stack.stop(&[]).await;
    Ok(Report {
        what: "Latency from just before COMMIT is sent to the subscriber's receipt of the change: one subscriber, one writer, loopback",
        setting,
        rows,
    })
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Feed => "feed: 3 binaries, NATS, RLS owner = auth.uid(), WebSocket",
            Self::Listen => "peer: pg_notify trigger, bare LISTEN client, no RLS",
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Feed => "public.items",
            Self::Listen => "peer.items",
        }
    }
}

impl Bench {
    async fn start(stack: &Stack, tasks: &Tasks) -> anyhow::Result<Self> {
        let writer = stack.postgres.connect("postgres").await;
        writer.batch_execute(SCHEMA).await?;
        let mut bench = Self {
            writer,
            feed: follow(stack, tasks).await,
            listen: listen(stack, tasks).await?,
            next_id: 0,
        };
        // Both subscriptions are in force once each has had a change.
        for system in [System::Feed, System::Listen] {
            anyhow::ensure!(
                bench.pass(system, 10, 1).await?.missing == 0,
                "{system:?}: a first change did not arrive"
            );
        }
        Ok(bench)
    }

    /// Commits at a rate for a number of seconds, and waits until all of it was received.
    async fn pass(&mut self, system: System, rate: u32, seconds: u32) -> anyhow::Result<Samples> {
        let insert = format!(
            "insert into {} values ($1, '{USER}', repeat('x', 200))",
            system.table()
        );
        let insert = self.writer.prepare(&insert).await?;
        let mut due = interval(Duration::from_secs(1) / rate);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (started, mut sent, mut samples) = (Instant::now(), HashMap::new(), Samples::default());
        for _ in 0..rate * seconds {
            due.tick().await;
            self.next_id += 1;
            self.writer.batch_execute("begin").await?;
            self.writer.execute(&insert, &[&self.next_id]).await?;
            let before = Instant::now();
            self.writer.batch_execute("commit").await?;
            samples.committed.push(before.elapsed());
            sent.insert(self.next_id, before);
        }
        samples.spread = started.elapsed();
        let receipts = match system {
            System::Feed => &mut self.feed,
            System::Listen => &mut self.listen,
        };
        let until = Instant::now() + TAIL_DEADLINE;
        while !sent.is_empty() {
            let Ok(Some((id, received))) = tokio::time::timeout_at(until, receipts.recv()).await else {
                break;
            };
            if let Some(before) = sent.remove(&id) {
                samples.received.push(received.duration_since(before));
            }
        }
        samples.missing = sent.len();
        Ok(samples)
    }
}

/// A socket of one user on the feed's table, live; its receipts.
async fn follow(stack: &Stack, tasks: &Tasks) -> mpsc::Receiver<Receipt> {
    let url = format!(
        "ws://127.0.0.1:{}/realtime/v1/websocket?vsn=2.0.0&apikey={}",
        stack.gateways[0].port,
        Stack::key("anon")
    );
    let mut client = Client::connect(&url).await;
    let config = json!({ "postgres_changes": [{ "event": "*", "schema": "public", "table": "items" }] });
    let token = tokens::mint(JWT_SECRET, &tokens::user(USER));
    let join = json!(["1", "1", "realtime:items", "phx_join", { "config": config, "access_token": token }]);
    client.send_json(&join).await;
    client
        .until("the feed is live", |frame| {
            frame[4]["message"] == "Subscribed to PostgreSQL"
        })
        .await;
    let (receipts, taken) = mpsc::channel(RECEIPTS_MAX);
    let stop = tasks.cancelled();
    tasks.spawn("load subscriber", async move {
        tokio::pin!(stop);
        let mut beat = interval(Duration::from_secs(25));
        loop {
            let frame = tokio::select! {
                () = &mut stop => return,
                _ = beat.tick() => {
                    client.send_json(&json!([null, "beat", "phoenix", "heartbeat", {}])).await;
                    continue;
                }
                frame = client.next_unbounded() => frame,
            };
            let received = Instant::now();
            let Frame::Text(text) = frame else { return };
            let frame: Value = serde_json::from_str(&text).unwrap();
            // A gap notice means that something did not come, which the count of receipts shows.
            let Some(id) = frame[4]["data"]["record"]["id"].as_i64() else {
                continue;
            };
            if receipts.send((id, received)).await.is_err() {
                return;
            }
        }
    });
    taken
}

/// The bare LISTEN client; its receipts.
async fn listen(stack: &Stack, tasks: &Tasks) -> anyhow::Result<mpsc::Receiver<Receipt>> {
    let dsn = stack.postgres.superuser_dsn("postgres");
    let (client, mut connection) = connect(&dsn, &PgOptions::new("load peer")).await?;
    let (receipts, taken) = mpsc::channel(RECEIPTS_MAX);
    let stop = tasks.cancelled();
    tasks.spawn("load peer", async move {
        tokio::pin!(stop);
        loop {
            let message = tokio::select! {
                () = &mut stop => return,
                message = connection.next_message() => message,
            };
            let received = Instant::now();
            match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    let row: Value = serde_json::from_str(notification.payload()).unwrap();
                    let id = row["id"].as_i64().unwrap();
                    if receipts.send((id, received)).await.is_err() {
                        return;
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    client.batch_execute("listen peer").await?;
    // Kept for as long as the run: dropping the client would end the session.
    let stop = tasks.cancelled();
    tasks.spawn("load peer's client", async move {
        stop.await;
        drop(client);
    });
    Ok(taken)
}

async fn setting(writer: &tokio_postgres::Client, args: &LatencyArgs) -> anyhow::Result<Value> {
    let version: String = writer
        .query_one("select current_setting('server_version')", &[])
        .await?
        .get(0);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    Ok(json!({
        "cores": cores,
        "postgres": version,
        "build": if cfg!(debug_assertions) { "dev" } else { "release" },
        "seconds": args.seconds,
        "warm_up_seconds": args.warm_up_seconds,
        "passes": args.passes,
        "row_bytes": "about 270 as JSON",
    }))
}
