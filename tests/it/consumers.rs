//! What internal services read on NATS: the worked consumers of `proto/examples`, and `anvilbase
//! realtime tail`, with the credentials that `deploy/nats/nats.conf` shows for a reader.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;
use realtime_node::bus::{Bus, Delivery, Subscription};
use realtime_node::tasks::Tasks;
use realtime_testkit::nats::{LISTENER_PASSWORD, READER_PASSWORD};
use realtime_testkit::process::binary;
use realtime_testkit::wait::within;
use realtime_tests::stack::Stack;
use realtime_tests::world::{Socket, binding};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A consumer as a process, and its lines.
struct Consumer {
    name: &'static str,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Consumer {
    fn start(name: &'static str, mut command: Command, stack: &Stack, password_file: &Path) -> Self {
        let mut child = command
            .env("NATS_URL", stack.nats.url())
            .env("NATS_USER", "dev-reader")
            .env("NATS_PASSWORD_FILE", password_file)
            .env("ANVILBASE_REALTIME_NATS_URL", stack.nats.url())
            .env("ANVILBASE_REALTIME_NATS_USER", "dev-reader")
            .env("ANVILBASE_REALTIME_NATS_PASSWORD_FILE", password_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            name,
            lines,
            _child: child,
        }
    }

    /// The lines up to one that fits, itself included.
    async fn until(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let mut seen = Vec::new();
        let reading = async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                seen.push(line.unwrap_or_else(|| panic!("{} ended before {what}", self.name)));
                if fits(&seen[seen.len() - 1]) {
                    break;
                }
            }
        };
        within(&format!("{}: {what}", self.name), reading).await;
        seen
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn consumers(stack: &Stack, password_file: &Path) -> [Consumer; 3] {
    let root = root();
    let mut python = Command::new(root.join(".venv/bin/python"));
    python.arg(root.join("proto/examples/consumer.py")).arg("dev");
    let mut javascript = Command::new("node");
    javascript
        .current_dir(root.join("tests/clients/js"))
        .arg(root.join("proto/examples/consumer.mjs"))
        .arg("dev");
    let mut tail = Command::new(binary("anvilbase"));
    tail.args(["realtime", "tail", "--project", "dev"]);
    [
        Consumer::start("consumer.py", python, stack, password_file),
        Consumer::start("consumer.mjs", javascript, stack, password_file),
        Consumer::start("tail", tail, stack, password_file),
    ]
}

#[tokio::test]
async fn readers_of_a_project_get_every_change_and_every_hole_and_nothing_else() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute("create table orders (id bigint primary key, amount numeric)")
        .await
        .unwrap();
    let _session = hold_the_feed(&stack).await;
    let password_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password_file.path(), READER_PASSWORD).unwrap();
    let mut consumers = consumers(&stack, password_file.path());
    for consumer in &mut consumers[..2] {
        consumer.until("FOLLOWING", |line| line == "FOLLOWING").await;
    }
    let tail = &mut consumers[2];
    write_until_heard(&sql, tail).await;

    sql.batch_execute(
        "insert into orders values (9007199254740993, 0.10);
         update orders set amount = 1e-20 where id = 9007199254740993;
         delete from orders where id = 9007199254740993;
         truncate orders;
         insert into orders values (1, 1)",
    )
    .await
    .unwrap();
    let row = |amount: &str| format!("{{\"id\":9007199254740993,\"amount\":{amount}}}");
    let (before, after) = (row("0.10"), row("0.00000000000000000001"));
    for consumer in &mut consumers[..2] {
        let seen = consumer
            .until("the last row", |line| line.contains("\"id\":1,"))
            .await;
        let expected = [
            format!("INSERT public orders {before} null"),
            format!("UPDATE public orders {after} {before}"),
            format!("DELETE public orders null {after}"),
            "TRUNCATE public orders".to_owned(),
            "INSERT public orders {\"id\":1,\"amount\":1} null".to_owned(),
        ];
        let seen: Vec<_> = seen.iter().filter(|line| !line.contains("\"id\":-")).collect();
        assert_eq!(seen, expected.iter().collect::<Vec<_>>(), "{}", consumer.name);
    }
    let seen = consumers[2]
        .until("the last row", |line| line.contains("\"id\":1,"))
        .await;
    let ends = [
        format!("INSERT public.orders new={before} old=null"),
        format!("UPDATE public.orders new={after} old={before}"),
        format!("DELETE public.orders new=null old={after}"),
        "-- truncated public.orders".to_owned(),
        "INSERT public.orders new={\"id\":1,\"amount\":1} old=null".to_owned(),
    ];
    let seen: Vec<_> = seen.iter().filter(|line| !line.contains("\"id\":-")).collect();
    assert_eq!(seen.len(), ends.len(), "{seen:?}");
    assert!(
        seen.iter().zip(&ends).all(|(line, end)| line.ends_with(end)),
        "{seen:?}"
    );

    forge(&stack).await;
    lose_the_session(&sql).await;
    sql.batch_execute("insert into orders values (2, 2)")
        .await
        .unwrap();
    for consumer in &mut consumers {
        let seen = consumer
            .until("the row after the hole", |line| line.contains("\"id\":2,"))
            .await;
        assert!(
            seen.iter().all(|line| !line.contains("forged")),
            "{}: {seen:?}",
            consumer.name
        );
        let told = |line: &String| {
            line.starts_with("HOLE") || line.starts_with("-- gap") || line.starts_with("-- down")
        };
        assert!(seen.iter().any(told), "{}: {seen:?}", consumer.name);
    }
}

