//! Tables come, change and go; their triggers, settings and notices follow in the same transaction.

use std::time::{Duration, Instant};

use realtime_testkit::wait::{until, within};

use crate::support::{DATABASE, Fixture, brief, distinct};

#[tokio::test]
async fn every_way_to_make_a_table_attaches_it() {
    let fixture = Fixture::start().await;
    let mut tap = fixture.tap().await;
    for (make, table) in [
        ("create table public.t (a int)", "t"),
        ("create table public.t as select 1 as a", "t"),
        ("select 1 as a into public.t", "t"),
        ("create unlogged table public.t (a int)", "t"),
        (
            "create table public.t (a int) partition by list (a); create table public.t1 partition of public.t default",
            "t",
        ),
        (
            "create table elsewhere.t (a int); alter table elsewhere.t set schema public",
            "t",
        ),
        (
            "create table elsewhere.x (a int); alter table elsewhere.x rename to t; alter table elsewhere.t set schema public",
            "t",
        ),
        (
            "create table public.old (a int); alter table public.old rename to t",
            "t",
        ),
        (
            "create table public.old (a int); alter index public.old rename to t",
            "t",
        ),
        (
            "alter schema public rename to was; create schema public create table t (a int)",
            "t",
        ),
        (
            "drop schema public cascade; alter schema was rename to public; create table public.t (a int)",
            "t",
        ),
    ] {
        fixture
            .run(&format!("create schema if not exists elsewhere; {make}"))
            .await;
        fixture.run("insert into public.t values (42)").await;
        fixture.run("drop table public.t").await;
        let sentinel = "create table if not exists public.sentinel (n bigint)";
        fixture.run(sentinel).await;
        let events = tap.changes(&fixture).await;
        assert_eq!(brief(&events, "a"), ["I 42"], "{make}");
        assert_eq!(
            (&events[0].json["s"], &events[0].json["t"]),
            (&"public".into(), &table.into()),
            "{make}"
        );
    }
}

#[tokio::test]
async fn a_statement_waits_for_no_other_tables_lock() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.ev (id int) partition by list (id); create table public.busy (a int); \
              create table public.side (id int)",
        )
        .await;
    // As if its trigger could not be made: whoever attached everything would now wait for this table.
    fixture
        .run("alter table public.busy disable trigger all; alter event trigger anvilbase_realtime_dropped disable; \
              do $$ declare g record; begin for g in select name from anvilbase_realtime.triggers \
                where relation = 'public.busy'::regclass loop \
                execute pg_catalog.format('drop trigger %I on public.busy', g.name); end loop; end $$; \
              alter event trigger anvilbase_realtime_dropped enable")
        .await;
    let other = fixture.pg.connect("app").await;
    other
        .batch_execute("begin; insert into public.busy values (1)")
        .await
        .unwrap();
    fixture.run("set lock_timeout = '1ms'").await;
    fixture
        .run("alter table public.ev attach partition public.side default")
        .await;
    fixture
        .run("alter table public.ev detach partition public.side")
        .await;
    let mut tap = fixture.tap().await;
    fixture.run("insert into public.side values (1)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1"]);
}

#[tokio::test]
async fn what_is_no_base_table_of_public_is_left_alone() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create schema other; create table other.t (a int); create temp table tmp (a int); \
              create view public.v as select 1 as a; create materialized view public.mv as select 1 as a; \
              create sequence public.s; insert into other.t values (1); insert into tmp values (1)",
        )
        .await;
    let attached = "select pg_catalog.string_agg(relation::regclass::text, ',') from anvilbase_realtime.triggers \
                    where kind = 'rows'";
    assert_eq!(fixture.text(attached).await, "sentinel");
    let mut tap = fixture.tap().await;
    fixture
        .run("select anvilbase_realtime.set_table('other', 't', emit_events => true)")
        .await;
    fixture.run("insert into other.t values (2)").await;
    fixture
        .run("select anvilbase_realtime.set_table('other', 't', emit_events => false)")
        .await;
    fixture.run("insert into other.t values (3)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "a"), ["I 2"]);
    for (schema, table) in [
        ("public", "v"),
        ("public", "mv"),
        ("public", "nothing"),
        ("anvilbase_realtime", "settings"),
    ] {
        let set = "select anvilbase_realtime.set_table($1, $2, realtime_public => true)";
        let error = fixture.admin.execute(set, &[&schema, &table]).await.unwrap_err();
        assert_eq!(
            error.as_db_error().unwrap().message(),
            "table: no such base table"
        );
    }
}

