//! What one client may do to the others: nothing.

use std::time::Duration;

use realtime_node::catalog::{ProjectConfig, TokenConfig};
use realtime_node::secret::Secret;
use realtime_testkit::wait::within;
use realtime_testkit::ws::{Client, Frame};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{World, is_row, join, notes, project, subscribed, token};

/// Bindings on tables that nobody has asked for yet.
fn strangers(name: &str, tables: usize) -> Value {
    let binding = |n| json!({ "event": "*", "schema": "public", "table": format!("{name}{n}") });
    (0..tables).map(binding).collect()
}

/// A join whose answer is not waited for.
fn join_frame(room: &str, bindings: &Value) -> Value {
    let payload = json!({ "config": { "postgres_changes": bindings } });
    json!([room, room, format!("realtime:{room}"), "phx_join", payload])
}

#[tokio::test]
async fn a_connection_that_never_asks_is_closed() {
    let world = World::with_limits(|limits| limits.request_head_seconds_max = 1).await;
    for begun in ["", "GET /realtime/v1/websocket HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        within(
            &format!("the server closes after {begun:?}"),
            stream.read_to_end(&mut rest),
        )
        .await
        .unwrap();
    }
    // A socket, once it is one, is no longer bound by that.
    let (mut client, _) = world.joined(&token("anon", "-"), notes()).await;
    world.insert(json!({ "id": 1 })).await;
    client.until("a row", |frame| is_row(frame, 1)).await;
}

#[tokio::test]
async fn a_half_asked_connection_does_not_hold_up_the_end() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    world.client().await.close().await;
    let drained = within("the end", world.tasks.drain(Duration::from_secs(8))).await;
    assert!(drained);
}

#[tokio::test]
async fn joins_with_many_tables_keep_neither_verdicts_nor_other_joins_waiting() {
    const TABLES: usize = 60;
    let world = World::start().await;
    *world.authz.describe_takes.lock() = Duration::from_millis(20);
    let (mut seeing, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    let mut flooding = Vec::new();
    for n in 0..3 {
        let mut client = world.client().await;
        for room in ["a", "b", "c"] {
            client
                .send_json(&join_frame(room, &strangers(&format!("{room}{n}_"), TABLES)))
                .await;
        }
        flooding.push(client);
    }
    let mut other = world.client().await;
    join(&mut other, "room", &token("anon", "-"), strangers("other", 3)).await;
    world.insert(json!({ "id": 1 })).await;
    seeing.until("a row", |frame| is_row(frame, 1)).await;
    // Both came before even one of the many look-ups was through.
    let asked = world.authz.describes.lock().len();
    assert!(asked < TABLES, "{asked}");
    assert!(*world.authz.describing_most.lock() <= 2);
}

#[tokio::test]
async fn a_channel_that_was_left_is_not_looked_up_further() {
    const TABLES: usize = 60;
    let world = World::start().await;
    *world.authz.describe_takes.lock() = Duration::from_millis(20);
    let mut client = world.client().await;
    for n in 0..20 {
        let bindings = strangers(&format!("left{n}_"), TABLES);
        client.send_json(&join_frame("left", &bindings)).await;
    }
    client
        .send_json(&json!(["left", "9", "realtime:left", "phx_leave", {}]))
        .await;
    client
        .until("the leave's close", |frame| {
            frame[3] == "phx_close" && frame[0] == "left"
        })
        .await;
    client.send_json(&join_frame("stays", &notes())).await;
    subscribed(&mut client).await;
    let asked = world.authz.describes.lock().len();
    assert!(asked < TABLES, "{asked}");
}

#[tokio::test]
async fn sockets_do_not_outlive_the_secret_that_let_them_in() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("service_role", "-"), notes()).await;
    // Read again without a change: everything goes on.
    world.catalog.replace(vec![project()]);
    world.insert(json!({ "id": 1 })).await;
    client.until("a row", |frame| is_row(frame, 1)).await;

    world.catalog.replace(vec![ProjectConfig {
        tokens: Some(TokenConfig::by_secret(Secret::new(
            "another secret of thirty-two bytes",
        ))),
        ..project()
    }]);
    let closed = loop {
        if let Frame::Closed(closed) = client.next().await {
            break closed;
        }
    };
    assert_eq!(closed.map(|(code, _)| code), Some(4401));
}

#[tokio::test]
async fn sockets_do_not_outlive_the_roles_that_let_them_in() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("service_role", "-"), notes()).await;
    world.catalog.replace(vec![ProjectConfig {
        roles: project().roles[..2].to_vec(),
        ..project()
    }]);
    // The channel ends; the socket, whose own key is of another role, stays.
    let (error, _) = client
        .until("the error", |frame| frame[4]["status"] == "error")
        .await;
    assert_eq!(
        error[4]["message"],
        "The token's role is not allowed in this project"
    );
    client.until("the close", |frame| frame[3] == "phx_close").await;
    let refused = Client::try_connect(&world.url_as("2.0.0", &token("service_role", "-"))).await;
    assert_eq!(refused.err(), Some(403));
    world.insert(json!({ "id": 1 })).await;
    client
        .send_json(&json!([null, "5", "phoenix", "heartbeat", {}]))
        .await;
    let (_, before) = client.until("the heartbeat", |frame| frame[1] == "5").await;
    assert!(before.is_empty(), "{before:?}");
}

#[tokio::test]
async fn a_policys_error_tells_nothing_of_a_row_behind_a_filter() {
    let world = World::start().await;
    let filtered = json!([{ "event": "*", "schema": "public", "table": "notes", "filter": "room=eq.5" }]);
    let (mut client, _) = world.joined(&token("authenticated", "u2"), filtered).await;
    world.insert(json!({ "id": 1, "room": 5, "policy": "u2" })).await;
    world.insert(json!({ "id": 2, "room": 5 })).await;
    let (_, before) = client.until("the sentinel", |frame| is_row(frame, 2)).await;
    assert!(before.is_empty(), "{before:?}");
}