/// A session of the project, so that its feed is held.
async fn hold_the_feed(stack: &Stack) -> Socket {
    let mut socket = Socket::at(stack.gateways[0].port, &Stack::key("service_role")).await;
    let all = [binding("*", "orders")];
    socket.join("realtime:orders", &all, None).await.unwrap();
    socket.subscribed("realtime:orders").await;
    socket
}

/// `tail` says on standard error that it follows: rows are written until it prints one.
async fn write_until_heard(sql: &tokio_postgres::Client, tail: &mut Consumer) {
    for n in 1..i64::MAX {
        sql.batch_execute(&format!("insert into orders values (-{n}, 0)"))
            .await
            .unwrap();
        let next = tokio::time::timeout(std::time::Duration::from_millis(100), tail.lines.next_line()).await;
        if next.is_ok() {
            return;
        }
    }
}

/// A reader can neither say a change nor hear of another project.
async fn forge(stack: &Stack) {
    let tasks = Tasks::new();
    let reader = stack
        .nats
        .bus_as(Some(("dev-reader", READER_PASSWORD)), 100, &tasks)
        .await;
    let listener = stack
        .nats
        .bus_as(Some(("listener", LISTENER_PASSWORD)), 100, &tasks)
        .await;
    let mut others = reader.subscribe("anvilbase.rt.other.>", 100).await.unwrap();
    let mut everything = reader.subscribe("anvilbase.rt.>", 100).await.unwrap();
    // The last subscription: once it hears, the server knows of all of them.
    let mut own = reader.subscribe("anvilbase.rt.dev.>", 100).await.unwrap();
    while !hears_sentinel(&listener, &mut own).await {}

    let forged = Bytes::from_static(b"forged");
    let subject = "anvilbase.rt.dev.cdc.public.orders";
    reader.publish(subject, forged).await.unwrap();
    let of_another = Bytes::from_static(b"of another project");
    listener
        .publish("anvilbase.rt.other.ctl", of_another)
        .await
        .unwrap();
    while !hears_sentinel(&listener, &mut own).await {}
    for subscription in [&mut others, &mut everything] {
        let heard = tokio::select! {
            biased;
            delivery = subscription.next() => delivery,
            () = std::future::ready(()) => None,
        };
        assert!(!matches!(heard, Some(Delivery::Message(_))), "{heard:?}");
    }
}

/// Publishes a status that says nothing, and whether it arrives within a moment; nothing forged may come before it.
async fn hears_sentinel(listener: &Bus, own: &mut Subscription) -> bool {
    listener
        .publish("anvilbase.rt.dev.ctl", Bytes::new())
        .await
        .unwrap();
    let hearing = async {
        loop {
            match own.next().await {
                Some(Delivery::Message(message)) if message.body.is_empty() => break,
                Some(Delivery::Message(message)) => assert_ne!(message.body, "forged"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_millis(200), hearing)
        .await
        .is_ok()
}

/// Ends the listener's session, and waits until a new one holds the feed.
async fn lose_the_session(sql: &tokio_postgres::Client) {
    let ended = sql
        .query(
            "select pid, pg_terminate_backend(pid) from pg_stat_activity where usename = 'anvilbase_realtime_listener'",
            &[],
        )
        .await
        .unwrap();
    let pids: Vec<i32> = ended.iter().map(|row| row.get(0)).collect();
    assert!(!pids.is_empty());
    realtime_testkit::wait::until("the listener is back", || async {
        let query =
            "select count(*) from pg_locks where locktype = 'advisory' and granted and pid <> all($1)";
        let held: i64 = sql.query_one(query, &[&pids]).await.unwrap().get(0);
        (held > 0).then_some(())
    })
    .await;
}
