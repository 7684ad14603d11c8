//! A change on its whole way, through the services as they are deployed, frame by frame.

use realtime_testkit::tokens;
use realtime_testkit::ws::Client;
use serde_json::{Value, json};

use realtime_tests::stack::{JWT_SECRET, Stack};

const U1: &str = "00000000-0000-4000-8000-000000000001";

const SCHEMA: &str = "
    create table notes (id bigint primary key, owner uuid, title text, amount numeric);
    alter table notes enable row level security;
    create policy own on notes for select to authenticated using (owner = auth.uid());
    create table log (a int);
    alter table log enable row level security;
    create policy everybody on log for select to authenticated using (true);
";

/// A socket of one user, joined to all changes of `public`, whose feed is live.
async fn live(stack: &Stack, token: &str) -> Client {
    let port = stack.gateways[0].port;
    let url = format!(
        "ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={}",
        Stack::key("anon")
    );
    let mut client = Client::connect(&url).await;
    join(&mut client, token).await;
    client
}

async fn join(client: &mut Client, token: &str) {
    let config = json!({ "postgres_changes": [{ "event": "*", "schema": "public" }] });
    let payload = json!({ "config": config, "access_token": token });
    client
        .send_json(&json!(["1", "1", "realtime:all", "phx_join", payload]))
        .await;
    client
        .until("Subscribed to PostgreSQL", |frame| {
            frame[3] == "system" && frame[4]["message"] == "Subscribed to PostgreSQL"
        })
        .await;
}

/// The changes up to the row of `notes` with this id, as `(table, operation, row)`.
async fn changes_until(client: &mut Client, id: u64) -> Vec<(String, String, Value)> {
    let is_last = |frame: &Value| {
        frame[3] == "postgres_changes"
            && frame[4]["data"]["table"] == "notes"
            && frame[4]["data"]["new"]["id"] == id
    };
    let (last, mut frames) = client.until("the sentinel", is_last).await;
    frames.push(last);
    assert!(
        frames.iter().all(|frame| frame[4]["code"] != "gap"),
        "an unexpected gap: {frames:?}"
    );
    let changes = frames.into_iter().filter(|frame| frame[3] == "postgres_changes");
    changes
        .map(|frame| {
            let data = &frame[4]["data"];
            let row = if data["type"] == "DELETE" {
                &data["old"]
            } else {
                &data["new"]
            };
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&data["table"]), text(&data["type"]), row.clone())
        })
        .collect()
}

#[tokio::test]
async fn what_commits_arrives_once_in_commit_order() {
    let stack = Stack::start(1).await;
    let one = stack.postgres.connect("postgres").await;
    let two = stack.postgres.connect("postgres").await;
    one.batch_execute(SCHEMA).await.unwrap();
    let token = tokens::mint(JWT_SECRET, &tokens::user(U1));
    let mut client = live(&stack, &token).await;

    one.batch_execute("begin; insert into log values (1), (1); insert into log values (1); commit")
        .await
        .unwrap();
    one.batch_execute(
        "begin; insert into log values (2); savepoint s; insert into log values (3); rollback to s;
         insert into log values (4); commit",
    )
    .await
    .unwrap();
    one.batch_execute("begin; insert into log values (5); rollback")
        .await
        .unwrap();
    // The first to write commits last.
    one.batch_execute("begin; insert into log values (6)")
        .await
        .unwrap();
    two.batch_execute("insert into log values (7)").await.unwrap();
    one.batch_execute("commit").await.unwrap();
    one.batch_execute(&format!("insert into notes values (1, '{U1}', 'sentinel')"))
        .await
        .unwrap();

    let seen = changes_until(&mut client, 1).await;
    let log: Vec<_> = seen
        .iter()
        .filter(|(table, ..)| table == "log")
        .map(|(_, _, row)| row["a"].clone())
        .collect();
    assert_eq!(log, [1, 1, 1, 2, 4, 7, 6].map(Value::from));
    client.close().await;
    stack.stop(&[&token, U1, "sentinel"]).await;
}

#[tokio::test]
async fn numbers_survive_byte_for_byte_and_rows_stay_with_their_owner() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute(SCHEMA).await.unwrap();
    let (token, other) = (
        tokens::mint(JWT_SECRET, &tokens::user(U1)),
        "00000000-0000-4000-8000-000000000002",
    );
    let mut client = live(&stack, &token).await;

    for (id, owner, amount) in [
        ("9223372036854775807", U1, "12345678901234567890.123456789"),
        ("5", other, "1"),
        ("9007199254740993", U1, "0.10"),
        ("-9223372036854775808", U1, "1e-30"),
    ] {
        let insert = format!("insert into notes values ({id}, '{owner}', 'n', {amount})");
        sql.batch_execute(&insert).await.unwrap();
        if owner == other {
            continue;
        }
        let select = format!("select row_to_json(n)::text from notes n where id = {id}");
        let expected: String = sql.query_one(&select, &[]).await.unwrap().get(0);
        let text = client.next_text().await;
        assert!(text.contains("\"postgres_changes\""), "{text}");
        assert!(
            text.contains(&format!("\"new\":{expected}")),
            "{expected} is not in {text}"
        );
        assert!(
            text.contains(&format!("\"record\":{expected}")),
            "{expected} is not in {text}"
        );
    }
    client.close().await;
    stack.stop(&[&token, "12345678901234567890"]).await;
}

#[tokio::test]
async fn a_policy_that_changes_counts_from_the_next_event() {
    let stack = Stack::start(1).await;
    let sql = stack.postgres.connect("postgres").await;
    sql.batch_execute(SCHEMA).await.unwrap();
    let token = tokens::mint(JWT_SECRET, &tokens::user(U1));
    let mut client = live(&stack, &token).await;
    for round in 0..10u64 {
        let n = round * 10;
        // Wide before, narrow after: what is written after the change is never judged by the rule before it.
        let narrow = match round % 3 {
            0 => "drop policy everybody on log",
            1 => "alter policy everybody on log using (false)",
            _ => "revoke select on log from authenticated",
        };
        sql.batch_execute(&format!("insert into log values ({n})"))
            .await
            .unwrap();
        assert_eq!(log_until(&sql, &mut client, n + 1).await, [n]);
        sql.batch_execute(narrow).await.unwrap();
        sql.batch_execute(&format!("insert into log values ({n} + 2)"))
            .await
            .unwrap();
        assert_eq!(log_until(&sql, &mut client, n + 3).await, [0u64; 0]);
        let wide = match round % 3 {
            0 => "create policy everybody on log for select to authenticated using (true)",
            1 => "alter policy everybody on log using (true)",
            _ => "grant select on log to authenticated",
        };
        sql.batch_execute(wide).await.unwrap();
        sql.batch_execute(&format!("insert into log values ({n} + 4)"))
            .await
            .unwrap();
        assert_eq!(log_until(&sql, &mut client, n + 5).await, [n + 4]);
    }
    client.close().await;
    stack.stop(&[&token]).await;
}

/// Writes a note with this id as a sentinel; gives what came of `log` before it.
async fn log_until(sql: &tokio_postgres::Client, client: &mut Client, id: u64) -> Vec<u64> {
    sql.batch_execute(&format!("insert into notes values ({id}, '{U1}', 'sentinel')"))
        .await
        .unwrap();
    let seen = changes_until(client, id).await;
    seen.iter()
        .filter(|(table, ..)| table == "log")
        .map(|(.., row)| row["a"].as_u64().unwrap())
        .collect()
}
