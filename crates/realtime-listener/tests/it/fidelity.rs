//! What the envelope says is what PostgreSQL printed, whoever wrote and however the session was set.

use crate::support::Fixture;

const TABLE: &str = "create type public.mood as enum ('a', 'B \"q\"'); \
    create domain public.price as numeric(40, 9); \
    create type public.pair as (x int8, y text); \
    create table public.every (id int8 primary key, n numeric, p public.price, f4 float4, f8 float8, b bytea, \
      at timestamptz, ts timestamp, d date, iv interval, m money, r int4range, tr tstzrange, j json, jb jsonb, \
      tags text[], fa float8[], mood public.mood, pair public.pair, u uuid, t text, cl regclass, \
      g int8 generated always as (id / 2) stored)";

const ROWS: &[&str] = &[
    "9223372036854775807, 0.10, 12345678901234567890.123456789, 0.1, 0.1::float8 + 0.2, '\\xdeadbeef', \
     '2026-06-04 10:00:00.123456-04', '2026-06-04 10:00:00', '2026-06-04', '1 day -02:03:04', 1234.5, '[1,5)', \
     '[2026-01-01 00:00+00,2026-02-01 00:00+00)', '{\"n\":12345678901234567890.123456789012345678}', \
     '{\"n\":12345678901234567890.123456789012345678}', '{\"a,b\",NULL,\"c\\\"d\"}', '{0.30000000000000004,NaN}', \
     'B \"q\"', row(9007199254740993, 'é'), '00000000-0000-4000-8000-000000000001', E'q\"\\\\\\n\\t\\u0001😀', \
     'public.every', default",
    "9007199254740993, 1e-30, null, 'NaN', 'Infinity', null, 'infinity', '-infinity', null, null, null, 'empty', \
     null, 'null', '[]', '{}', '{Infinity,-Infinity}', null, null, null, '', null, default",
    "-9223372036854775808, 'NaN', 0, '-Infinity', '-Infinity', '\\x', '0044-03-15 00:00:00+00 BC', null, null, \
     '-1 year', -0.01, null, null, '\"\\ud83d\\ude00\"', '\"s\"', null, null, 'a', null, null, null, null, default",
];

/// Writers' settings that print values in another way.
const HOSTILE: &str = "set timezone = 'America/New_York'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; \
    set bytea_output = 'escape'; set extra_float_digits = -15; set quote_all_identifiers = on; \
    set search_path = pg_temp, public; set lc_monetary = 'C.UTF-8'";

/// As the feed pins them.
const PINNED: &str = "set timezone = 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; set bytea_output = 'hex'; \
    set extra_float_digits = 1; set quote_all_identifiers = off; set search_path = pg_catalog; set lc_monetary = 'C'";

#[tokio::test]
async fn rows_are_printed_as_postgres_prints_them_whatever_the_writer_set() {
    let fixture = Fixture::start().await;
    fixture.run(TABLE).await;
    let mut tap = fixture.tap().await;
    for settings in [PINNED, HOSTILE] {
        for row in ROWS {
            // The literals are read under the pinned settings; the trigger of the update runs under the others.
            fixture.run(PINNED).await;
            fixture
                .run(&format!("insert into public.every values ({row})"))
                .await;
            tap.all(&fixture).await;
            fixture.run(settings).await;
            fixture.run("update public.every set t = t").await;
            let shown = fixture
                .text("select pg_catalog.current_setting('timezone')")
                .await;
            fixture.run(PINNED).await;
            let expected = fixture
                .text("select pg_catalog.row_to_json(e)::text from public.every e")
                .await;
            let events = tap.changes(&fixture).await;
            assert_eq!(events.len(), 1);
            assert_eq!(events[0].new_text(), expected);
            assert_eq!(
                expected.contains(r#""id":9223372036854775807,"n":0.10,"#),
                *row == ROWS[0]
            );
            let at = events[0].json["c"].as_str().unwrap();
            assert!(
                at.len() == "2026-06-04T10:00:00.123Z".len() && at.ends_with('Z'),
                "{at}"
            );
            // The writer's own settings are as they were.
            assert_eq!(shown == "America/New_York", settings == HOSTILE);
            fixture.run("delete from public.every").await;
        }
    }
}

#[tokio::test]
async fn stored_large_values_are_whole_when_another_column_changes() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.docs (id int primary key, body text, n int); \
              alter table public.docs alter body set storage external; \
              insert into public.docs values (1, repeat('abcdefgh', 400), 0)",
        )
        .await;
    let mut tap = fixture.tap().await;
    fixture.run("update public.docs set n = 1").await;
    let events = tap.changes(&fixture).await;
    assert_eq!(events[0].json["new"]["body"].as_str().unwrap().len(), 3200);
    assert_eq!(events[0].json["old"]["body"].as_str().unwrap().len(), 3200);
}

#[tokio::test]
async fn names_are_carried_as_they_are() {
    let fixture = Fixture::start().await;
    let name = "語".repeat(21);
    let mut tap = fixture.tap().await;
    for table in [
        name.as_str(),
        "UPPER",
        "a.b",
        "q\"uote'",
        "back\\slash",
        "x; drop table public.sentinel",
        "*",
        " ",
    ] {
        let quoted = realtime_node::postgres::quote_identifier(table);
        fixture
            .run(&format!(
                "create table public.{quoted} ({quoted} int primary key)"
            ))
            .await;
        fixture
            .run(&format!(
                "insert into public.{quoted} values (1); drop table public.{quoted}"
            ))
            .await;
        let events = tap.changes(&fixture).await;
        assert_eq!(
            (&events[0].json["t"], &events[0].json["new"][table]),
            (&table.into(), &1.into())
        );
    }
}

#[tokio::test]
async fn f04_names_as_long_as_names_can_be_are_cut_nowhere() {
    let fixture = Fixture::start().await;
    let name = "語".repeat(21);
    assert_eq!(name.len(), 63);
    fixture
        .run(&format!(
            "create schema \"{name}\"; create table \"{name}\".\"{name}\" (\"{name}\" int primary key, b text); \
             select anvilbase_realtime.set_table('{name}', '{name}', emit_events => true)"
        ))
        .await;
    let mut tap = fixture.tap().await;
    fixture
        .run(&format!(
            "insert into \"{name}\".\"{name}\" values (1, 'a'), (2, repeat('x', 9000)); truncate \"{name}\".\"{name}\""
        ))
        .await;
    let events = tap.all(&fixture).await;
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let text = |key: &str| event.json[key].as_str().unwrap().to_owned();
            (text("o"), text("s"), text("t"), event.json["new"][&name].clone())
        })
        .collect();
    let expected =
        |operation: &str, id: serde_json::Value| (operation.to_owned(), name.clone(), name.clone(), id);
    assert_eq!(
        told,
        [
            expected("I", 1.into()),
            expected("I", 2.into()),
            expected("T", serde_json::Value::Null)
        ]
    );
    let log = std::fs::read_to_string(fixture.pg.server.data_dir().join("server.log")).unwrap();
    assert!(!log.contains("will be truncated"), "{log}");
}
