//! The user's write always commits, and announces itself exactly once.

use crate::support::{Fixture, brief};

/// The envelope's limit, from both sides, for texts whose JSON is longer than they are.
#[tokio::test]
async fn f01_rows_around_the_limit_commit_and_give_one_event_each() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.docs (id int primary key, body text)")
        .await;
    let mut tap = fixture.tap().await;
    // Each unit with the bytes of its JSON form.
    for (unit, bytes) in [
        ("x", 1),
        ("é", 2),
        ("😀", 4),
        ("\"", 2),
        ("\\", 2),
        ("\u{1}", 6),
        ("\n", 2),
    ] {
        let sizes: Vec<i32> = (7_600 / bytes..=7_900 / bytes)
            .chain([1_000_000 / bytes])
            .collect();
        for size in &sizes {
            let insert = "insert into public.docs values ($1, pg_catalog.repeat($2, $1))";
            fixture.admin.execute(insert, &[size, &unit]).await.unwrap();
        }
        let events = tap.changes(&fixture).await;
        let expected: Vec<String> = sizes.iter().map(|size| format!("I {size}")).collect();
        assert_eq!(brief(&events, "id"), expected, "{unit:?}");
        let whole = events.iter().filter(|event| !event.too_large());
        let largest = whole.clone().map(|event| event.text.len()).max().unwrap();
        assert!(
            largest > 7_900 - bytes as usize && largest <= 7_900,
            "{unit:?}: {largest}"
        );
        assert_eq!(
            whole.count(),
            events.iter().take_while(|event| !event.too_large()).count()
        );
        let last = &events.last().unwrap().json;
        assert_eq!((&last["pk"][0], &last["pt"][0]), (&"id".into(), &"int4".into()));
        assert_eq!(last["new"], serde_json::json!({ "id": sizes.last() }));

        // An update carries both images, so half of each fits; a delete carries one.
        fixture.run("update public.docs set body = body || 'y'").await;
        let updates = tap.changes(&fixture).await;
        assert_eq!(updates.len(), sizes.len());
        assert!(
            updates
                .iter()
                .all(|event| event.too_large() && event.json["old"]["id"] == event.json["new"]["id"])
        );
        fixture.run("delete from public.docs").await;
        assert_eq!(tap.changes(&fixture).await.len(), sizes.len());
    }
}

#[tokio::test]
async fn f07_equal_rows_of_one_transaction_are_not_merged() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.log (a int); create table public.flags (id int primary key, done bool)")
        .await;
    fixture.run("insert into public.flags values (1, true)").await;
    let mut tap = fixture.tap().await;
    fixture.run("insert into public.log values (1), (1), (1)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "a"), ["I 1", "I 1", "I 1"]);
    fixture
        .run(
            "begin; update public.flags set done = not done; update public.flags set done = not done; \
              savepoint s; update public.flags set done = not done; update public.flags set done = not done; \
              release s; update public.flags set done = not done; commit",
        )
        .await;
    assert_eq!(
        brief(&tap.changes(&fixture).await, "done"),
        ["U false", "U true", "U false", "U true", "U false"]
    );
}

#[tokio::test]
async fn f12_only_surviving_work_is_announced() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.notes (id int primary key)")
        .await;
    let mut tap = fixture.tap().await;
    fixture
        .run(
            "begin; insert into public.notes values (1); savepoint s; insert into public.notes values (2); \
              rollback to s; insert into public.notes values (3); commit",
        )
        .await;
    fixture
        .run("begin; insert into public.notes values (4); rollback")
        .await;
    fixture
        .run("do $$ begin begin insert into public.notes values (5), (1); exception when unique_violation then \
              insert into public.notes values (6); end; end $$")
        .await;
    assert!(
        fixture
            .admin
            .batch_execute("insert into public.notes values (7), (1)")
            .await
            .is_err()
    );
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1", "I 3", "I 6"]);
}

#[tokio::test]
async fn events_come_in_commit_order() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.notes (id int primary key)")
        .await;
    let mut tap = fixture.tap().await;
    let other = fixture.pg.connect("app").await;
    other
        .batch_execute("begin; insert into public.notes values (1)")
        .await
        .unwrap();
    fixture.run("insert into public.notes values (2)").await;
    other
        .batch_execute("insert into public.notes values (3); commit")
        .await
        .unwrap();
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 2", "I 1", "I 3"]);
}

#[tokio::test]
async fn g04_a_writer_with_insert_alone_writes_and_is_heard() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.inbox (id int primary key, body text); create role narrow login password 'narrow'; \
              revoke all on public.inbox from public, anon, authenticated; grant insert on public.inbox to narrow")
        .await;
    let mut tap = fixture.tap().await;
    let narrow = fixture.pg.connect_login("narrow", "narrow", "app").await;
    narrow
        .batch_execute("insert into public.inbox values (1, 'a'), (2, repeat('x', 9000))")
        .await
        .unwrap();
    for role in ["anon", "authenticated", "service_role"] {
        fixture
            .run(&format!(
                "grant insert on public.inbox to {role}; set role {role}"
            ))
            .await;
        fixture.run("insert into public.inbox select 3 + count(*), 'b' from pg_catalog.pg_auth_members where false").await;
        fixture
            .run("reset role; delete from public.inbox where id = 3")
            .await;
    }
    let events = tap.changes(&fixture).await;
    assert_eq!(
        brief(&events, "id"),
        ["I 1", "I 2", "I 3", "D 3", "I 3", "D 3", "I 3", "D 3"]
    );
    assert!(events[1].too_large());
}

