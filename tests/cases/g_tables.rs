//! Which tables emit, under which name, and what becomes of that while they change.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding};
use serde_json::{Value, json};

/// What arrived, each change as table, operation and id, and each system frame as its code.
async fn story(world: &World, socket: &mut Socket) -> Vec<Value> {
    let frames = world.frames(socket).await;
    let tell = |frame: &Value| match frame[3].as_str() {
        Some("postgres_changes") => {
            let data = &frame[4]["data"];
            let row = if data["type"] == "DELETE" {
                &data["old"]
            } else {
                &data["new"]
            };
            json!([data["table"], data["type"], row["id"]])
        }
        _ => frame[4]["code"].clone(),
    };
    frames.iter().map(tell).collect()
}

const NOTHING: [Value; 0] = [];

#[tokio::test]
async fn a06_a_table_without_row_security_is_service_roles_until_it_is_said_to_be_public() {
    let world = World::start().await;
    world
        .run("create table open_t (id int primary key, secret text)")
        .await;
    let all = [binding("*", "open_t")];
    let mut anon = world.subscriber(&Who::anon(), &all).await;
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    let change = |id: i32| format!("insert into open_t values ({id}, 's')");
    let inserted = |id: i32| vec![json!(["open_t", "INSERT", id])];
    for (id, settings, ddl, everybody) in [
        (1, None, None, false),
        (2, Some(json!({ "realtime_public": true })), None, true),
        (
            3,
            None,
            Some("alter table open_t enable row level security"),
            false,
        ),
        (
            4,
            None,
            Some("alter table open_t disable row level security"),
            true,
        ),
        (5, Some(json!({ "realtime_public": false })), None, false),
        (
            6,
            Some(json!({ "realtime_public": true, "cdc_enabled": true })),
            None,
            true,
        ),
    ] {
        if let Some(settings) = settings {
            world.set_table("open_t", settings).await;
        }
        if let Some(ddl) = ddl {
            world.run(ddl).await;
        }
        world.run(&change(id)).await;
        let theirs = if everybody { inserted(id) } else { Vec::new() };
        assert_eq!(story(&world, &mut anon).await, theirs, "{id}");
        assert_eq!(story(&world, &mut one).await, theirs, "{id}");
        assert_eq!(story(&world, &mut service).await, inserted(id), "{id}");
    }
    // Neither updates nor deletes come through where inserts do not.
    world
        .set_table("open_t", json!({ "realtime_public": false }))
        .await;
    world
        .run("update open_t set secret = 't' where id = 1; delete from open_t where id = 1")
        .await;
    assert_eq!(story(&world, &mut anon).await, NOTHING);
    assert_eq!(story(&world, &mut service).await.len(), 2);
    world.stop().await;
}

