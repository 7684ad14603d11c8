//! What was found by attacking the feed from inside its database, and stays shut.

use crate::support::{DATABASE, Envelope, Fixture};

fn told(envelopes: &[Envelope]) -> Vec<String> {
    let told = envelopes.iter().map(|envelope| {
        let name = |key: &str| envelope.json[key].as_str().unwrap().to_owned();
        format!("{} {}.{}", name("o"), name("s"), name("t"))
    });
    told.collect()
}

/// A cast runs as the owner of the function that prints rows: it could drop that function, or leave a search_path to
/// the writer's session that makes it call a stranger's functions with the writer's rights.
#[tokio::test]
async fn nothing_is_left_of_what_a_cast_to_json_did() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    mallory
        .batch_execute(
            "create table mallory.seen (a int); grant all on mallory.seen to public; \
             grant usage, create on schema mallory to public; create type mallory.mood as enum ('happy'); \
             create function mallory.mood_json(mallory.mood) returns json language plpgsql as $$ begin \
               execute 'drop owned by anvilbase_realtime_printer cascade'; \
               insert into mallory.seen values (1); \
               execute 'create table mallory.left_behind (a int)'; \
               execute 'listen mallory'; perform pg_catalog.pg_notify('mallory', 'x'); \
               perform pg_catalog.set_config('search_path', 'mallory', false); \
               perform pg_catalog.set_config('request.jwt.claims', '{}', false); \
               return '\"cast\"'; end $$; \
             create cast (mallory.mood as json) with function mallory.mood_json(mallory.mood); \
             create table public.m (id int primary key, mood mallory.mood)",
        )
        .await
        .unwrap();
    let mut tap = fixture.tap().await;
    fixture
        .run("insert into public.m values (1, 'happy'); update public.m set id = 2; delete from public.m")
        .await;
    // The update prints two rows, and the cast of the first takes the function from the second.
    let told: Vec<_> = tap
        .all(&fixture)
        .await
        .iter()
        .map(|event| event.operation().to_owned())
        .collect();
    assert_eq!(told, ["I", "L", "D"]);
    let left = "select pg_catalog.concat(pg_catalog.current_setting('search_path'), ' ', \
                  pg_catalog.current_setting('request.jwt.claims', true), ' ', (select pg_catalog.count(*) from mallory.seen), \
                  ' ', pg_catalog.to_regclass('mallory.left_behind'), ' ', \
                  (select pg_catalog.count(*) from pg_catalog.pg_listening_channels()))";
    assert_eq!(fixture.text(left).await, "\"$user\", public  0  0");
}

/// Function bodies are read under the settings of the session that runs them first.
#[tokio::test]
async fn a_writers_string_syntax_changes_no_envelope() {
    let fixture = Fixture::start().await;
    let mut tap = fixture.tap().await;
    let writer = fixture.pg.connect(DATABASE).await;
    writer
        .batch_execute(
            "set standard_conforming_strings = off; set escape_string_warning = off; set backslash_quote = off; \
             create table public.t (id int primary key, b text)",
        )
        .await
        .unwrap();
    writer
        .batch_execute(
            "insert into public.t values (1, 'a'), (2, pg_catalog.repeat('x', 9000)); delete from public.t; truncate public.t",
        )
        .await
        .unwrap();
    // A session that ends with its first error has none of ours to end with.
    writer
        .batch_execute("set exit_on_error = on; insert into public.t values (3, 'c')")
        .await
        .unwrap();
    let events = tap.all(&fixture).await;
    let mut operations: Vec<&str> = events.iter().map(Envelope::operation).collect();
    operations.dedup();
    assert_eq!(operations, ["X", "I", "D", "T", "I"]);
    assert!(
        events
            .iter()
            .all(|event| event.json["c"].as_str().unwrap().ends_with('Z'))
    );
}

/// Delivered to the listener, such a character would end its session.
#[tokio::test]
async fn a_character_that_utf8_lacks_costs_its_own_event_only() {
    let fixture = Fixture::start_in("WIN1252").await;
    fixture
        .run("create table public.t (id int primary key, b text)")
        .await;
    let mut tap = fixture.tap().await;
    fixture
        .run(
            "insert into public.t values (1, 'a'), (2, pg_catalog.chr(129)), (3, 'c'); \
             do $$ begin execute pg_catalog.format('create table public.%I (a int)', pg_catalog.chr(129)); \
               execute pg_catalog.format('insert into public.%I values (1)', pg_catalog.chr(129)); \
               execute pg_catalog.format('drop table public.%I', pg_catalog.chr(129)); end $$",
        )
        .await;
    // Three bytes each once they are UTF-8: 9,000 in all.
    fixture
        .run("insert into public.t values (4, pg_catalog.repeat(pg_catalog.chr(128), 3000))")
        .await;
    fixture
        .run("insert into public.t values (5, pg_catalog.repeat(pg_catalog.chr(128), 2000))")
        .await;
    let events = tap.all(&fixture).await;
    let rows: Vec<String> = events
        .iter()
        .filter(|event| event.json["t"] == "t")
        .map(|event| {
            format!(
                "{} {} {}",
                event.operation(),
                event.json["new"]["id"],
                event.too_large()
            )
        })
        .collect();
    assert_eq!(
        rows,
        ["I 1 false", "L null false", "I 3 false", "I 4 true", "I 5 false"]
    );
    let others = told(&events).into_iter().filter(|told| !told.ends_with(".t"));
    assert!(
        others.clone().count() > 0 && others.into_iter().all(|told| told == "X ." || told == "L ."),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_feed_without_its_functions_fails_no_write() {
    for missing in ["row_json(record)", "lost(oid)", "notice(oid, text, text, text)"] {
        let fixture = Fixture::start().await;
        fixture
            .run("create table public.t (id int primary key, b text)")
            .await;
        fixture
            .run(&format!("drop function anvilbase_realtime.{missing}"))
            .await;
        // Without one of them every second one fails as well.
        fixture
            .run("alter function anvilbase_realtime.reference(oid, text, text, integer) rename to elsewhere")
            .await;
        fixture
            .run("insert into public.t values (1, repeat('x', 9000)); update public.t set id = 2; delete from public.t")
            .await;
        fixture
            .run("truncate public.t; alter table public.t rename to u; drop table public.u")
            .await;
    }
}
