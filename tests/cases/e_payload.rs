//! What a frame says of a row is what PostgreSQL says of it, byte for byte.

use realtime_tests::world::{Socket, U1, Who, World, binding, filtered};
use serde_json::{Value, json};

/// A table whose rows belong to U1, and its feed as U1 gets it.
async fn watch(world: &World, create: &str) -> Socket {
    world.run(create).await;
    world
        .run(
            "alter table t enable row level security;
             create policy own on t for select to authenticated using (owner = auth.uid())",
        )
        .await;
    world.subscriber(&Who::u1(), &[binding("*", "t")]).await
}

/// How often `part` occurs.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// The rows as PostgreSQL itself prints them.
async fn printed(world: &World) -> Vec<String> {
    world
        .column("select row_to_json(t)::text from t order by id")
        .await
}

#[tokio::test]
async fn e01_numbers_keep_every_digit() {
    let world = World::start().await;
    let create =
        "create table t (id bigint primary key, owner uuid, n numeric, small smallint, meta jsonb, doc json)";
    let mut one = watch(&world, create).await;
    let numbers = [
        "0.10",
        "1e-30",
        "12345678901234567890.123456789",
        "-0.0",
        "1e131071",
        "99999999999999999999999",
    ];
    let ids = [
        "9223372036854775807",
        "9007199254740993",
        "-9223372036854775808",
        "0",
        "9007199254740992",
        "7",
    ];
    for (id, number) in ids.iter().zip(numbers) {
        world
            .run(&format!(
                "insert into t values ({id}, '{U1}', '{number}', 1,
                   '{{\"n\":12345678901234567890.123456789012345678,\"e\":[1e2,-0.0]}}', '{{\"n\": 1.000e+5, \"n\":2}}')"
            ))
            .await;
        let texts = world.texts(&mut one).await;
        let row = world
            .column(&format!("select row_to_json(t)::text from t where id = {id}"))
            .await;
        assert_eq!(texts.len(), 1, "{id}");
        if row[0].len() < 7_500 {
            assert_eq!(
                count(&texts[0], &format!("\"new\":{},", row[0])),
                1,
                "{}",
                texts[0]
            );
            assert_eq!(
                count(&texts[0], &format!("\"record\":{}", row[0])),
                1,
                "{}",
                texts[0]
            );
        }
        // The old row, the key of a deletion, and of a row that is too large.
        world
            .run(&format!("update t set small = 2 where id = {id}"))
            .await;
        let texts = world.texts(&mut one).await;
        if row[0].len() < 3_500 {
            assert_eq!(
                count(&texts[0], &format!("\"old_record\":{}", row[0])),
                1,
                "{}",
                texts[0]
            );
        } else {
            let key = format!("{{\"id\":{id}}}");
            assert_eq!(count(&texts[0], &key), 4, "{}", texts[0]);
        }
        world.run(&format!("delete from t where id = {id}")).await;
        let texts = world.texts(&mut one).await;
        assert_eq!(count(&texts[0], &format!("{{\"id\":{id}}}")), 2, "{}", texts[0]);
    }
    // Filters hold the same digits.
    let filters = [
        "id=eq.9007199254740993",
        "n=eq.0.1",
        "n=gt.12345678901234567890.123456788",
    ];
    let bindings = filters.map(|filter| filtered("INSERT", "t", filter));
    let mut filtering = world.subscriber(&Who::u1(), &bindings).await;
    world
        .run(&format!(
            "insert into t (id, owner, n) values (9007199254740992, '{U1}', 12345678901234567890.123456787),
               (9007199254740993, '{U1}', 0.100), (1, '{U1}', 12345678901234567890.123456789)"
        ))
        .await;
    let texts = world.texts(&mut filtering).await;
    let matched: Vec<usize> = texts
        .iter()
        .map(|text| {
            serde_json::from_str::<Value>(text).unwrap()[4]["ids"]
                .as_array()
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(matched, [2, 1]);
    world.stop().await;
}

#[tokio::test]
async fn e04_arrays_and_documents_are_json_and_nothing_says_otherwise() {
    let world = World::start().await;
    // Not every build of the server has libxml.
    let xml = if world.postgres.can("select '<a/>'::xml").await {
        "xml"
    } else {
        "text"
    };
    let create = format!(
        "create type pair as (a int, b text); create type mood as enum ('so so', 'down');
        create table t (id int primary key, owner uuid, tags text[], meta jsonb, doc json, span int4range, spans int4multirange,
          nested int[], pairs pair[], one pair, moods mood[], at interval, addr inet, bits bit(4), x {xml}, p point)"
    );
    let mut one = watch(&world, &create).await;
    let rows = [
        r#"'{"a,b",NULL,"c\"d"}', '{}', '[]', '[1,5)', '{[1,3),[5,7)}', '{{1,2},{3,NULL}}', '{"(1,\"x,y\")"}', '(2,)', '{"so so",down}', '1 day 02:03:04.5', '10.0.0.1/8', '1010', '<a>&amp;</a>', '(1,2.5)'"#,
        r#"'{}', '[]', '{}', 'empty', '{}', '{}', '{}', '(,)', '{}', '-1 mon', '::1', '0000', '', '(0,0)'"#,
        r#"NULL, '"s"', '"a\u00e9\ud83d\ude00"', '(,)', NULL, '[2:3]={7,8}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"#,
        r#"NULL, 'null', 'null', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"#,
        r#"NULL, '{"a":{"b":[1,{"c":null}]},"":" "}', ' {"z" : 1 , "a":[ ] } ', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"#,
    ];
    for (id, row) in rows.iter().enumerate() {
        world
            .run(&format!("insert into t values ({id}, '{U1}', {row})"))
            .await;
    }
    let texts = world.texts(&mut one).await;
    assert_eq!(texts.len(), rows.len());
    for (text, row) in texts.iter().zip(printed(&world).await) {
        assert_eq!(count(text, &row), 2, "{row} in {text}");
        let frame: Value = serde_json::from_str(text).unwrap();
        let columns = frame[4]["data"]["columns"].as_array().unwrap();
        assert_eq!(columns.len(), 16);
        assert!(
            columns.iter().all(|column| column["type"] == "unknown"),
            "{columns:?}"
        );
    }
    let first: Value = serde_json::from_str(&texts[0]).unwrap();
    let first = &first[4]["data"]["new"];
    assert_eq!(first["tags"], json!(["a,b", null, "c\"d"]));
    assert_eq!(first["pairs"], json!([{ "a": 1, "b": "x,y" }]));
    assert_eq!(first["span"], "[1,5)");
    // Of a row that is too large the key's real type is told, as there is nothing else to go by.
    world
        .run("update t set tags = array_fill('x'::text, array[3000]) where id = 0")
        .await;
    let change = world.changes(&mut one).await.remove(0);
    assert_eq!(change["columns"], json!([{ "name": "id", "type": "int4" }]));
    world.stop().await;
}

#[tokio::test]
async fn e05_times_and_settings_are_those_of_utc_whoever_writes() {
    let world = World::start().await;
    let create = "create table t (id int primary key, owner uuid, at timestamptz, local timestamp, day date, clock timetz,
        span interval, f float8, bytes bytea, cash money)";
    let mut one = watch(&world, create).await;
    let writer = world.postgres.connect("postgres").await;
    writer
        .batch_execute(
            "set timezone = 'America/New_York'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard';
             set bytea_output = 'escape'; set extra_float_digits = -10; set quote_all_identifiers = on",
        )
        .await
        .unwrap();
    let insert = format!(
        "insert into t values (1, '{U1}', '2026-07-01 12:00:00.123456-04', '2026-07-01 12:00:00', '2026-07-01', '12:00:00-04',
           '1 year 2 days 03:04:05', 0.1::float8 + 0.2::float8, '\\xdeadbeef', '1.50')"
    );
    writer.batch_execute(&insert).await.unwrap();
    let change = world.changes(&mut one).await.remove(0);
    let expected = [
        ("at", json!("2026-07-01T16:00:00.123456+00:00")),
        ("local", json!("2026-07-01T12:00:00")),
        ("day", json!("2026-07-01")),
        ("clock", json!("12:00:00-04")),
        ("span", json!("1 year 2 days 03:04:05")),
        ("bytes", json!("\\xdeadbeef")),
    ];
    for (column, value) in expected {
        assert_eq!(change["new"][column], value, "{column}");
    }
    assert_eq!(change["new"]["f"].to_string(), "0.30000000000000004");
    let committed = change["commit_timestamp"].as_str().unwrap();
    let digits: String = committed
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(digits, "0000-00-00T00:00:00.000Z", "{committed}");
    let near = format!("select (abs(extract(epoch from now() - '{committed}'::timestamptz)) < 60)::text");
    assert_eq!(world.column(&near).await, ["true"]);
    world.stop().await;
}

