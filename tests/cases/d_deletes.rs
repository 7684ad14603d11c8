//! Deletes, and what they may show: the key, and nothing to those from whom they are withheld.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding, filtered};
use serde_json::{Value, json};

/// A socket whose channel `realtime:test` has these bindings, and the hints that it was given with them.
async fn hinted(world: &World, who: &Who, bindings: &[Value]) -> (Socket, Vec<Value>) {
    let mut socket = world.socket(who).await;
    socket.join("realtime:test", bindings, None).await.unwrap();
    let before = socket.subscribed("realtime:test").await;
    let hints = before.into_iter().filter(|frame| frame[3] == "system");
    let hints = hints.map(|mut frame| frame[4].take()).collect();
    (socket, hints)
}

/// What arrived, each change as its operation, `new` and `old`, and each system frame as its code.
async fn story(world: &World, socket: &mut Socket) -> Vec<Value> {
    let frames = world.frames(socket).await;
    let tell = |frame: &Value| match frame[3].as_str() {
        Some("postgres_changes") => {
            let data = &frame[4]["data"];
            json!([data["type"], data["new"], data["old"]])
        }
        _ => frame[4]["code"].clone(),
    };
    frames.iter().map(tell).collect()
}

#[tokio::test]
async fn a04_a_delete_shows_the_key_or_nothing_where_deletes_are_withheld() {
    let world = World::start().await;
    world
        .run(
            "create table accounts (email text primary key, balance int); \
             alter table accounts enable row level security; \
             insert into accounts select n || '@x', n from generate_series(1, 9) n",
        )
        .await;
    let deletes = [binding("DELETE", "accounts")];
    let (mut anon, hints) = hinted(&world, &Who::anon(), &deletes).await;
    assert!(hints.is_empty(), "{hints:?}");
    let mut all = world.subscriber(&Who::u1(), &[binding("*", "accounts")]).await;
    let mut service = world.subscriber(&Who::service(), &deletes).await;

    world.run("delete from accounts where email = '1@x'").await;
    let key_only = json!(["DELETE", null, { "email": "1@x" }]);
    assert_eq!(story(&world, &mut anon).await, std::slice::from_ref(&key_only));
    assert_eq!(story(&world, &mut all).await, [key_only]);
    let whole = |n: i32| json!(["DELETE", null, { "email": format!("{n}@x"), "balance": n }]);
    assert_eq!(story(&world, &mut service).await, [whole(1)]);

    // For channels that are joined already, from the next event on.
    world
        .set_table("accounts", json!({ "delete_events": false }))
        .await;
    world.run("delete from accounts where email = '2@x'").await;
    assert_eq!(story(&world, &mut anon).await, [] as [Value; 0]);
    assert_eq!(story(&world, &mut all).await, [] as [Value; 0]);
    assert_eq!(story(&world, &mut service).await, [whole(2)]);
    // Who joins now is told, but for service_role.
    for (who, asked, told) in [
        (Who::anon(), "DELETE", 1),
        (Who::anon(), "*", 1),
        (Who::anon(), "UPDATE", 0),
        (Who::service(), "DELETE", 0),
    ] {
        let (_, hints) = hinted(&world, &who, &[binding(asked, "accounts")]).await;
        assert_eq!(hints.len(), told, "{asked}: {hints:?}");
        assert!(
            hints
                .iter()
                .all(|hint| hint["code"] == "deletes_withheld" && hint["binding"] == 0)
        );
    }

    world
        .set_table("accounts", json!({ "delete_events": true }))
        .await;
    world.run("delete from accounts where email = '3@x'").await;
    assert_eq!(
        story(&world, &mut anon).await,
        [json!(["DELETE", null, { "email": "3@x" }])]
    );
    world.stop().await;
}

