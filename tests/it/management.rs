//! Tables as an operator manages them: the built command and the API, on the services as they are deployed.

use std::process::Stdio;

use realtime_testkit::process::{Output, run};
use realtime_testkit::tokens;
use realtime_testkit::ws::{Client, Frame};
use realtime_tests::stack::{JWT_SECRET, OPERATOR_TOKEN, Stack};
use serde_json::{Value, json};

const SCHEMA: &str = "
    create table orders (id bigint primary key);
    alter table orders enable row level security;
    create table reference (code text primary key, label text);
    create table \"Ümlaut / 2\" (id int primary key);
    create schema shop; create table shop.items (id int primary key);
    grant usage on schema shop to service_role; grant select on shop.items to service_role;
";

/// The command against the first gateway, with a key in the environment.
struct Command<'a> {
    url: String,
    key: &'a str,
}

impl Command<'_> {
    async fn run(&self, line: &str) -> Output {
        let args: Vec<&str> = line.split(' ').collect();
        self.args(&args).await
    }

    async fn args(&self, args: &[&str]) -> Output {
        let env = [
            ("ANVILBASE_REALTIME_URL", self.url.as_str()),
            ("ANVILBASE_REALTIME_KEY", self.key),
        ];
        run("anvilbase", args, &env).await
    }

    async fn json(&self, line: &str) -> Value {
        let output = self.run(line).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }
}

fn url(stack: &Stack) -> String {
    format!("http://127.0.0.1:{}", stack.gateways[0].port)
}

