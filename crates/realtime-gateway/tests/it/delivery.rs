//! Changes reach whom they may, in order, and nobody else.

use realtime_testkit::ws::Client;
use serde_json::json;

use crate::harness::{World, is_row, join, notes, story, subscribed, token};

#[tokio::test]
async fn a_change_reaches_both_serializers() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let (mut v2, ids) = world.joined(&user, notes()).await;
    let mut v1 = Client::connect(&world.url("1.0.0")).await;
    let payload = json!({ "config": { "postgres_changes": notes() }, "access_token": user });
    v1.send_json(&json!({ "topic": "realtime:room", "event": "phx_join", "payload": payload, "ref": "1" }))
        .await;
    v1.until("live", |frame| {
        frame["payload"]["message"] == "Subscribed to PostgreSQL"
    })
    .await;
    world.insert(json!({ "id": 1, "title": "a" })).await;
    let (frame, _) = v2.until("the change", |frame| is_row(frame, 1)).await;
    assert_eq!(frame[0], json!(null));
    assert_eq!(frame[4]["ids"], json!(ids));
    assert_eq!(frame[4]["data"]["new"], json!({ "id": 1, "title": "a" }));
    let (old, _) = v1
        .until("the change", |frame| frame["event"] == "postgres_changes")
        .await;
    assert_eq!(old["payload"]["data"], frame[4]["data"]);
    assert_eq!(old.as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn equal_bindings_of_different_sockets_share_one_frame_and_one_question() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(world.joined(&user, notes()).await);
    }
    assert!(clients.iter().all(|(_, ids)| *ids == clients[0].1));
    world.insert(json!({ "id": 1 })).await;
    for (client, _) in &mut clients {
        client.until("the change", |frame| is_row(frame, 1)).await;
    }
    assert_eq!(
        world.metric("anvilbase_realtime_gateway_frames_encoded_total"),
        Some(1.0)
    );
    assert_eq!(
        world.metric("anvilbase_realtime_gateway_deliveries_total"),
        Some(5.0)
    );
    let checks = world.authz.checks.lock();
    assert_eq!((checks.len(), checks[0].subjects.len()), (1, 1));
}

#[tokio::test]
async fn order_is_kept_with_slow_verdicts() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    for (id, delay) in [(1, 400), (2, 0), (3, 150), (4, 0)] {
        world.insert(json!({ "id": id, "delay": delay })).await;
    }
    assert_eq!(story(&mut client, 4).await, ["row:1", "row:2", "row:3", "row:4"]);
}

#[tokio::test]
async fn service_role_does_not_wait_for_the_gate_and_asks_nothing() {
    let world = World::start().await;
    let (mut service, _) = world.joined(&token("service_role", "-"), notes()).await;
    world.insert(json!({ "id": 1, "hang": true })).await;
    assert_eq!(story(&mut service, 1).await, ["row:1"]);
    assert!(world.authz.checks.lock().is_empty());
}

#[tokio::test]
async fn each_subscriber_sees_its_own_verdict() {
    let world = World::start().await;
    let (mut u1, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    let (mut u2, _) = world.joined(&token("authenticated", "u2"), notes()).await;
    world
        .insert(json!({ "id": 1, "owner": "u1", "title": "for u1" }))
        .await;
    world
        .insert(json!({ "id": 2, "owner": "u2", "title": "for u2" }))
        .await;
    world
        .insert(json!({ "id": 3, "readable": ["id"], "title": "secret" }))
        .await;
    assert_eq!(story(&mut u1, 1).await, ["row:1"]);
    let (frame, between) = u1.until("the sentinel", |frame| is_row(frame, 3)).await;
    assert!(between.is_empty(), "{between:?}");
    assert_eq!(frame[4]["data"]["record"], json!({ "id": 3 }));
    assert_eq!(
        frame[4]["data"]["columns"],
        json!([{ "name": "id", "type": "unknown" }])
    );
    assert_eq!(story(&mut u2, 3).await, ["row:2", "row:3"]);
}

#[tokio::test]
async fn only_matching_bindings_are_named_and_one_frame_goes_to_a_channel() {
    let world = World::start().await;
    let bindings = json!([
        { "event": "*", "schema": "public", "table": "notes", "filter": "room=eq.1" },
        { "event": "UPDATE", "schema": "public", "table": "notes" },
        { "event": "INSERT", "schema": "public" },
        { "event": "INSERT", "schema": "public" },
    ]);
    let (mut client, ids) = world.joined(&token("authenticated", "u1"), bindings).await;
    assert_ne!(ids[2], ids[3]);
    world.insert(json!({ "id": 1, "room": 1 })).await;
    world.insert(json!({ "id": 2, "room": 2 })).await;
    let (first, _) = client.until("row 1", |frame| is_row(frame, 1)).await;
    assert_eq!(first[4]["ids"], json!([ids[0], ids[2], ids[3]]));
    let (second, between) = client.until("row 2", |frame| is_row(frame, 2)).await;
    assert_eq!(second[4]["ids"], json!([ids[2], ids[3]]));
    assert!(between.is_empty());
}

#[tokio::test]
async fn a_channel_that_left_gets_nothing_more_and_its_neighbour_does() {
    let world = World::start().await;
    let user = token("authenticated", "u1");
    let (mut client, _) = world.joined(&user, notes()).await;
    join(&mut client, "other", &user, notes()).await;
    subscribed(&mut client).await;
    client
        .send_json(&json!(["room", "9", "realtime:room", "phx_leave", {}]))
        .await;
    client.until("closed", |frame| frame[3] == "phx_close").await;
    world.insert(json!({ "id": 1 })).await;
    let (frame, between) = client.until("the change", |frame| is_row(frame, 1)).await;
    assert_eq!(frame[2], "realtime:other");
    // The other channel's change is the sentinel: of one event, frames go out in one go.
    world.insert(json!({ "id": 2 })).await;
    let (_, more) = client.until("the sentinel", |frame| is_row(frame, 2)).await;
    assert!(
        between
            .iter()
            .chain(&more)
            .all(|frame| frame[3] != "postgres_changes")
    );
}

#[tokio::test]
async fn hundreds_of_distinct_subjects_are_asked_about_in_batches() {
    let world = World::start().await;
    let mut client = world.client().await;
    // Channels of one socket under different identities.
    for n in 0..90 {
        join(
            &mut client,
            &format!("c{n}"),
            &token("authenticated", &format!("u{n}")),
            notes(),
        )
        .await;
    }
    let mut second = world.client().await;
    for n in 90..180 {
        join(
            &mut second,
            &format!("c{n}"),
            &token("authenticated", &format!("u{n}")),
            notes(),
        )
        .await;
    }
    let mut third = world.client().await;
    for n in 180..270 {
        join(
            &mut third,
            &format!("c{n}"),
            &token("authenticated", &format!("u{n}")),
            notes(),
        )
        .await;
    }
    third
        .until("the last is live", |frame| {
            frame[2] == "realtime:c269" && frame[4]["message"] == "Subscribed to PostgreSQL"
        })
        .await;
    world.insert(json!({ "id": 1, "owner": "u269" })).await;
    third
        .until("the change", |frame| {
            is_row(frame, 1) && frame[2] == "realtime:c269"
        })
        .await;
    let mut sizes: Vec<usize> = world
        .authz
        .checks
        .lock()
        .iter()
        .map(|check| check.subjects.len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [14, 256]);
}
