//! `anvilbase dev`: one process, no configuration.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use realtime_testkit::postgres::Postgres;
use realtime_testkit::process::Process;
use realtime_testkit::ws::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running `anvilbase dev` and its one line of output.
struct Dev {
    process: Process,
    ready: Value,
}

impl Dev {
    async fn start(data_dir: &Path, database_url: Option<&str>) -> Self {
        let args = [
            "dev",
            "--port",
            "0",
            "--output",
            "json",
            "--data-dir",
            data_dir.to_str().unwrap(),
        ];
        let env: Vec<_> = database_url
            .map(|url| ("DATABASE_URL", url))
            .into_iter()
            .collect();
        let mut process = Process::start("anvilbase", &args, &env);
        let stdout = process.take_stdout();
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = realtime_testkit::wait::within("the line of output", read)
            .await
            .unwrap()
            .unwrap();
        assert!(!line.is_empty(), "no line of output; it said:\n{}", process.log());
        Self {
            process,
            ready: serde_json::from_str(&line).unwrap(),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// A client that follows everything with a key of this server.
    async fn follow(&self, key: &str) -> Client {
        let url = format!(
            "{}/realtime/v1/websocket?vsn=2.0.0&apikey={}",
            self.text("url").replace("http", "ws"),
            self.text(key)
        );
        let mut client = Client::connect(&url).await;
        let config = json!({ "postgres_changes": [{ "event": "*", "schema": "public" }] });
        client
            .send_json(&json!(["1", "1", "realtime:all", "phx_join", { "config": config }]))
            .await;
        client
            .until("the feed", |frame| {
                frame[4]["message"] == "Subscribed to PostgreSQL"
            })
            .await;
        client
    }

    async fn stop(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.wait().await, Some(0), "{}", self.process.log());
    }
}

#[tokio::test]
async fn a_named_database_is_served_and_its_keys_stay() {
    let postgres = Postgres::start().await;
    postgres.create_database("app").await;
    let sql = postgres.connect("app").await;
    sql.batch_execute("create table before (id int primary key)")
        .await
        .unwrap();
    let folder = TempDir::new().unwrap();
    let url = postgres.server.superuser_url("app");
    let mut keys = Vec::new();
    for start in 0..2 {
        let dev = Dev::start(folder.path(), Some(&url)).await;
        assert_eq!(
            dev.text("database_url"),
            "",
            "a named database's address is not repeated"
        );
        let mut client = dev.follow("service_key").await;
        sql.execute("insert into before values ($1)", &[&start])
            .await
            .unwrap();
        let (change, _) = client
            .until("the change", |frame| frame[3] == "postgres_changes")
            .await;
        assert_eq!(change[4]["data"]["new"], json!({ "id": start }));
        keys.push(dev.text("jwt_secret").to_owned());
        client.close().await;
        dev.stop().await;
    }
    assert_eq!(keys[0], keys[1]);
    let grants: i64 = sql
        .query_one(
            "select count(*) from information_schema.role_table_grants where grantee = 'anon'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(grants, 0, "a named database's privileges are its owner's to give");
}

#[tokio::test]
async fn logins_in_use_are_not_taken_unasked() {
    let postgres = Postgres::start().await;
    let url = postgres.server.superuser_url("postgres");
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let dev = Dev::start(first.path(), Some(&url)).await;
    let mut other = Process::start(
        "anvilbase",
        &[
            "dev",
            "--port",
            "0",
            "--data-dir",
            second.path().to_str().unwrap(),
        ],
        &[("DATABASE_URL", &url)],
    );
    assert_eq!(other.wait().await, Some(1));
    assert!(other.log().contains("--take-logins"), "{}", other.log());
    // The first still serves, from cold: its logins are as they were.
    dev.follow("service_key").await.close().await;
    dev.stop().await;
}

#[tokio::test]
async fn a_connection_string_that_does_not_parse_is_not_repeated() {
    let url = "postgresql://login:hunter2@host:notaport/app";
    for args in [&["dev"][..], &["realtime", "provision", "--project", "dev"][..]] {
        let mut command = Process::start("anvilbase", args, &[("DATABASE_URL", url)]);
        assert_eq!(command.wait().await, Some(1));
        let said = command.log();
        assert!(
            said.contains("DATABASE_URL") && !said.contains("hunter2"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_private_database_stays_until_it_is_reset() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let data_dir = folder.path().join("data");
    for tables in [0i64, 1] {
        let dev = Dev::start(&data_dir, None).await;
        let dsn = realtime_node::postgres::Dsn::parse(dev.text("database_url")).unwrap();
        let sql = realtime_testkit::postgres::connect_as(&dsn).await;
        let count = "select count(*) from pg_tables where schemaname = 'public'";
        assert_eq!(sql.query_one(count, &[]).await.unwrap().get::<_, i64>(0), tables);
        let mut client = dev.follow("user_key").await;
        sql.batch_execute(
            "create table if not exists kept (id serial primary key);
             alter table kept enable row level security;
             drop policy if exists everybody on kept;
             create policy everybody on kept for select to authenticated using (true)",
        )
        .await
        .unwrap();
        sql.batch_execute("insert into kept default values")
            .await
            .unwrap();
        client
            .until("the change", |frame| frame[3] == "postgres_changes")
            .await;
        client.close().await;
        drop(sql);
        dev.stop().await;
    }
    let mut reset = Process::start(
        "anvilbase",
        &[
            "dev",
            "--port",
            "0",
            "--reset",
            "--output",
            "json",
            "--data-dir",
            data_dir.to_str().unwrap(),
        ],
        &[],
    );
    let mut line = String::new();
    BufReader::new(reset.take_stdout()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let dsn = realtime_node::postgres::Dsn::parse(ready["database_url"].as_str().unwrap()).unwrap();
    let sql = realtime_testkit::postgres::connect_as(&dsn).await;
    let kept = sql
        .query_one("select to_regclass('public.kept')::text", &[])
        .await
        .unwrap();
    assert_eq!(kept.get::<_, Option<String>>(0), None);
    reset.signal("INT");
    assert_eq!(reset.wait().await, Some(0));
}