/// The named members of one table in a list.
fn table(list: &Value, name: &str, members: &[&str]) -> Vec<Value> {
    let tables = list["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["table"] == name).unwrap();
    members.iter().map(|member| table[*member].clone()).collect()
}

#[tokio::test]
async fn the_documented_command_lines_do_what_they_say() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute(SCHEMA).await.unwrap();
    let key = Stack::key("service_role");
    let cli = Command {
        url: url(&stack),
        key: &key,
    };

    // Word for word as the product's documentation has them.
    let set = cli
        .run("realtime set-table reference --project dev --rls-public true")
        .await;
    assert_eq!(set.code, Some(0), "{set:?}");
    assert!(
        set.stdout.starts_with("TABLE      CDC   RLS    RLS-PUBLIC"),
        "{set:?}"
    );
    let off = cli
        .run("realtime set-table orders --project dev --cdc false")
        .await;
    assert_eq!(off.code, Some(0), "{off:?}");
    let state = ["cdc_enabled", "rls_enabled", "realtime_public", "emitting"];
    let list = cli.json("realtime tables --project dev --json").await;
    assert_eq!(
        table(&list, "orders", &state),
        [json!(false), json!(true), json!(false), json!(false)]
    );
    assert_eq!(
        table(&list, "reference", &state),
        [json!(true), json!(false), json!(true), json!(true)]
    );
    let on = cli
        .run("realtime set-table orders --project dev --cdc true")
        .await;
    assert_eq!(on.code, Some(0), "{on:?}");
    let shown = cli.run("realtime tables --project dev").await;
    assert_eq!(shown.code, Some(0));
    assert!(
        shown.stdout.contains("orders      true  true"),
        "{}",
        shown.stdout
    );
    assert!(
        shown
            .stdout
            .contains("note: reference: The primary key has a text column"),
        "{}",
        shown.stdout
    );

    let kept = cli
        .json("realtime set-table reference --project dev --delete-events false --json")
        .await;
    assert_eq!(
        (&kept["delete_events"], &kept["notes"]),
        (&json!(false), &json!([]))
    );
    let named = cli
        .args(&[
            "realtime",
            "set-table",
            "Ümlaut / 2",
            "--project",
            "dev",
            "--rls-public",
            "true",
            "--json",
        ])
        .await;
    assert_eq!(named.code, Some(0), "{named:?}");
    let joined = cli
        .json("realtime set-table items --schema shop --project dev --emit-events true --json")
        .await;
    assert_eq!(joined["emitting"], true);
    assert_eq!(
        table(
            &cli.json("realtime tables --schema shop --project dev --json")
                .await,
            "items",
            &["emit_events"]
        ),
        [json!(true)]
    );

    // What it says of itself, an operator's token works too.
    let operator = Command {
        url: url(&stack),
        key: OPERATOR_TOKEN,
    };
    assert_eq!(
        operator.json("realtime tables --project dev --json").await["tables"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    stack.stop(&[&key]).await;
}

#[tokio::test]
async fn what_goes_wrong_is_said_with_what_to_do() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute(SCHEMA).await.unwrap();
    let (service, anon) = (Stack::key("service_role"), Stack::key("anon"));
    let cli = Command {
        url: url(&stack),
        key: &service,
    };
    let of = |key| Command {
        url: url(&stack),
        key,
    };
    let stranger = tokens::mint(
        "not-this-projects-secret-0123456789ab",
        &tokens::claims("service_role"),
    );
    for (output, code, said) in [
        (
            cli.run("realtime set-table missing --project dev --cdc false")
                .await,
            1,
            "There is no such table",
        ),
        (
            cli.run("realtime set-table pg_class --schema pg_catalog --project dev --cdc false")
                .await,
            1,
            "There is no such table",
        ),
        (
            cli.run("realtime tables --project other").await,
            1,
            "A service_role token of the project",
        ),
        (
            of(OPERATOR_TOKEN).run("realtime tables --project other").await,
            1,
            "There is nothing under this path",
        ),
        (
            of(&anon).run("realtime tables --project dev").await,
            1,
            "not service_role",
        ),
        (
            of(&stranger).run("realtime tables --project dev").await,
            1,
            "A service_role token of the project",
        ),
        (
            of("").run("realtime tables --project dev").await,
            1,
            "no key: name a file",
        ),
        (
            cli.run("realtime tables --project dev --key-file /nowhere").await,
            1,
            "--key-file /nowhere",
        ),
        (
            cli.run("realtime tables --project dev --url http://127.0.0.1:1")
                .await,
            1,
            "http://127.0.0.1:1",
        ),
        (
            cli.run("realtime tables --project dev --url http://gateway.example")
                .await,
            1,
            "--url: must be an https",
        ),
        (
            cli.run("realtime set-table orders --project dev").await,
            2,
            "--cdc",
        ),
        (
            cli.run("realtime set-table orders --project dev --cdc maybe")
                .await,
            2,
            "invalid value 'maybe'",
        ),
        (
            cli.run("realtime set-table --project dev --cdc true").await,
            2,
            "<TABLE>",
        ),
        (cli.run("realtime tables").await, 2, "--project"),
        (
            cli.run("realtime tables --project UPPER").await,
            2,
            "project id: must be",
        ),
    ] {
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.stderr.contains(said), "{said}: {output:?}");
        for secret in [&service, &anon, &stranger, OPERATOR_TOKEN] {
            assert!(!output.stderr.contains(secret) && !output.stdout.contains(secret));
        }
    }
    // A table that somebody holds is left as it is, and those who write to it do not wait for long.
    sql.batch_execute("begin; insert into orders values (1)")
        .await
        .unwrap();
    let busy = cli
        .run("realtime set-table orders --project dev --cdc false")
        .await;
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(
        busy.stderr.contains("try again") || busy.stderr.contains("look before"),
        "{busy:?}"
    );
    sql.batch_execute("commit").await.unwrap();
    stack.stop(&[&service, &anon, &stranger]).await;
}

#[tokio::test]
async fn names_of_others_move_no_terminal() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute("create table \"a\u{1b}]0;x\u{7}\u{202e}\nb\" (id int primary key)")
        .await
        .unwrap();
    let key = Stack::key("service_role");
    let cli = Command {
        url: url(&stack),
        key: &key,
    };
    for line in [
        "realtime tables --project dev",
        "realtime tables --project dev --json",
    ] {
        let output = cli.run(line).await;
        assert!(
            !output.stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{output:?}"
        );
        assert!(output.stdout.contains("\\u001b]0;x\\u0007"), "{output:?}");
    }
    let list = cli.json("realtime tables --project dev --json").await;
    assert_eq!(list["tables"][0]["table"], "a\u{1b}]0;x\u{7}\u{202e}\nb");
    stack.stop(&[&key]).await;
}

