//! What was found by attacking the feed from inside its database, and stays shut.

use realtime_testkit::postgres::connect_as;

use crate::support::{DATABASE, Envelope, Fixture, brief};

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

/// Every writer holds a lock on what it has read of ours until its transaction ends.
#[tokio::test]
async fn provisioning_again_waits_for_no_writer_and_stops_none() {
    let mut fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    let long = fixture.pg.connect(DATABASE).await;
    long.batch_execute(
        "begin; insert into public.t values (1); create table public.u (a int); \
         select anvilbase_realtime.set_table('public', 'u', realtime_public => true)",
    )
    .await
    .unwrap();
    let report = fixture.provision_again().await;
    assert!(report.not_attached.is_empty(), "{report:?}");
    let held = "select pg_catalog.count(*)::text from pg_catalog.pg_locks l where l.relation = any (array[ \
                'anvilbase_realtime.settings'::regclass, 'anvilbase_realtime.tables'::regclass]) and not l.granted";
    assert_eq!(fixture.text(held).await, "0");
    long.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn rights_over_all_data_do_not_reach_the_feed() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    fixture
        .run("grant pg_read_all_data, pg_write_all_data to mallory; create table public.t (id int)")
        .await;
    let channel = fixture.channel().await;
    for table in ["settings", "tables"] {
        let rows = mallory
            .query(&format!("select * from anvilbase_realtime.{table}"), &[])
            .await
            .unwrap();
        assert!(rows.is_empty(), "{table}");
    }
    for write in [
        "update anvilbase_realtime.settings set channel = 'known'",
        "delete from anvilbase_realtime.settings",
        "update anvilbase_realtime.tables set realtime_public = true",
        "delete from anvilbase_realtime.tables",
    ] {
        assert_eq!(mallory.execute(write, &[]).await.unwrap(), 0, "{write}");
    }
    let insert = "insert into anvilbase_realtime.tables (relid, schema_name, table_name, database_oid) values (1, 'a', 'b', 2)";
    assert_eq!(
        mallory
            .execute(insert, &[])
            .await
            .unwrap_err()
            .code()
            .unwrap()
            .code(),
        "42501"
    );
    assert_eq!(fixture.channel().await, channel);
    let listener = connect_as(&fixture.listener_dsn()).await;
    let seen: String = listener
        .query_one("select channel from anvilbase_realtime.settings", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(seen, channel);
}

/// A table that is restored from a dump is attached as it is made, and its dump makes a trigger of its own.
#[tokio::test]
async fn a_trigger_out_of_a_dump_announces_nothing_twice() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.t (id int); create table public.p (id int) partition by range (id); \
             create table public.p1 partition of public.p for values from (0) to (10)",
        )
        .await;
    let mut tap = fixture.tap().await;
    for table in ["t", "p", "p1"] {
        fixture
            .run(&format!(
                "create trigger \"!anvilbase_realtime_1{table}\" after insert or update or delete on public.{table} \
                   for each row execute function anvilbase_realtime.emit(); \
                 create trigger \"!anvilbase_realtime_truncate_1\" after truncate on public.{table} \
                   for each statement execute function anvilbase_realtime.emit_truncate()"
            ))
            .await;
    }
    fixture.run("insert into public.t values (1); insert into public.p values (2); insert into public.p1 values (3)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1", "I 2", "I 3"]);
    fixture.run("truncate public.t").await;
    assert_eq!(told(&tap.all(&fixture).await), ["T public.t"]);
    // A trigger of the owner's own is nobody else's affair.
    fixture
        .run(
            "create function public.nothing() returns trigger language plpgsql as $$ begin return null; end $$; \
             create trigger own after insert on public.t for each row execute function public.nothing()",
        )
        .await;
    assert!(tap.all(&fixture).await.is_empty());
}

/// What `pg_restore --data-only --disable-triggers` does.
#[tokio::test]
async fn what_was_written_while_triggers_were_off_is_told_of() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.t (id int); create table public.p (id int) partition by range (id); \
             create table public.p1 partition of public.p for values from (0) to (10)",
        )
        .await;
    let mut tap = fixture.tap().await;
    for (table, root) in [("t", "t"), ("p1", "p")] {
        for (off, on) in [("disable", "enable"), ("enable replica", "enable always")] {
            let trigger = fixture
                .text(&format!(
                    "select t.name from anvilbase_realtime.triggers t \
                     where t.relation = 'public.{table}'::regclass and t.kind = 'rows'"
                ))
                .await;
            fixture
                .run(&format!(
                    "begin; alter table public.{table} {off} trigger \"{trigger}\"; insert into public.{table} values (1); \
                     alter table public.{table} {on} trigger \"{trigger}\"; insert into public.{table} values (2); commit"
                ))
                .await;
            let mut told = told(&tap.all(&fixture).await);
            told.retain(|told| !told.starts_with('X'));
            assert_eq!(
                told,
                [format!("L public.{root}"), format!("I public.{root}")],
                "{table} {off}"
            );
        }
    }
    // Nothing to tell of where nothing was off.
    fixture.run("alter table public.t enable trigger all").await;
    assert!(
        tap.notices(&fixture)
            .await
            .iter()
            .all(|told| told == "X public.t")
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
            .run("alter function anvilbase_realtime.key_json(text, record) rename to elsewhere")
            .await;
        fixture
            .run("insert into public.t values (1, repeat('x', 9000)); update public.t set id = 2; delete from public.t")
            .await;
        fixture
            .run("truncate public.t; alter table public.t rename to u; drop table public.u")
            .await;
    }
}

/// Both change how a policy's condition is to be read without touching its table.
#[tokio::test]
async fn casts_to_json_and_doubles_of_built_in_names_are_changes_of_all_tables() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create type public.mood as enum ('happy'); \
             create function public.mood_json(public.mood) returns json language sql as $$ select '1'::json $$; \
             create function public.same(public.mood, public.mood) returns boolean language sql as 'select true'",
        )
        .await;
    let mut tap = fixture.tap().await;
    for change in [
        "create cast (public.mood as json) with function public.mood_json(public.mood)",
        "drop cast (public.mood as json)",
        "create function public.lower(public.mood) returns text language sql as $$ select 'x' $$",
        "create operator public.= (function = public.same, leftarg = public.mood, rightarg = public.mood)",
        "create schema aside; create operator aside.=== (function = public.same, leftarg = public.mood, rightarg = public.mood); \
         create function aside.upper(public.mood) returns text language sql as $$ select 'x' $$; \
         alter function aside.upper(public.mood) set schema public",
    ] {
        fixture.run(change).await;
        assert_eq!(tap.notices(&fixture).await, ["X ."], "{change}");
    }
    fixture
        .run(
            "create function public.helper(int) returns int language sql as 'select 1'; \
             create function pg_temp.lower(int) returns int language sql as 'select 1'; \
             create operator public.==== (function = public.same, leftarg = public.mood, rightarg = public.mood)",
        )
        .await;
    assert!(tap.all(&fixture).await.is_empty());
}