#[tokio::test]
async fn settings_follow_the_table_and_not_the_name() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.orders (id int primary key)")
        .await;
    fixture
        .run("select anvilbase_realtime.set_table('public', 'orders', cdc_enabled => false, realtime_public => true)")
        .await;
    let settings = "select coalesce(pg_catalog.string_agg(table_name || ' ' || cdc_enabled || ' ' || realtime_public \
        || ' ' || emitting, ',' order by 1), '') from anvilbase_realtime.table_settings where table_name <> 'sentinel'";
    assert_eq!(fixture.text(settings).await, "orders false true false");
    let mut tap = fixture.tap().await;
    fixture
        .run("alter table public.orders rename to renamed; insert into public.renamed values (1)")
        .await;
    assert_eq!(fixture.text(settings).await, "renamed false true false");
    // An owner's ENABLE does not undo the opt-out.
    fixture
        .run("alter table public.renamed enable trigger all; insert into public.renamed values (2)")
        .await;
    assert_eq!(fixture.text(settings).await, "renamed false true false");
    assert!(tap.changes(&fixture).await.is_empty());
    fixture
        .run("drop table public.renamed; create table public.renamed (id int primary key)")
        .await;
    assert_eq!(fixture.text(settings).await, "renamed true false true");
    fixture.run("insert into public.renamed values (3)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 3"]);
    fixture.run("drop table public.renamed").await;
    assert_eq!(fixture.text(settings).await, "");
}

#[tokio::test]
async fn a_row_that_disagrees_with_the_catalog_is_not_honoured() {
    let fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    let public = "select count(*)::text from anvilbase_realtime.table_settings where realtime_public";
    for disagreement in [
        "schema_name = 'other'",
        "table_name = 'other'",
        "database_oid = 1",
    ] {
        fixture
            .run("update anvilbase_realtime.tables set realtime_public = true")
            .await;
        assert_ne!(fixture.text(public).await, "0");
        fixture
            .run(&format!(
                "begin; update anvilbase_realtime.tables set {disagreement}"
            ))
            .await;
        assert_eq!(fixture.text(public).await, "0", "{disagreement}");
        fixture.run("rollback").await;
    }
}