#[tokio::test]
async fn keys_decide_what_a_reference_event_holds() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.keyless (a int, b text); create table public.longkey (k text primary key, b text); \
              create table public.unread (id int primary key, j json, b text); \
              create table public.pair (b text, \"y é\" bigint, \"x\"\"\" uuid, extra int, \
                primary key (\"x\"\"\", \"y é\") include (extra))")
        .await;
    // A key of 9,000 bytes does not fit an index entry unless it compresses.
    let mut tap = fixture.tap().await;
    fixture
        .run("insert into public.keyless values (1, repeat('x', 9000))")
        .await;
    fixture
        .run("insert into public.longkey values (repeat('k', 9000), 'b')")
        .await;
    fixture
        .run("update public.longkey set b = 'c'; delete from public.longkey")
        .await;
    fixture
        .run(
            "insert into public.pair values (repeat('x', 9000), 9223372036854775807, \
              '00000000-0000-4000-8000-000000000001', 1); delete from public.keyless",
        )
        .await;
    // What the server prints and does not read again.
    fixture
        .run(r#"insert into public.unread values (1, '["\u0000", "\ud83d"]', repeat('x', 9000))"#)
        .await;
    let texts: Vec<String> = tap
        .changes(&fixture)
        .await
        .iter()
        .map(|event| event.text.split_once(r#","new":"#).unwrap().1.to_owned())
        .collect();
    assert_eq!(
        texts,
        [
            r#"{},"old":null,"pk":[],"pt":[],"e":["payload_too_large"]}"#,
            r#"{},"old":null,"pk":["k"],"pt":["text"],"e":["payload_too_large"]}"#,
            r#"{},"old":{},"pk":["k"],"pt":["text"],"e":["payload_too_large"]}"#,
            r#"null,"old":{},"pk":["k"],"pt":["text"],"e":["payload_too_large"]}"#,
            r#"{"x\"":"00000000-0000-4000-8000-000000000001","y é":9223372036854775807},"old":null,"pk":["x\"","y é"],"pt":["uuid","int8"],"e":["payload_too_large"]}"#,
            r#"null,"old":{},"pk":[],"pt":[],"e":["payload_too_large"]}"#,
            r#"{"id":1},"old":null,"pk":["id"],"pt":["int4"],"e":["payload_too_large"]}"#,
        ]
    );
}

#[tokio::test]
async fn an_insert_comes_before_what_a_users_trigger_makes_of_it() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.t (id int primary key, n int); \
              create function public.bump() returns trigger language plpgsql as \
                $$ begin update public.t set n = 1 where id = new.id; return null; end $$; \
              create trigger \"000 first\" after insert on public.t for each row execute function public.bump()")
        .await;
    let mut tap = fixture.tap().await;
    fixture.run("insert into public.t values (1, 0)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "n"), ["I 0", "U 1"]);
}

#[tokio::test]
async fn a_feed_that_lost_its_settings_fails_no_write_and_no_ddl() {
    let fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    fixture.run("delete from anvilbase_realtime.settings").await;
    fixture
        .run("insert into public.t values (1); truncate public.t; create table public.u (a int)")
        .await;
    fixture
        .run("alter table anvilbase_realtime.settings rename to elsewhere")
        .await;
    fixture
        .run("insert into public.t values (2); update public.t set id = 3; delete from public.t")
        .await;
    fixture.run("truncate public.t; create table public.v (a int); alter table public.v rename to w; drop table public.w").await;
}

#[tokio::test]
async fn f11_two_phase_commit_works_on_tables_taken_off_the_feed() {
    let fixture = Fixture::start_with(&[("max_prepared_transactions", "2")]).await;
    fixture.run("create table public.t (id int primary key)").await;
    let mut tap = fixture.tap().await;
    fixture.run("begin; insert into public.t values (1)").await;
    let error = fixture
        .admin
        .batch_execute("prepare transaction 'x'")
        .await
        .unwrap_err();
    assert!(
        error.as_db_error().unwrap().message().contains("NOTIFY"),
        "{error:?}"
    );
    fixture.run("rollback").await;
    fixture
        .run("select anvilbase_realtime.set_table('public', 't', cdc_enabled => false)")
        .await;
    fixture
        .run("begin; insert into public.t values (2); prepare transaction 'x'")
        .await;
    fixture.run("commit prepared 'x'").await;
    assert!(tap.changes(&fixture).await.is_empty());
    assert_eq!(fixture.text("select id::text from public.t").await, "2");
}

/// Nothing changed, so nothing is said: neither to subscribers nor to whoever reads again after a change.
#[tokio::test]
async fn f13_statements_that_change_nothing_are_silent() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.notes (id int primary key, room int); insert into public.notes values (1, 1)")
        .await;
    let mut tap = fixture.tap().await;
    fixture
        .run(
            "update public.notes set room = 1 where false; delete from public.notes where id = 2; \
             insert into public.notes values (1, 2) on conflict do nothing; \
             insert into public.notes select 3, 3 where false; \
             with none as (delete from public.notes where false returning id) insert into public.notes select id from none",
        )
        .await;
    assert!(tap.all(&fixture).await.is_empty());
}
