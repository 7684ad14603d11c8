//! How a feed comes up, waits, and follows its tables.

use std::time::Duration;

use realtime_core::subject;
use realtime_testkit::wait::until;
use serde_json::{Value, json};

use crate::harness::{World, facts, is_row, join, notes, story, subscribed, token, try_join};

fn filtered(filter: &str) -> Value {
    json!([{ "event": "*", "schema": "public", "table": "notes", "filter": filter }])
}

#[tokio::test]
async fn a_change_right_after_subscribed_arrives() {
    for n in 0..50 {
        let world = World::start().await;
        let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
        world.insert(json!({ "id": n })).await;
        assert_eq!(story(&mut client, n).await, [format!("row:{n}")]);
    }
}

#[tokio::test]
async fn subscribed_is_not_said_before_the_feed_is_up() {
    let world = World::without_listener(|_| {}).await;
    let mut client = world.client().await;
    join(&mut client, "room", &token("authenticated", "u1"), notes()).await;
    let (hint, before) = client.until("the hint", |frame| frame[3] == "system").await;
    assert_eq!(
        (hint[4]["code"].as_str(), hint[4]["status"].as_str()),
        (Some("deferred"), Some("ok"))
    );
    assert!(before.is_empty());
    assert_eq!(
        world.metric("anvilbase_realtime_gateway_feeds_deferred"),
        Some(1.0)
    );
    // A channel that comes later is told too; then there is room.
    join(&mut client, "later", &token("authenticated", "u1"), notes()).await;
    let (hint, _) = client.until("the hint", |frame| frame[3] == "system").await;
    assert_eq!(
        (hint[2].as_str(), hint[4]["code"].as_str()),
        (Some("realtime:later"), Some("deferred"))
    );
    world.listen().await;
    let first = subscribed(&mut client).await;
    let second = subscribed(&mut client).await;
    assert_ne!(first[2], second[2]);
    assert_eq!(
        world.metric("anvilbase_realtime_gateway_feeds_deferred"),
        Some(0.0)
    );
}

#[tokio::test]
async fn a_join_that_waits_is_answered_when_live_or_in_time() {
    let world = World::without_listener(|_| {}).await;
    let mut client = world.client().await;
    let options = json!({ "wait": true, "timeout": 200 });
    let payload = json!({ "config": { "postgres_changes": notes(), "postgres_changes_options": options } });
    client
        .send_json(&json!(["1", "1", "realtime:room", "phx_join", payload]))
        .await;
    let (reply, _) = client.until("the reply", |frame| frame[3] == "phx_reply").await;
    let reason = reply[4]["response"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("PostgresChangesSubscribeTimeout: Timed out after 200ms"),
        "{reason}"
    );
    world.listen().await;
    let options = json!({ "wait": true });
    let payload = json!({ "config": { "postgres_changes": notes(), "postgres_changes_options": options } });
    client
        .send_json(&json!(["2", "2", "realtime:room", "phx_join", payload]))
        .await;
    let (reply, _) = client.until("the reply", |frame| frame[3] == "phx_reply").await;
    assert_eq!(reply[4]["status"], "ok");
    subscribed(&mut client).await;
}