#[tokio::test]
async fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run("anvilbase", &["completions", shell], &[]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(
            output.stdout.contains("set-table") && output.stdout.contains("rls-public"),
            "{shell}"
        );
    }
    assert_eq!(
        run("anvilbase", &["completions", "none"], &[]).await.code,
        Some(2)
    );
}

#[tokio::test]
async fn the_api_is_as_its_document_says() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute(SCHEMA).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // So that it meets what is there, and not only what is not.
    let config = "parameters = { \"path.id\" = \"dev\", \"path.table\" = \"orders\" }\n";
    std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
    for key in [Stack::key("service_role"), OPERATOR_TOKEN.to_owned()] {
        let output = std::process::Command::new("st")
            .args([
                "run",
                "--checks",
                "all",
                "--max-examples",
                "60",
                "--seed",
                "20261201",
                "--workers",
                "1",
            ])
            .args([
                "--phases",
                "examples,coverage,fuzzing",
                "--continue-on-failure",
                "--request-timeout",
                "10",
            ])
            .args(["--header", &format!("Authorization: Bearer {key}")])
            .arg(format!("{}/api/v1/openapi.json", url(&stack)))
            .current_dir(folder.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("schemathesis is not installed: run `make setup`");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    stack.stop(&[]).await;
}

#[tokio::test]
async fn a_user_is_disconnected_on_every_gateway_by_the_command() {
    let stack = Stack::start(2).await;
    let key = Stack::key("service_role");
    let cli = Command {
        url: url(&stack),
        key: &key,
    };
    let user = |sub: &str, session: &str| {
        let exp = tokens::now() + 600;
        let claims = json!({ "role": "authenticated", "sub": sub, "session_id": session, "exp": exp });
        tokens::mint(JWT_SECRET, &claims)
    };
    let connect = async |gateway: usize, token: &str| {
        let port = stack.gateways[gateway].port;
        Client::connect(&format!(
            "ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={token}"
        ))
        .await
    };
    let mut laptops = [
        connect(0, &user("u1", "laptop")).await,
        connect(1, &user("u1", "laptop")).await,
    ];
    let mut phone = connect(1, &user("u1", "phone")).await;
    let mut other = connect(1, &user("u2", "laptop-2")).await;
    let gone = Frame::Closed(Some((4403, "disconnected by an operator".to_owned())));

    let told = cli
        .run("realtime disconnect --project dev --session-id laptop")
        .await;
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.starts_with("the gateways were told"), "{told:?}");
    for client in &mut laptops {
        assert_eq!(client.next().await, gone);
    }
    assert_eq!(
        cli.json("realtime disconnect --project dev --sub u1 --json")
            .await,
        json!({ "told": true })
    );
    assert_eq!(phone.next().await, gone);
    other
        .send_json(&json!([null, "1", "phoenix", "heartbeat", {}]))
        .await;
    assert_eq!(other.next_json().await[1], "1");

    for (line, code) in [
        ("realtime disconnect --project dev", 2),
        ("realtime disconnect --project dev --sub a --session-id b", 2),
        ("realtime disconnect --project other --sub a", 1),
    ] {
        let refused = cli.run(line).await;
        assert_eq!(refused.code, Some(code), "{refused:?}");
    }
    let anon = Stack::key("anon");
    let stranger = Command {
        url: url(&stack),
        key: &anon,
    };
    let refused = stranger.run("realtime disconnect --project dev --sub u2").await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    other
        .send_json(&json!([null, "2", "phoenix", "heartbeat", {}]))
        .await;
    assert_eq!(other.next_json().await[1], "2");
    stack.stop(&[&key, &anon]).await;
}