#[tokio::test]
async fn changes_of_facts_are_announced_in_order_with_the_rows() {
    let fixture = Fixture::start().await;
    fixture
        .run("create schema other; create table public.t (id int primary key, n int); create role extra")
        .await;
    let mut tap = fixture.tap().await;
    for (ddl, expected) in [
        ("create policy p on public.t using (true)", "X public.t"),
        ("alter policy p on public.t using (n = 1)", "X public.t"),
        ("alter policy p on public.t rename to q", "X public.t"),
        ("drop policy q on public.t", "X public.t"),
        ("alter table public.t enable row level security", "X public.t"),
        ("alter table public.t add column c text", "X public.t"),
        ("alter table public.t drop column c", "X public.t"),
        ("alter table public.t drop constraint t_pkey", "X public.t"),
        ("alter table public.t add primary key (id)", "X public.t"),
        ("alter table public.t owner to extra", "X public.t"),
        (
            "select anvilbase_realtime.set_table('public', 't', realtime_public => true)",
            "X public.t",
        ),
        (
            "select anvilbase_realtime.set_table('public', 't', delete_events => false)",
            "X public.t",
        ),
        ("grant select on public.t to extra", "X ."),
        ("revoke select on public.t from extra", "X ."),
        (
            "alter default privileges in schema public grant select on tables to extra",
            "X .",
        ),
        ("create type public.mood as enum ('a')", ""),
        ("alter type public.mood add value 'b'", "X ."),
        ("drop type public.mood", "X ."),
        ("truncate public.t", "T public.t"),
        ("create table public.u (a int)", "X public.u"),
        ("alter table public.u rename to v", "X public.u,X public.v"),
        ("alter table public.v set schema other", "X public.v,X other.v"),
        ("alter table other.v set schema public", "X other.v,X public.v"),
        ("drop table public.v", "X public.v"),
        (
            "create table other.m (a int); alter schema other rename to another",
            "X other.m,X .",
        ),
        ("create view public.w as select 1", ""),
        ("create index on public.t (n)", ""),
    ] {
        fixture.run(ddl).await;
        assert_eq!(distinct(tap.notices(&fixture).await).join(","), expected, "{ddl}");
    }
    fixture
        .run(
            "begin; insert into public.t values (1, 1); create policy p on public.t using (true); \
              insert into public.t values (2, 1); commit",
        )
        .await;
    let order: Vec<String> = tap
        .all(&fixture)
        .await
        .iter()
        .map(|envelope| envelope.operation().to_owned())
        .collect();
    assert_eq!(order, ["I", "X", "I"]);
    fixture
        .run("begin; create policy r on public.t using (true); rollback")
        .await;
    assert!(tap.all(&fixture).await.is_empty());
}

#[tokio::test]
async fn partitions_report_their_root() {
    let fixture = Fixture::start().await;
    let mut tap = fixture.tap().await;
    fixture
        .run("create schema parts; create table public.ev (id int, d int, primary key (id, d)) partition by range (d); \
              create table public.ev1 partition of public.ev for values from (0) to (10); \
              create table parts.ev2 partition of public.ev for values from (10) to (20) partition by range (d); \
              create table parts.ev2a partition of parts.ev2 for values from (10) to (15)")
        .await;
    let root: u32 = fixture
        .text("select 'public.ev'::regclass::oid::text")
        .await
        .parse()
        .unwrap();
    tap.all(&fixture).await;
    fixture
        .run("insert into public.ev values (1, 1); insert into parts.ev2a values (2, 12)")
        .await;
    fixture
        .run("update public.ev set d = 13 where id = 1; delete from public.ev where id = 2")
        .await;
    fixture.run("truncate parts.ev2a; truncate public.ev1").await;
    let events = tap.all(&fixture).await;
    let briefs: Vec<&str> = events.iter().map(|event| event.operation()).collect();
    // A row that moves between partitions is removed here and made there.
    assert_eq!(briefs, ["I", "I", "D", "I", "D", "T", "T"]);
    assert!(
        events
            .iter()
            .all(|event| event.json["t"] == "ev" && event.json["s"] == "public" && event.json["r"] == root)
    );
    assert_eq!(events[2].json["pk"], serde_json::json!(["id", "d"]));
}

