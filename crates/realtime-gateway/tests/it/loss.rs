//! Whatever is lost is announced: once, to whom it may concern, before what comes next; and what
//! has no verdict reaches nobody.

use serde_json::json;

use crate::harness::{World, is_gap, is_row, join, notes, story, subscribed, token};

#[tokio::test]
async fn a_missing_verdict_is_a_gap_for_every_binding_of_the_table_and_no_row() {
    for (flag, reason) in [
        ("hang", "deadline"),
        ("down", "authz_unavailable"),
        ("short", "authz_unavailable"),
        ("saturated", "pool_saturated"),
    ] {
        let world = World::with_limits(|limits| limits.gate_deadline_ms = 300).await;
        let (mut matched, _) = world.joined(&token("authenticated", "u1"), notes()).await;
        let filtered = json!([{ "event": "*", "schema": "public", "table": "notes", "filter": "room=eq.7" }]);
        let (mut unmatched, _) = world.joined(&token("authenticated", "u2"), filtered).await;
        let elsewhere = json!([{ "event": "*", "schema": "public", "table": "other" }]);
        let (mut other, _) = world.joined(&token("authenticated", "u3"), elsewhere).await;
        world
            .insert(json!({ "id": 1, "room": 1, flag: true, "title": "marker" }))
            .await;
        world.insert(json!({ "id": 2, "room": 7 })).await;
        world.insert_into("other", json!({ "id": 3 })).await;
        let gap = format!("gap:{reason}");
        assert_eq!(story(&mut matched, 2).await, [gap.as_str(), "row:2"], "{flag}");
        assert_eq!(story(&mut unmatched, 2).await, [gap.as_str(), "row:2"], "{flag}");
        assert_eq!(story(&mut other, 3).await, ["row:3"], "{flag}");
    }
}

#[tokio::test]
async fn a_hole_in_the_sequence_is_announced_once_before_the_next_event() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    let (mut service, _) = world.joined(&token("service_role", "-"), notes()).await;
    world.insert(json!({ "id": 1 })).await;
    world.skip(3);
    world.insert(json!({ "id": 2 })).await;
    world.insert(json!({ "id": 3 })).await;
    for client in [&mut client, &mut service] {
        assert_eq!(
            story(client, 3).await,
            ["row:1", "gap:feed_interrupted", "row:2", "row:3"]
        );
    }
}

#[tokio::test]
async fn a_lost_tail_is_announced_by_the_beat_alone() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    world.insert(json!({ "id": 1 })).await;
    world.skip(1);
    world.up().await;
    let (_, before) = client
        .until("the notice", |frame| is_gap(frame, "feed_interrupted"))
        .await;
    assert!(is_row(&before[0], 1));
    world.up().await;
    world.insert(json!({ "id": 2 })).await;
    assert_eq!(story(&mut client, 2).await, ["row:2"]);
}

#[tokio::test]
async fn a_new_owner_is_one_gap_and_the_old_one_is_not_heard() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    world.insert(json!({ "id": 1 })).await;
    world.new_epoch();
    world.gap("listener_reconnect").await;
    world.up().await;
    world.publish("notes", json!({ "id": 99 }), 1, 2).await;
    world.up_of(1, 50).await;
    world.insert(json!({ "id": 2 })).await;
    let story = story(&mut client, 2).await;
    let told: Vec<&str> = story.iter().map(String::as_str).collect();
    let of = |what: &str| told.iter().filter(|frame| **frame == what).count();
    assert_eq!(
        (
            of("row:99"),
            of("gap:listener_reconnect"),
            of("Subscribed to PostgreSQL")
        ),
        (0, 1, 1)
    );
    assert_eq!(
        told.iter().filter(|frame| frame.starts_with("gap")).count(),
        1,
        "{told:?}"
    );
    assert!(
        told.ends_with(&["gap:listener_reconnect", "row:2"]) || told.contains(&"Subscribed to PostgreSQL")
    );
}

#[tokio::test]
async fn down_and_up_is_one_gap_and_told_as_live_again() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    world.down().await;
    world.up().await;
    world.up().await;
    world.insert(json!({ "id": 1 })).await;
    let story = story(&mut client, 1).await;
    assert_eq!(
        story
            .iter()
            .filter(|frame| *frame == "gap:feed_interrupted")
            .count(),
        1,
        "{story:?}"
    );
    assert!(
        story
            .iter()
            .filter(|frame| *frame == "Subscribed to PostgreSQL")
            .count()
            >= 1,
        "{story:?}"
    );
}

#[tokio::test]
async fn a_full_gate_is_one_gap_behind_what_it_holds() {
    let world = World::with_limits(|limits| limits.gate_events_max = 4).await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    world.insert(json!({ "id": 1, "delay": 400 })).await;
    for id in 2..30 {
        world.insert(json!({ "id": id })).await;
    }
    client
        .until("the notice", |frame| is_gap(frame, "gate_backlog"))
        .await;
    world.insert(json!({ "id": 100 })).await;
    let rest = story(&mut client, 100).await;
    assert!(!rest.iter().any(|frame| frame.starts_with("gap")), "{rest:?}");
    assert!(
        world
            .metric("anvilbase_realtime_gateway_drops_total{reason=\"gate_backlog\"}")
            .unwrap()
            >= 1.0
    );
}