#[tokio::test]
async fn g01_a_partitioned_table_speaks_under_its_own_name_and_its_own_policies() {
    let world = World::start().await;
    world
        .run(
            "create table ev (id int, at date, owner uuid, primary key (id, at)) partition by range (at); \
             create table ev_25 partition of ev for values from ('2025-01-01') to ('2026-01-01'); \
             create table ev_26 partition of ev for values from ('2026-01-01') to ('2027-01-01'); \
             alter table ev enable row level security; \
             create policy own on ev for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let mut root = world.subscriber(&Who::u1(), &[binding("*", "ev")]).await;
    let mut leaf = world.subscriber(&Who::u1(), &[binding("*", "ev_25")]).await;
    let mut both = world
        .subscriber(&Who::service(), &[binding("*", "ev"), binding("*", "ev_25")])
        .await;
    let ev = |operation: &str, id: i32| json!(["ev", operation, id]);

    // Through the root and into a leaf, of one's own and of another's.
    world
        .run(&format!(
            "insert into ev values (1, '2025-05-05', '{U1}'), (2, '2025-05-05', '{U2}'); \
             insert into ev_25 values (3, '2025-06-06', '{U1}'); insert into ev_25 values (4, '2025-06-06', '{U2}')"
        ))
        .await;
    assert_eq!(story(&world, &mut root).await, [ev("INSERT", 1), ev("INSERT", 3)]);
    assert_eq!(
        story(&world, &mut leaf).await,
        NOTHING,
        "the leaf has no row security of its own"
    );
    let whole: Vec<Value> = (1..=4).map(|id| ev("INSERT", id)).collect();
    assert_eq!(story(&world, &mut both).await, whole);

    world.run("update ev set at = '2026-05-05' where id = 1").await;
    assert_eq!(story(&world, &mut root).await, [ev("DELETE", 1), ev("INSERT", 1)]);
    assert_eq!(story(&world, &mut leaf).await, NOTHING);

    // Rows come and go with a partition and no event tells of it: so it is a gap, and the next row comes.
    story(&world, &mut both).await;
    world
        .run(&format!(
            "alter table ev detach partition ev_25; insert into ev_25 values (5, '2025-07-07', '{U2}')"
        ))
        .await;
    assert_eq!(
        story(&world, &mut both).await,
        [json!("gap"), json!(["ev_25", "INSERT", 5])]
    );
    root.hint("gap").await;
    let alone = story(&world, &mut leaf).await;
    assert!(
        alone.iter().all(|told| *told == "gap"),
        "no row of a table without row security: {alone:?}"
    );
    world
        .run(&format!(
            "alter table ev attach partition ev_25 for values from ('2025-01-01') to ('2026-01-01'); \
             insert into ev values (6, '2025-08-08', '{U1}')"
        ))
        .await;
    assert_eq!(story(&world, &mut root).await, [json!("gap"), ev("INSERT", 6)]);
    let alone = story(&world, &mut leaf).await;
    assert!(alone.iter().all(|told| *told == "gap"), "{alone:?}");
    world.stop().await;
}

#[tokio::test]
async fn g07_what_is_no_table_is_named_at_the_join() {
    let world = World::start().await;
    world
        .run(
            "create view v as select 1 as id; create materialized view mv as select 1 as id; create sequence sq; \
             create foreign data wrapper none; create server nowhere foreign data wrapper none; \
             create foreign table ft (id int) server nowhere; \
             create table pt (id int primary key) partition by range (id); create type pair as (a int, b int)",
        )
        .await;
    let names = ["v", "mv", "ft", "sq", "pt_pkey", "pair"];
    let mut socket = world.socket(&Who::service()).await;
    let mut bindings: Vec<Value> = names.iter().map(|name| binding("*", name)).collect();
    bindings.push(binding("*", "notes"));
    socket.join("realtime:test", &bindings, None).await.unwrap();
    let hints = socket.subscribed("realtime:test").await;
    let told: Vec<(u64, &str)> = hints
        .iter()
        .map(|frame| {
            let payload = &frame[4];
            assert_eq!(
                (&payload["code"], &payload["status"]),
                (&json!("not_a_base_table"), &json!("ok"))
            );
            (
                payload["binding"].as_u64().unwrap(),
                payload["message"].as_str().unwrap(),
            )
        })
        .collect();
    let nouns = [
        "a view",
        "a materialized view",
        "a foreign table",
        "a sequence",
        "an index",
        "no table",
    ];
    assert_eq!(told.len(), nouns.len(), "{told:?}");
    for ((at, told), (expected, noun)) in told.iter().zip(nouns.iter().enumerate()) {
        assert_eq!(*at as usize, expected);
        assert!(told.starts_with(&format!("This is {noun}, ")), "{told}");
    }
    world
        .run(&format!(
            "insert into notes (id, owner) values (1, '{U1}'); select nextval('sq')"
        ))
        .await;
    assert_eq!(story(&world, &mut socket).await, [json!(["notes", "INSERT", 1])]);
    world.stop().await;
}

/// Every way to make a table of `public`, and the ways to leave it, as a subscriber to the schema meets them.
#[tokio::test]
async fn every_table_of_public_emits_from_its_creation() {
    let world = World::start().await;
    let schema = [json!({ "event": "INSERT", "schema": "public" })];
    let mut socket = world.subscriber(&Who::service(), &schema).await;
    world
        .run(
            "create schema other; create table other.moved (id int); create table t1 (id int); insert into t1 values (1); \
             create table t2 as select 0 as id; insert into t2 values (2); \
             select 0 as id into t3; insert into t3 values (3); \
             alter table other.moved set schema public; insert into moved values (4); \
             alter table t1 rename to t5; insert into t5 values (5); \
             create unlogged table t6 (id int); insert into t6 values (6); \
             create table t7 (id int) partition by list (id); create table t7_1 partition of t7 default; insert into t7 values (7); \
             create table t8 (like t6 including all); insert into t8 values (8); \
             create table t9 () inherits (t8); insert into t9 values (9); \
             create temp table tmp (id int); insert into tmp values (100); \
             create table other.t (id int); insert into other.t values (101); \
             alter table t5 set schema other; insert into other.t5 values (102)",
        )
        .await;
    let names = ["t1", "t2", "t3", "moved", "t5", "t6", "t7", "t8", "t9"];
    let expected: Vec<Value> = names
        .iter()
        .zip(1..)
        .map(|(name, id)| json!([name, "INSERT", id]))
        .collect();
    let mut seen = story(&world, &mut socket).await;
    seen.retain(|told| told[0] != "sentinel");
    assert_eq!(seen, expected);

    // An opt-out lasts, and ends with the table it was made for.
    world.set_table("t6", json!({ "cdc_enabled": false })).await;
    world
        .run("insert into t6 values (10); alter table t6 add column x int; insert into t6 values (11)")
        .await;
    world
        .run("alter table t6 rename to t6b; insert into t6b values (12); create table t6 (id int); insert into t6 values (13)")
        .await;
    world
        .run("drop table t6b; create table t6b (id int); insert into t6b values (14)")
        .await;
    let mut seen = story(&world, &mut socket).await;
    seen.retain(|told| told[0] != "sentinel");
    assert_eq!(seen, [json!(["t6", "INSERT", 13]), json!(["t6b", "INSERT", 14])]);
    world.stop().await;
}

#[tokio::test]
async fn columns_that_come_and_go_under_load_cost_no_row_in_silence() {
    const ROWS: i64 = 100;
    let world = World::start().await;
    world
        .run(
            "create table busy (id int primary key, owner uuid, a int); alter table busy enable row level security; \
             create policy own on busy for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let all = [binding("*", "busy")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    let writer = world.postgres.connect("postgres").await;
    let writing = async {
        for id in 1..=ROWS {
            let owner = if id % 2 == 0 { U1 } else { U2 };
            let insert = format!("insert into busy (id, owner) values ({id}, '{owner}')");
            writer.batch_execute(&insert).await.unwrap();
        }
    };
    let altering = async {
        for round in 0..5 {
            for ddl in [
                format!("alter table busy add column c{round} int default {round}"),
                format!("alter table busy rename column c{round} to d{round}"),
                format!("alter table busy alter column d{round} type text"),
                format!("alter table busy drop column d{round}"),
                "alter table busy drop constraint busy_pkey".to_owned(),
                "alter table busy add primary key (id, owner)".to_owned(),
                "alter table busy drop constraint busy_pkey, add primary key (id)".to_owned(),
            ] {
                world.run(&ddl).await;
            }
        }
    };
    tokio::join!(writing, altering);
    let seen = world.changes(&mut service).await;
    let ids: Vec<i64> = seen
        .iter()
        .map(|data| data["new"]["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, (1..=ROWS).collect::<Vec<_>>());
    // A row whose columns have other names by the time that it is judged may be withheld; that is told.
    let frames = world.frames(&mut one).await;
    let (changes, notices): (Vec<&Value>, Vec<&Value>) =
        frames.iter().partition(|frame| frame[3] == "postgres_changes");
    let seen: Vec<i64> = changes
        .iter()
        .map(|frame| frame[4]["data"]["new"]["id"].as_i64().unwrap())
        .collect();
    let own: Vec<i64> = (1..=ROWS).filter(|id| id % 2 == 0).collect();
    assert!(
        seen.is_sorted() && seen.iter().all(|id| own.contains(id)),
        "{seen:?}"
    );
    let told = notices.iter().any(|frame| frame[4]["code"] == "gap");
    assert!(seen == own || told, "missing in silence: {seen:?}");
    world.stop().await;
}