#[tokio::test]
async fn d01_a_filter_that_no_delete_passes_is_told_of_at_the_join() {
    let world = World::start().await;
    world
        .run(&format!(
            "create table pairs (a int, b int, c int, d int, primary key (b, a)); \
             alter table pairs enable row level security; \
             create policy everybody on pairs for select to authenticated using (true); \
             revoke select on pairs from authenticated; grant select (a, c, d) on pairs to authenticated; \
             insert into notes (id, owner, room) values (1, '{U1}', 1), (2, '{U1}', 1)"
        ))
        .await;
    let (mut socket, hints) = hinted(&world, &Who::u1(), &[filtered("*", "notes", "room=eq.1")]).await;
    assert_eq!(hints.len(), 1, "{hints:?}");
    let hint = &hints[0];
    assert_eq!(
        (&hint["extension"], &hint["status"]),
        (&json!("postgres_changes"), &json!("ok"))
    );
    assert_eq!(
        (&hint["code"], &hint["binding"]),
        (&json!("delete_filter"), &json!(0))
    );
    assert_eq!(
        hint["message"],
        "No DELETE arrives under a filter on room: a deleted row shows its primary key only (id)"
    );
    world
        .run(&format!(
            "delete from notes where id = 1; insert into notes (id, owner, room) values (3, '{U1}', 1)"
        ))
        .await;
    let seen = world.changes(&mut socket).await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        (&seen[0]["type"], &seen[0]["new"]["id"]),
        (&json!("INSERT"), &json!(3))
    );

    // Each binding by its index; only columns that are not the key's, each once; no key column that the role
    // may not read.
    let bindings = [
        filtered("DELETE", "notes", "id=eq.2"),
        filtered("DELETE", "pairs", "c=gt.1,d=eq.2,c=lt.9,a=eq.1"),
        filtered("INSERT", "notes", "room=eq.1"),
    ];
    let (_, hints) = hinted(&world, &Who::u1(), &bindings).await;
    let told: Vec<_> = hints
        .iter()
        .map(|hint| (hint["binding"].as_u64(), hint["message"].as_str()))
        .collect();
    let pairs = "No DELETE arrives under a filter on c, d: a deleted row shows its primary key only (a)";
    assert_eq!(told, [(Some(1), Some(pairs))]);
    // service_role's filters see the whole row.
    let (mut service, hints) = hinted(
        &world,
        &Who::service(),
        &[filtered("DELETE", "notes", "room=eq.1")],
    )
    .await;
    assert!(hints.is_empty(), "{hints:?}");
    world.run("delete from notes where id = 2").await;
    assert_eq!(world.changes(&mut service).await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn d06_a_table_without_a_key_is_judged_by_its_rows() {
    let world = World::start().await;
    world
        .run(
            "create table log (a int, owner uuid, body text); alter table log enable row level security; \
             create policy own on log for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let all = [binding("*", "log")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    let row = |a: i32, owner: &str| json!({ "a": a, "owner": owner, "body": null });
    world
        .run(&format!("insert into log values (1, '{U1}'); insert into log values (2, '{U2}'); delete from log where a < 3"))
        .await;
    assert_eq!(
        story(&world, &mut one).await,
        [
            json!(["INSERT", row(1, U1), null]),
            json!(["DELETE", null, {}]),
            json!(["DELETE", null, {}])
        ]
    );
    let whole = story(&world, &mut service).await;
    assert_eq!(whole.len(), 4);
    assert_eq!(whole[3], json!(["DELETE", null, row(2, U2)]));

    let large = format!("insert into log values (3, '{U1}', repeat('x', 9000))");
    world.run(&large).await;
    assert_eq!(story(&world, &mut one).await, [] as [Value; 0]);
    let marked = world.changes(&mut service).await;
    assert_eq!(
        (&marked[0]["errors"], &marked[0]["new"]),
        (&json!(["payload_too_large"]), &json!({}))
    );

    // A key that comes and goes counts from the next event, for whoever is joined already.
    world
        .run("truncate log; alter table log add primary key (a)")
        .await;
    assert_eq!(story(&world, &mut one).await, [] as [Value; 0]);
    world.run(&format!("{large}; delete from log where a = 3")).await;
    assert_eq!(
        story(&world, &mut one).await,
        [json!(["DELETE", null, { "a": 3 }])],
        "the row is gone before it can be probed"
    );
    world.run(&large).await;
    assert_eq!(
        story(&world, &mut one).await,
        [json!(["INSERT", { "a": 3 }, null])]
    );
    world
        .run("alter table log drop constraint log_pkey, add primary key (owner, a); delete from log where a = 3")
        .await;
    assert_eq!(
        story(&world, &mut one).await,
        [json!(["DELETE", null, { "owner": U1, "a": 3 }])]
    );
    world
        .run(&format!(
            "alter table log drop constraint log_pkey; insert into log values (4, '{U1}'); delete from log"
        ))
        .await;
    assert_eq!(
        story(&world, &mut one).await,
        [json!(["INSERT", row(4, U1), null]), json!(["DELETE", null, {}])]
    );
    world.stop().await;
}

#[tokio::test]
async fn d08_a_truncation_is_told_to_service_role_in_its_place_and_to_nobody_else() {
    let world = World::start().await;
    world
        .run(
            "create table lines (id int primary key, note bigint references notes); \
             alter table lines enable row level security; \
             create policy everybody on lines for select to anon, authenticated using (true)",
        )
        .await;
    let bindings = [binding("INSERT", "notes"), binding("*", "lines")];
    let mut one = world.subscriber(&Who::u1(), &bindings).await;
    let mut service = world.subscriber(&Who::service(), &bindings).await;
    let mut elsewhere = world
        .subscriber(&Who::service(), &[binding("*", "sentinel")])
        .await;
    let insert = |id: i32| format!("insert into notes (id, owner) values ({id}, '{U1}')");
    world
        .run(&format!(
            "begin; {}; truncate notes restart identity cascade; {}; commit",
            insert(1),
            insert(2)
        ))
        .await;
    let frames = world.frames(&mut service).await;
    let told: Vec<Value> = frames
        .iter()
        .map(|frame| match frame[3].as_str() {
            Some("postgres_changes") => frame[4]["data"]["new"]["id"].clone(),
            _ => json!([frame[4]["code"], frame[4]["schema"], frame[4]["table"]]),
        })
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!((&told[0], &told[3]), (&json!(1), &json!(2)));
    for table in ["notes", "lines"] {
        assert!(
            told[1..3].contains(&json!(["truncated", "public", table])),
            "{told:?}"
        );
    }
    let marker = &frames[1][4];
    assert_eq!(
        (&marker["status"], &marker["extension"]),
        (&json!("ok"), &json!("postgres_changes"))
    );
    assert!(
        marker["message"].is_string() && marker["channel"] == "test",
        "{marker}"
    );
    // Nothing to whom rows may be hidden, and nothing to whom the table is no concern.
    let seen = world.frames(&mut one).await;
    let ids: Vec<&Value> = seen.iter().map(|frame| &frame[4]["data"]["new"]["id"]).collect();
    assert_eq!(ids, [1, 2]);
    assert!(
        world
            .frames(&mut elsewhere)
            .await
            .iter()
            .all(|frame| frame[3] != "system")
    );
    world.stop().await;
}