#[tokio::test]
async fn an_overflow_of_the_bus_is_one_gap() {
    let world = World::with_limits(|limits| limits.feed_messages_max = 4).await;
    let (mut client, _) = world.joined(&token("service_role", "-"), notes()).await;
    // Published in one go, without a chance to be read in between.
    let burst = async {
        for id in 1..=200 {
            world.insert(json!({ "id": id })).await;
        }
    };
    tokio::task::unconstrained(burst).await;
    let (_, before) = client
        .until("the notice", |frame| is_gap(frame, "bus_overflow"))
        .await;
    assert!(before.iter().all(|frame| frame[3] == "postgres_changes"));
    world.insert(json!({ "id": 1_000 })).await;
    let rest = story(&mut client, 1_000).await;
    assert!(
        !rest.iter().any(|frame| frame.starts_with("gap:feed")),
        "{rest:?}"
    );
}

#[tokio::test]
async fn what_was_judged_for_an_old_token_is_not_delivered() {
    let world = World::start().await;
    let mut client = world.client().await;
    join(&mut client, "room", &token("authenticated", "u1"), notes()).await;
    subscribed(&mut client).await;
    world
        .insert(json!({ "id": 1, "owner": "u1", "delay": 600 }))
        .await;
    realtime_testkit::wait::until("the question is asked", async || {
        (!world.authz.checks.lock().is_empty()).then_some(())
    })
    .await;
    let second = token("authenticated", "u2");
    client
        .send_json(&json!(["room", "2", "realtime:room", "access_token", { "access_token": second }]))
        .await;
    subscribed(&mut client).await;
    world.insert(json!({ "id": 2, "owner": "u2" })).await;
    assert_eq!(story(&mut client, 2).await, ["gap:token_changed", "row:2"]);
}

#[tokio::test]
async fn a_token_that_is_given_back_takes_its_rows_with_it() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    client
        .send_json(&json!(["room", "2", "realtime:room", "access_token", { "access_token": null }]))
        .await;
    let live = subscribed(&mut client).await;
    assert_eq!(live[4]["role"], "anon");
    world.insert(json!({ "id": 1, "owner": "u1" })).await;
    world.insert(json!({ "id": 2 })).await;
    assert_eq!(story(&mut client, 2).await, ["gap:token_changed", "row:2"]);
}

#[tokio::test]
async fn a_policys_error_is_told_to_its_own_subscriber_once() {
    let world = World::start().await;
    let (mut good, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    let (mut bad, _) = world.joined(&token("authenticated", "u2"), notes()).await;
    for id in 1..=2 {
        world.insert(json!({ "id": id, "policy": "u2" })).await;
    }
    world.insert(json!({ "id": 3 })).await;
    assert_eq!(story(&mut good, 3).await, ["row:1", "row:2", "row:3"]);
    let (_, before) = bad.until("the sentinel", |frame| is_row(frame, 3)).await;
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!(before[0][4]["code"], "policy_error");
    assert_eq!(before[0][4]["sqlstate"], "22P02");
    assert_eq!(before[0][4]["status"], "ok");
}

#[tokio::test]
async fn a_slow_reader_is_told_once_and_its_heartbeat_passes_the_backlog() {
    let world = World::with_limits(|limits| {
        limits.outbox_frames_max = 64;
        limits.outbox_bytes_max = 64 << 20;
    })
    .await;
    let (mut client, _) = world.joined(&token("service_role", "-"), notes()).await;
    let (mut reader, _) = world.joined(&token("service_role", "-"), notes()).await;
    // More than the kernel's buffers and the outbox hold together.
    let title = "x".repeat(100_000);
    for id in 1..=400 {
        world.insert(json!({ "id": id, "title": title })).await;
        reader
            .until("the other reads on", |frame| is_row(frame, id))
            .await;
    }
    client
        .send_json(&json!([null, "hb", "phoenix", "heartbeat", {}]))
        .await;
    let (_, backlog) = client
        .until("the heartbeat's reply", |frame| frame[1] == "hb")
        .await;
    let (_, before) = client
        .until("the notice", |frame| is_gap(frame, "slow_reader"))
        .await;
    assert!(
        !before.is_empty(),
        "the reply stood ahead of {} frames that waited",
        before.len()
    );
    let seen = backlog.len() + before.len();
    assert!(seen < 400, "{seen}");
    world.insert(json!({ "id": 1_000 })).await;
    assert_eq!(
        story(&mut client, 1_000)
            .await
            .iter()
            .filter(|frame| frame.starts_with("gap"))
            .count(),
        0
    );
    // In order and without a hole up to the notice.
    let ids = backlog
        .iter()
        .chain(&before)
        .map(|frame| frame[4]["data"]["record"]["id"].as_u64().unwrap());
    assert!(ids.eq(1..=seen as u64));
}