#[tokio::test]
async fn e07_a_large_value_that_was_not_changed_is_there_or_the_row_is_a_reference() {
    let world = World::start().await;
    let create = "create table t (id int primary key, owner uuid, room int, body text);
        alter table t alter column body set storage external";
    let mut one = watch(&world, create).await;
    // 6 kB in the row and not compressed: an update of it would be of two images, which is too much.
    world
        .run(&format!(
            "insert into t select 1, '{U1}', 1, string_agg(md5(n::text), '') from generate_series(1, 188) n;
             insert into t select 2, '{U1}', 1, string_agg(md5(n::text), '') from generate_series(1, 100) n"
        ))
        .await;
    let inserted = world.changes(&mut one).await;
    assert_eq!(inserted[0]["new"]["body"].as_str().unwrap().len(), 6_016);
    world.run("update t set room = 2").await;
    let seen = world.changes(&mut one).await;
    assert_eq!(seen[0]["new"], json!({ "id": 1 }));
    assert_eq!(seen[0]["errors"], json!(["payload_too_large"]));
    assert_eq!(
        (&seen[1]["new"]["room"], &seen[1]["errors"]),
        (&json!(2), &json!(null))
    );
    for image in ["new", "old"] {
        assert_eq!(seen[1][image]["body"], inserted[1]["new"]["body"], "{image}");
    }
    // Compressed in storage, and not on the wire.
    for body in [
        "string_agg(md5(n::text), '') from generate_series(1, 290) n",
        "repeat('x', 100000)",
    ] {
        world.run("delete from t").await;
        world.changes(&mut one).await;
        world
            .run(&format!(
                "insert into t select 3, '{U1}', 1, {body}; update t set room = 3"
            ))
            .await;
        let seen = world.changes(&mut one).await;
        assert_eq!(seen.len(), 2, "{body}");
        for change in seen {
            assert_eq!(change["new"], json!({ "id": 3 }), "{body}");
            assert_eq!(change["errors"], json!(["payload_too_large"]), "{body}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn e08_bytes_are_hex_and_large_ones_a_reference_that_can_be_fetched() {
    let world = World::start().await;
    let mut one = watch(
        &world,
        "create table t (id int primary key, owner uuid, file bytea)",
    )
    .await;
    world
        .run(&format!(
            "insert into t values (1, '{U1}', '\\xdeadbeef00ff0a0d225c'), (2, '{U1}', ''), (3, '{U1}', decode(repeat('ab', 5000), 'hex'))"
        ))
        .await;
    let seen = world.changes(&mut one).await;
    assert_eq!(seen[0]["new"]["file"], "\\xdeadbeef00ff0a0d225c");
    assert_eq!(seen[1]["new"]["file"], "\\x");
    assert_eq!(
        (&seen[2]["new"], &seen[2]["errors"]),
        (&json!({ "id": 3 }), &json!(["payload_too_large"]))
    );
    let fetched = format!(
        "select length(file)::text from t where id = {}",
        seen[2]["new"]["id"]
    );
    assert_eq!(world.rest(&Who::u1(), &fetched).await, ["5000"]);
    world.stop().await;
}

#[tokio::test]
async fn e09_what_the_database_makes_of_a_row_is_in_the_row() {
    let world = World::start().await;
    let create = "create table t (id int generated always as identity primary key, owner uuid, room int, title text,
          g int generated always as (room * 2) stored, at timestamptz default now(), code text default 'c' || 1, u uuid default gen_random_uuid());
        create function upper_title() returns trigger language plpgsql as
          $$ begin new.title := upper(new.title); return new; end $$;
        create trigger a before insert or update on t for each row execute function upper_title();
        -- The first of all user triggers by name that runs after a change sees its own later.
        create function later() returns trigger language plpgsql as
          $$ begin if new.room < 100 then update t set room = room + 100 where id = new.id; end if; return null; end $$;
        create trigger \"a later\" after insert on t for each row execute function later()";
    let mut one = watch(&world, create).await;
    world
        .run(&format!(
            "insert into t (owner, room, title) values ('{U1}', 3, 'abc')"
        ))
        .await;
    let texts = world.texts(&mut one).await;
    let frames: Vec<Value> = texts
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let events: Vec<(&Value, &Value, &Value)> = frames
        .iter()
        .map(|frame| &frame[4]["data"])
        .map(|data| (&data["type"], &data["new"]["g"], &data["new"]["title"]))
        .collect();
    let (insert, update, title) = (json!("INSERT"), json!("UPDATE"), json!("ABC"));
    assert_eq!(
        events,
        [(&insert, &json!(6), &title), (&update, &json!(206), &title)]
    );
    let row = printed(&world).await.remove(0);
    assert_eq!(count(&texts[1], &row), 2, "{row} in {}", texts[1]);
    world.stop().await;
}