#[tokio::test]
async fn one_feed_serves_all_sessions_and_is_let_go_after_the_last() {
    let world = World::with_limits(|limits| limits.feed_linger_seconds = 0).await;
    let mut interest = world
        .bus
        .subscribe(&subject::interest(&crate::harness::project().id), 16)
        .await
        .unwrap();
    let (first, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    let (second, _) = world.joined(&token("authenticated", "u2"), notes()).await;
    assert!(interest.next().await.is_some());
    assert_eq!(world.metric("anvilbase_realtime_gateway_feeds"), Some(1.0));
    assert_eq!(world.metric("anvilbase_realtime_gateway_channels"), Some(2.0));
    first.close().await;
    second.close().await;
    until("the feed is let go", async || {
        (world.metric("anvilbase_realtime_gateway_feeds") == Some(0.0)).then_some(())
    })
    .await;
    assert_eq!(world.gateway.feeds_page(), "{}");
    // And comes back for the next.
    let (mut third, _) = world.joined(&token("authenticated", "u3"), notes()).await;
    world.insert(json!({ "id": 1 })).await;
    third.until("the change", |frame| is_row(frame, 1)).await;
}

#[tokio::test]
async fn an_invalid_binding_is_named_with_its_rule() {
    let world = World::start().await;
    let mut client = world.client().await;
    let user = token("authenticated", "u1");
    for (bindings, reason) in [
        (
            filtered("room=eq.marker"),
            "RealtimeDisabledForConfiguration: binding 0: filter condition 1, column \"room\"",
        ),
        (
            filtered("secret=eq.1"),
            "RealtimeDisabledForConfiguration: binding 0: filter condition 1: invalid column",
        ),
        (
            filtered("room=like.1"),
            "RealtimeDisabledForConfiguration: binding 0: filter condition 1, column \"room\"",
        ),
        (
            json!([notes()[0], 3]),
            "RealtimeDisabledForConfiguration: binding 1: must be an object",
        ),
    ] {
        let reply = try_join(&mut client, "room", &user, bindings).await;
        let said = reply["response"]["reason"].as_str().unwrap();
        assert!(said.starts_with(reason), "{said}");
        assert!(!said.contains("marker"), "{said}");
    }
    *world.authz.describe_fails.lock() = true;
    let reply = try_join(
        &mut client,
        "room",
        &user,
        json!([{ "schema": "public", "table": "new" }]),
    )
    .await;
    assert!(
        reply["response"]["reason"]
            .as_str()
            .unwrap()
            .starts_with("UnableToConnectToProject: ")
    );
}

#[tokio::test]
async fn facts_are_asked_for_once_until_the_table_changes() {
    let world = World::start().await;
    // The feed's first status counts as a change: it is waited for.
    let (_first, _) = world.joined(&token("authenticated", "u"), notes()).await;
    let mut asked = 0;
    for n in 0..3 {
        let mut client = world.client().await;
        join(
            &mut client,
            &format!("c{n}"),
            &token("authenticated", &format!("u{n}")),
            notes(),
        )
        .await;
        if n == 0 {
            asked = world.authz.describes.lock().len();
        }
    }
    assert_eq!(world.authz.describes.lock().len(), asked);
}

/// As by a membership, which no event tells of, and by everything where there are no event triggers.
#[tokio::test]
async fn a_filter_follows_its_table_when_nobody_says_that_it_changed() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let is = |room_type: &str| {
        let facts = facts("public", "notes", room_type);
        world.authz.tables.lock().insert("notes".into(), facts);
    };
    is("text");
    let (mut client, _) = world.joined(&user, filtered("room=eq.07")).await;
    world.insert(json!({ "id": 1, "room": 7 })).await;
    world.insert(json!({ "id": 2, "room": "07" })).await;
    assert_eq!(story(&mut client, 2).await, ["row:2"]);
    // From here on 7 and 07 are equal, and the first of them to arrive says that this is known.
    is("int4");
    let rows = async {
        for id in 3_u64.. {
            world.insert(json!({ "id": id, "room": 7 })).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let arrives = client.until("a row of the table as it is", |frame| {
        frame[3] == "postgres_changes"
    });
    tokio::select! {
        () = rows => panic!("there are always more"),
        (frame, _) = arrives => assert_eq!(frame[4]["data"]["new"]["room"], 7),
    }
}

#[tokio::test]
async fn a_filter_follows_its_table() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let (mut client, _) = world.joined(&user, filtered("room=eq.7")).await;
    world.insert(json!({ "id": 1, "room": 7 })).await;
    assert_eq!(story(&mut client, 1).await, ["row:1"]);
    // The column becomes a text: the same filter is bound to it before the next event is matched.
    world
        .authz
        .tables
        .lock()
        .insert("notes".into(), facts("public", "notes", "text"));
    world.table_changed("notes").await;
    world.insert(json!({ "id": 2, "room": "7" })).await;
    world.insert(json!({ "id": 3, "room": "8" })).await;
    world.insert(json!({ "id": 4, "room": "7" })).await;
    assert_eq!(story(&mut client, 4).await, ["row:2", "row:4"]);
    let asked = world.authz.describes.lock().last().unwrap().facts.unwrap();
    assert_eq!((asked.epoch, asked.seq), (1, 2));
    assert_eq!(world.authz.checks.lock().last().unwrap().facts.unwrap().seq, 2);
    // It goes: nothing matches, and the subscriber is told once; then it is back.
    let mut without = facts("public", "notes", "int4");
    without.columns.remove(1);
    world.authz.tables.lock().insert("notes".into(), without);
    world.table_changed("notes").await;
    for id in 5..8 {
        world.insert(json!({ "id": id, "room": 7 })).await;
    }
    let (hint, _) = client
        .until("the hint", |frame| frame[4]["code"] == "filter_outdated")
        .await;
    assert_eq!(
        (&hint[4]["binding"], &hint[4]["status"]),
        (&json!(0), &json!("ok"))
    );
    world.authz.tables.lock().remove("notes");
    world.table_changed("notes").await;
    world.insert(json!({ "id": 8, "room": 7 })).await;
    assert_eq!(story(&mut client, 8).await, ["row:8"]);
}

#[tokio::test]
async fn without_facts_in_time_a_filter_matches_nothing_and_says_so() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let (mut client, _) = world.joined(&user, filtered("room=eq.7")).await;
    let (mut open, _) = world.joined(&user, notes()).await;
    *world.authz.describe_fails.lock() = true;
    world.table_changed("notes").await;
    world.insert(json!({ "id": 1, "room": 7 })).await;
    assert_eq!(story(&mut open, 1).await, ["row:1"]);
    let (_, before) = client
        .until("the notice", |frame| frame[4]["reason"] == "facts_unavailable")
        .await;
    assert!(before.is_empty());
    *world.authz.describe_fails.lock() = false;
    world.table_changed("notes").await;
    world.insert(json!({ "id": 2, "room": 7 })).await;
    assert_eq!(story(&mut client, 2).await, ["row:2"]);
}

#[tokio::test]
async fn a_table_that_comes_later_works_when_it_is_there() {
    use realtime_proto::v1::CannotEmit;
    let world = World::start().await;
    let mut absent = facts("public", "notes", "int4");
    absent.cannot_emit = CannotEmit::NoSuchTable.into();
    absent.columns.clear();
    world.authz.tables.lock().insert("notes".into(), absent);
    let mut client = world.client().await;
    join(
        &mut client,
        "room",
        &token("authenticated", "u1"),
        filtered("room=eq.7"),
    )
    .await;
    let (hint, _) = client
        .until("the hint", |frame| frame[4]["code"] == "no_such_table")
        .await;
    assert_eq!(hint[4]["binding"], 0);
    subscribed(&mut client).await;
    world.authz.tables.lock().remove("notes");
    world.table_changed("notes").await;
    world.insert(json!({ "id": 1, "room": 8 })).await;
    world.insert(json!({ "id": 2, "room": 7 })).await;
    assert_eq!(story(&mut client, 2).await, ["row:2"]);
}