#[tokio::test]
async fn tables_become_partitions_and_partitions_tables() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.ev (id int, d int) partition by range (d); \
              create table public.side (id int, d int); insert into public.side values (1, 1)",
        )
        .await;
    let mut tap = fixture.tap().await;
    fixture
        .run("alter table public.ev attach partition public.side for values from (0) to (10)")
        .await;
    // Rows that came without an event of their own are a gap of the root.
    assert!(tap.notices(&fixture).await.contains(&"L public.ev".to_owned()));
    fixture
        .run("insert into public.ev values (2, 2); insert into public.side values (3, 3)")
        .await;
    let events = tap.changes(&fixture).await;
    assert_eq!(brief(&events, "id"), ["I 2", "I 3"]);
    assert!(events.iter().all(|event| event.json["t"] == "ev"));
    fixture
        .run("alter table public.ev detach partition public.side")
        .await;
    assert!(tap.notices(&fixture).await.contains(&"L public.ev".to_owned()));
    fixture
        .run("insert into public.side values (4, 4); truncate public.side")
        .await;
    let events = tap.all(&fixture).await;
    assert!(events.len() == 2 && events.iter().all(|event| event.json["t"] == "side"));
    fixture
        .run("create table public.ev1 partition of public.ev for values from (10) to (20)")
        .await;
    tap.all(&fixture).await;
    fixture.run("drop table public.ev1").await;
    assert!(tap.notices(&fixture).await.contains(&"L public.ev".to_owned()));
    // Switched off as a whole, with what comes later.
    fixture
        .run("alter table public.ev attach partition public.side for values from (0) to (10)")
        .await;
    fixture
        .run("select anvilbase_realtime.set_table('public', 'ev', cdc_enabled => false)")
        .await;
    fixture
        .run("create table public.ev2 partition of public.ev for values from (20) to (30)")
        .await;
    tap.all(&fixture).await;
    fixture
        .run("insert into public.ev values (5, 5), (6, 25); truncate public.ev2; truncate public.ev")
        .await;
    assert!(tap.all(&fixture).await.is_empty());
    fixture
        .run("select anvilbase_realtime.set_table('public', 'ev', cdc_enabled => true)")
        .await;
    assert!(tap.notices(&fixture).await.contains(&"L public.ev".to_owned()));
    fixture.run("insert into public.ev values (7, 7), (8, 25)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 7", "I 8"]);
}

#[tokio::test]
async fn triggers_that_their_owner_renames_or_drops() {
    let fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    let mut tap = fixture.tap().await;
    let name = fixture
        .text(
            "select pg_catalog.quote_ident(name) from anvilbase_realtime.triggers \
               where relation = 'public.t'::regclass and kind = 'rows'",
        )
        .await;
    assert!(name.starts_with("\"!"), "{name}");
    fixture
        .run(&format!(
            "alter trigger {name} on public.t rename to mine; alter table public.t add b int"
        ))
        .await;
    fixture.run("insert into public.t values (1)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1"]);
    fixture
        .run("drop trigger mine on public.t; insert into public.t values (2)")
        .await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 2"]);
}

/// The server asks for the right to the trigger's function again, of whoever makes a copy of the trigger.
#[tokio::test]
async fn an_owner_without_any_right_of_ours_makes_partitions() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    let mut tap = fixture.tap().await;
    mallory
        .batch_execute(
            "create table public.p (id int) partition by range (id); \
             create table public.p1 partition of public.p for values from (0) to (10); \
             create table public.p2 (id int); alter table public.p attach partition public.p2 for values from (10) to (20); \
             insert into public.p values (1), (11)",
        )
        .await
        .unwrap();
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1", "I 11"]);
}

/// PostgreSQL queues a table's writers behind whoever waits to change its triggers.
#[tokio::test]
async fn a_setting_that_cannot_be_had_holds_no_writer_up_for_long() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.orders (id int primary key)")
        .await;
    let (holder, writer) = (
        fixture.pg.connect(DATABASE).await,
        fixture.pg.connect(DATABASE).await,
    );
    holder
        .batch_execute("begin; insert into public.orders values (1)")
        .await
        .unwrap();
    let setting = fixture
        .admin
        .batch_execute("select anvilbase_realtime.set_table('public', 'orders', cdc_enabled => false)");
    let writing = async {
        until("the setting waits", || async {
            let query =
                "select count(*) from pg_locks where relation = 'public.orders'::regclass and not granted";
            let waiting: i64 = holder.query_one(query, &[]).await.unwrap().get(0);
            (waiting > 0).then_some(())
        })
        .await;
        let waits = Instant::now();
        let written = writer.batch_execute("insert into public.orders values (2)").await;
        (written, waits.elapsed())
    };
    // The holder's transaction stays open all the time: only the setting's own end lets the writer through.
    let both = async { tokio::join!(setting, writing) };
    let (set, (written, waited)) = within("the writer is let through", both).await;
    assert_eq!(set.unwrap_err().code().unwrap().code(), "55P03");
    written.unwrap();
    // Half a second, and what a busy machine adds.
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    holder.batch_execute("commit").await.unwrap();
}
