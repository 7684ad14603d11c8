//! What PostgreSQL 18 has and 15 has not. On an older server these tests have nothing to ask; `make test-18` runs them.

use realtime_tests::world::{U1, Who, World, binding, filtered};
use serde_json::{Value, json};

async fn world() -> Option<World> {
    let world = World::start().await;
    if world.postgres.major() < 18 {
        world.stop().await;
        return None;
    }
    Some(world)
}

/// Its value is in no trigger's row: it is null in events, filters on it are refused, and a policy that reads it admits
/// nobody to them.
#[tokio::test]
async fn a_virtual_column_is_null_in_events_and_opens_nothing() {
    let Some(world) = world().await else { return };
    world
        .run(
            "create table v (id int primary key, owner uuid, a int, twice int generated always as (a * 2) virtual);
             alter table v enable row level security;
             create policy own on v for select to authenticated using (owner = auth.uid());
             create table w (like v including all); alter table w enable row level security;
             create policy low on w for select to authenticated using (twice < 10);
             create table nulls (like v including all); alter table nulls enable row level security;
             create policy empty on nulls for select to authenticated using (twice is null)",
        )
        .await;
    let all = [binding("*", "v"), binding("*", "w"), binding("*", "nulls")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut service = world.subscriber(&Who::service(), &all).await;
    for table in ["v", "w", "nulls"] {
        world
            .run(&format!(
                "insert into {table} (id, owner, a) values (1, '{U1}', 3)"
            ))
            .await;
    }
    let row = json!({ "id": 1, "owner": U1, "a": 3, "twice": null });
    let seen = world.changes(&mut one).await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((&seen[0]["table"], &seen[0]["new"]), (&json!("v"), &row));
    let seen = world.changes(&mut service).await;
    assert!(
        seen.len() == 3 && seen.iter().all(|change| change["new"] == row),
        "{seen:?}"
    );
    let reason = world
        .socket(&Who::u1())
        .await
        .refused(&[filtered("*", "v", "twice=eq.6")])
        .await;
    assert!(reason.contains("twice"), "{reason}");
    world.stop().await;
}

#[tokio::test]
async fn keys_over_time_and_ordered_uuids_are_keys() {
    let Some(world) = world().await else { return };
    world
        .run(
            "create extension btree_gist;
             create table stays (room int, during daterange, owner uuid, pad text, primary key (room, during without overlaps));
             create table made (id uuid primary key default uuidv7(), owner uuid, pad text);
             alter table stays enable row level security; alter table made enable row level security;
             create policy own on stays for select to authenticated using (owner = auth.uid());
             create policy own on made for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let all = [binding("*", "stays"), binding("*", "made")];
    let mut one = world.subscriber(&Who::u1(), &all).await;
    let mut two = world.subscriber(&Who::u2(), &all).await;
    world
        .run(&format!(
            "insert into stays values (1, '[2026-01-01,2026-02-01)', '{U1}', 'small'), (2, '[2026-01-01,)', '{U1}', repeat('x', 9000));
             insert into made (owner, pad) values ('{U1}', repeat('x', 9000)); delete from stays where room = 1"
        ))
        .await;
    let seen = world.changes(&mut one).await;
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(seen[1]["new"], json!({ "room": 2, "during": "[2026-01-01,)" }));
    assert_eq!(
        seen[1]["columns"],
        json!([{ "name": "room", "type": "int4" }, { "name": "during", "type": "daterange" }])
    );
    assert_eq!(seen[2]["errors"], json!(["payload_too_large"]));
    assert_eq!(
        seen[3]["old"],
        json!({ "room": 1, "during": "[2026-01-01,2026-02-01)" })
    );
    let others = world.changes(&mut two).await;
    assert!(
        others.iter().all(|change| change["eventType"] == "DELETE"),
        "{others:?}"
    );
    world.stop().await;
}

/// The builtin collations order by code point, which in UTF-8 is by bytes.
#[tokio::test]
async fn builtin_collations_order_as_filters_do() {
    let Some(world) = world().await else { return };
    world
        .run(
            "create table words (id int primary key, a text collate pg_c_utf8, b text collate pg_unicode_fast);
             alter table words enable row level security;
             create policy everybody on words for select to authenticated using (true)",
        )
        .await;
    let words = [
        "", "A", "Z", "a", "z", "É", "é", "ß", "ſ", "語", "\u{ffff}", "😀", "ꙮ", "a b", "a-b",
    ];
    for bound in ["a", "é", "語", "\u{ffff}", "😀"] {
        let bindings = ["a=gt.", "a=lte.", "b=gt.", "b=lte."]
            .map(|part| filtered("INSERT", "words", &format!("{part}{bound}")));
        let mut one = world.subscriber(&Who::u1(), &bindings).await;
        world.run("delete from words").await;
        let rows: Vec<_> = (0..)
            .zip(words)
            .map(|(id, word)| format!("({id}, '{word}', '{word}')"))
            .collect();
        world
            .run(&format!("insert into words values {}", rows.join(", ")))
            .await;
        let frames = world.frames(&mut one).await;
        // Of each row, all four filters' answers: two of them are yes, the same two for both collations.
        let matched: Vec<(i64, usize)> = frames
            .iter()
            .filter(|frame| frame[3] == "postgres_changes")
            .map(|frame| {
                let id = frame[4]["data"]["new"]["id"].as_i64().unwrap();
                (id, frame[4]["ids"].as_array().unwrap().len())
            })
            .collect();
        assert_eq!(matched.len(), words.len(), "{bound}");
        assert!(
            matched.iter().all(|(_, count)| *count == 2),
            "{bound}: {matched:?}"
        );
        let joined: Vec<_> = frames
            .iter()
            .filter(|frame| frame[3] == "postgres_changes")
            .map(|frame| frame[4]["ids"].clone())
            .collect();
        let greater = world
            .column(&format!(
                "select (a > '{bound}')::text || (b > '{bound}')::text from words order by id"
            ))
            .await;
        // The same answer of the server, the same bindings.
        for (left, left_ids) in greater.iter().zip(&joined) {
            assert!(["truetrue", "falsefalse"].contains(&left.as_str()), "{bound}");
            for (right, right_ids) in greater.iter().zip(&joined) {
                assert_eq!(left == right, left_ids == right_ids, "{bound}");
            }
        }
    }
    world.stop().await;
}

/// The catalog keeps NOT NULL as a constraint; RETURNING shows both rows: neither is anything to the feed.
#[tokio::test]
async fn named_not_null_constraints_and_returning_old_change_no_event() {
    let Some(world) = world().await else { return };
    world
        .run(
            "create table t (id int primary key, owner uuid constraint owned not null, n int);
             alter table t enable row level security;
             create policy own on t for select to authenticated using (owner = auth.uid());
             alter table t alter constraint owned inherit; alter table t add constraint n_there not null n not valid",
        )
        .await
        ;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "t")]).await;
    world
        .run(&format!(
            "insert into t values (1, '{U1}', 1) returning old.id, new.id; update t set n = 2 returning old.n, new.n;
             delete from t returning old.n, new.n"
        ))
        .await;
    let seen = world.changes(&mut one).await;
    let kinds: Vec<&Value> = seen.iter().map(|change| &change["eventType"]).collect();
    assert_eq!(kinds, ["INSERT", "UPDATE", "DELETE"]);
    assert_eq!(
        (&seen[1]["old"]["n"], &seen[1]["new"]["n"]),
        (&json!(1), &json!(2))
    );
    world.stop().await;
}
