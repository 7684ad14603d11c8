//! Rows that are too large for a notification, from the write to the socket: a reference by key, judged as a row is, and
//! never to somebody whose filter asks for what it does not hold.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding, filtered};
use serde_json::{Value, json};

const BIG: &str = "repeat('x', 9000)";

async fn world() -> World {
    let world = World::start().await;
    world
        .run(
            "create table docs (id uuid primary key, owner uuid, room int, body text);
             alter table docs enable row level security;
             create policy own on docs for select to authenticated using (owner = auth.uid() and room < 10)",
        )
        .await;
    world
}

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-00000000000{n}")
}

/// What a subscriber is shown of each change: its kind, both images, and whether it is a reference.
async fn shown(world: &World, socket: &mut Socket) -> Vec<Value> {
    let changes = world.changes(socket).await;
    let brief = changes.iter().map(|change| {
        if change["eventType"] != "DELETE" {
            assert_eq!(change["record"], change["new"]);
        }
        json!([
            change["eventType"],
            change["new"],
            change["old"],
            change["errors"]
        ])
    });
    brief.collect()
}

fn reference(event: &str, new: Value, old: Value) -> Value {
    json!([event, new, old, ["payload_too_large"]])
}

#[tokio::test]
async fn a_reference_is_shaped_as_documented_and_judged_by_its_key() {
    let world = world().await;
    let all = [binding("*", "docs")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut two = world.subscriber(&Who::u2(), &all).await;
    let mut anon = world.subscriber(&Who::anon(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    world
        .run(&format!(
            "insert into docs values ('{}', '{U1}', 1, {BIG})",
            id(1)
        ))
        .await;
    let seen = world.changes(&mut one).await;
    let change = &seen[0];
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (&change["schema"], &change["table"]),
        (&json!("public"), &json!("docs"))
    );
    assert_eq!(
        (&change["eventType"], &change["type"]),
        (&json!("INSERT"), &json!("INSERT"))
    );
    assert_eq!(
        (&change["new"], &change["old"]),
        (&json!({ "id": id(1) }), &Value::Null)
    );
    assert_eq!(change["columns"], json!([{ "name": "id", "type": "uuid" }]));
    assert_eq!(change["errors"], json!(["payload_too_large"]));
    assert!(change["commit_timestamp"].as_str().unwrap().ends_with('Z'));
    assert!(shown(&world, &mut two).await.is_empty());
    assert!(shown(&world, &mut anon).await.is_empty());
    assert_eq!(
        shown(&world, &mut service).await,
        [reference("INSERT", json!({ "id": id(1) }), Value::Null)]
    );

    // Another's row, a row out of the policy's reach, and one that comes into it.
    world
        .run(&format!(
            "insert into docs values ('{}', '{U2}', 1, {BIG}), ('{}', '{U1}', 11, {BIG})",
            id(2),
            id(3)
        ))
        .await;
    assert!(shown(&world, &mut one).await.is_empty());
    assert_eq!(shown(&world, &mut two).await.len(), 1);
    world
        .run(&format!("update docs set room = 2 where id = '{}'", id(3)))
        .await;
    let seen = world.changes(&mut one).await;
    assert_eq!((seen.len(), &seen[0]["new"]), (1, &json!({ "id": id(3) })));
    assert!(shown(&world, &mut two).await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_filter_on_what_a_reference_does_not_hold_gets_none_whatever_the_role() {
    let world = world().await;
    let key = id(1);
    let bindings = [
        filtered("*", "docs", "room=eq.1"),
        filtered("*", "docs", "room=neq.99"),
        filtered("INSERT", "docs", &format!("id=eq.{key},room=eq.1")),
        filtered("*", "docs", "body=neq.x"),
        filtered("*", "docs", "room=in.(1,2)"),
        filtered("*", "docs", &format!("id=eq.{}", id(2))),
    ];
    let reached = [
        filtered("INSERT", "docs", &format!("id=eq.{key}")),
        filtered("*", "docs", &format!("id=in.({key},{})", id(9))),
        binding("*", "docs"),
    ];
    for who in [Who::u1(), Who::service()] {
        let mut socket = world.socket(&who).await;
        for (topic, bindings) in [("realtime:none", &bindings[..]), ("realtime:some", &reached[..])] {
            socket.join(topic, bindings, None).await.unwrap();
            socket.subscribed(topic).await;
        }
        // What fits is matched as ever, so the filters are good ones.
        world
            .run(&format!("insert into docs values ('{key}', '{U1}', 1, 'y')"))
            .await;
        let ids = |frames: &[Value], topic: &str| -> Vec<usize> {
            let of_topic = frames
                .iter()
                .filter(|frame| frame[2] == topic && frame[3] == "postgres_changes");
            of_topic
                .map(|frame| frame[4]["ids"].as_array().unwrap().len())
                .collect()
        };
        let frames = world.frames(&mut socket).await;
        assert_eq!(
            (ids(&frames, "realtime:none"), ids(&frames, "realtime:some")),
            (vec![5], vec![3])
        );
        world.run("delete from docs").await;
        world.frames(&mut socket).await;
        world
            .run(&format!("insert into docs values ('{key}', '{U1}', 1, {BIG})"))
            .await;
        let frames = world.frames(&mut socket).await;
        assert_eq!(
            (ids(&frames, "realtime:none"), ids(&frames, "realtime:some")),
            (vec![], vec![3])
        );
        world.run("update docs set room = 2").await;
        let frames = world.frames(&mut socket).await;
        assert_eq!(
            (ids(&frames, "realtime:none"), ids(&frames, "realtime:some")),
            (vec![], vec![2])
        );
        // A delete's key is all that its filters may ask of it anyway.
        world.run("delete from docs").await;
        let frames = world.frames(&mut socket).await;
        assert_eq!(
            (ids(&frames, "realtime:none"), ids(&frames, "realtime:some")),
            (vec![], vec![2])
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn without_a_key_that_fits_only_service_role_hears_of_it() {
    let world = World::start().await;
    world
        .run(
            "create table keyless (owner uuid, body text); create table longkey (k text primary key, owner uuid, body text);
             alter table keyless enable row level security; alter table longkey enable row level security;
             create policy everybody on keyless for select to anon, authenticated using (true);
             create policy everybody on longkey for select to anon, authenticated using (true)",
        )
        .await;
    let all = [binding("*", "keyless"), binding("*", "longkey")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut anon = world.subscriber(&Who::anon(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    world
        .run(&format!(
            "insert into keyless values ('{U1}', {BIG}); insert into longkey values (repeat('k', 9000), '{U1}', 'b')"
        ))
        .await;
    let marker = reference("INSERT", json!({}), Value::Null);
    assert_eq!(shown(&world, &mut service).await, [marker.clone(), marker]);
    assert!(shown(&world, &mut one).await.is_empty());
    assert!(shown(&world, &mut anon).await.is_empty());
    world
        .run("update keyless set owner = null; update longkey set body = 'c'; delete from keyless; delete from longkey")
        .await;
    let update = reference("UPDATE", json!({}), json!({}));
    let delete = reference("DELETE", Value::Null, json!({}));
    assert_eq!(
        shown(&world, &mut service).await,
        [update.clone(), update, delete.clone(), delete]
    );
    for socket in [&mut one, &mut anon] {
        assert!(
            shown(&world, socket)
                .await
                .iter()
                .all(|change| change[0] == "DELETE" && change[2] == json!({})),
            "a delete may tell that it was, and nothing else"
        );
    }
    // Rows of theirs that fit are delivered.
    world
        .run(&format!("insert into keyless values ('{U1}', 'small')"))
        .await;
    assert_eq!(shown(&world, &mut one).await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn an_update_is_a_reference_at_half_the_size_and_its_delete_at_the_whole() {
    let world = world().await;
    let all = [binding("*", "docs")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    world
        .run(&format!(
            "insert into docs values ('{}', '{U1}', 1, repeat('y', 4000))",
            id(1)
        ))
        .await;
    assert_eq!(shown(&world, &mut one).await[0][3], Value::Null);
    shown(&world, &mut service).await;
    world.run("update docs set room = 2").await;
    let key = json!({ "id": id(1) });
    let seen = world.changes(&mut one).await;
    assert_eq!(
        (&seen[0]["new"], &seen[0]["errors"]),
        (&key, &json!(["payload_too_large"]))
    );
    assert_eq!(
        shown(&world, &mut service).await,
        [reference("UPDATE", key.clone(), key.clone())]
    );
    // One image alone fits.
    world.run("delete from docs").await;
    assert_eq!(
        shown(&world, &mut one).await,
        [json!(["DELETE", null, key, null])]
    );
    assert_eq!(
        shown(&world, &mut service).await[0][2]["body"]
            .as_str()
            .unwrap()
            .len(),
        4000
    );

    world
        .run(&format!(
            "insert into docs values ('{}', '{U1}', 1, {BIG})",
            id(1)
        ))
        .await;
    world.changes(&mut one).await;
    world.changes(&mut service).await;
    world.run("delete from docs").await;
    for socket in [&mut one, &mut service] {
        assert_eq!(
            shown(&world, socket).await,
            [reference("DELETE", Value::Null, key.clone())]
        );
    }
    world.stop().await;
}

/// A key of several columns and types, in the key's order; and who may read which of them.
#[tokio::test]
async fn a_reference_names_real_types_and_only_to_who_may_read_the_whole_key() {
    let world = World::start().await;
    world
        .run(
            "create type mood as enum ('sad', 'ok'); create domain code as varchar(5);
             create table open (b text, n numeric(9,2), m mood, c code, t timestamptz, pad text, primary key (t, n, m, c));
             select anvilbase_realtime.set_table('public', 'open', realtime_public => true);
             create table closed (id int primary key, title text, pad text); alter table closed enable row level security;
             create policy everybody on closed for select to authenticated using (true);
             revoke select on closed from authenticated; grant select (title) on closed to authenticated",
        )
        .await;
    let all = [binding("*", "open"), binding("*", "closed")];
    let mut anon = world.subscriber(&Who::anon(), &all[..1]).await;
    let mut one = world.subscriber(&Who::u1(), &all).await;
    world
        .run(&format!(
            "insert into open values ('b', 1.50, 'ok', 'x', '2026-06-04 10:00:00+00', {BIG}); insert into closed values (1, 't', {BIG})"
        ))
        .await;
    let key = json!({ "t": "2026-06-04T10:00:00+00:00", "n": 1.50, "m": "ok", "c": "x" });
    let types = json!([
        { "name": "t", "type": "timestamptz" }, { "name": "n", "type": "numeric" },
        { "name": "m", "type": "mood" }, { "name": "c", "type": "code" }
    ]);
    for socket in [&mut anon, &mut one] {
        let seen = world.changes(socket).await;
        assert_eq!(seen.len(), 1);
        assert_eq!((&seen[0]["new"], &seen[0]["columns"]), (&key, &types));
    }
    world.stop().await;
}
