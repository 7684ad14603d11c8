//! What a stranger with a database login tries.

use realtime_listener::provision::{ProvisionOptions, provision};
use realtime_testkit::postgres::connect_as;

use crate::support::{DATABASE, Fixture, brief};

/// A cast to json runs inside the trigger. It must not run with a right of ours, nor leave a search_path behind that
/// makes the rest of the trigger call a stranger's operators.
#[tokio::test]
async fn a_types_own_cast_to_json_gains_nothing() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    mallory
        .batch_execute(
            "create sequence mallory.calls; grant all on sequence mallory.calls to public; \
             grant usage, create on schema mallory to public; create type mallory.mood as enum ('happy', 'sad'); \
             create function mallory.note(what text) returns void language plpgsql as \
               $$ begin perform pg_catalog.nextval('mallory.calls'); end $$; \
             create function mallory.cat(text, text) returns text language plpgsql as \
               $$ begin perform mallory.note('cat'); return pg_catalog.textcat($1, $2); end $$; \
             create operator mallory.|| (function = mallory.cat, leftarg = text, rightarg = text); \
             create function mallory.cmp(int, int) returns bool language plpgsql as \
               $$ begin perform mallory.note('cmp'); return true; end $$; \
             create operator mallory.> (function = mallory.cmp, leftarg = int, rightarg = int); \
             create operator mallory.<= (function = mallory.cmp, leftarg = int, rightarg = int); \
             create operator mallory.= (function = mallory.cmp, leftarg = int, rightarg = int); \
             create operator mallory.+ (function = pg_catalog.int4pl, leftarg = int, rightarg = int); \
             create function mallory.octet_length(text) returns int language plpgsql as \
               $$ begin perform mallory.note('octet_length'); return 1; end $$; \
             create function mallory.pg_notify(text, text) returns void language plpgsql as \
               $$ begin perform mallory.note($1); end $$; \
             create function mallory.to_json(anyelement) returns json language plpgsql as \
               $$ begin perform mallory.note('to_json'); return '1'; end $$; \
             create function mallory.mood_json(mallory.mood) returns json language plpgsql as $$ \
               declare channel text := 'none'; \
               begin \
                 begin select s.channel into channel from anvilbase_realtime.settings s; \
                 exception when others then channel := sqlstate; end; \
                 perform pg_catalog.set_config('search_path', 'mallory, pg_catalog', false); \
                 return pg_catalog.to_json(pg_catalog.concat(current_user, ' ', channel)); \
               end $$; \
             create cast (mallory.mood as json) with function mallory.mood_json(mallory.mood); \
             create table public.m (id text primary key, mood mallory.mood)",
        )
        .await
        .unwrap();
    let mut tap = fixture.tap().await;
    // As the superuser: what runs with the writer's rights would be all the worse.
    fixture
        .run("insert into public.m values ('1', 'happy'), (pg_catalog.repeat('x', 8000), 'sad')")
        .await;
    fixture
        .run("update public.m set mood = 'sad'; delete from public.m")
        .await;
    // A sequence keeps what is undone otherwise.
    let called = "select is_called::text from mallory.calls";
    assert_eq!(fixture.text(called).await, "false");
    let events = tap.changes(&fixture).await;
    assert_eq!(events.len(), 6);
    // 42501: permission denied.
    assert_eq!(events[0].json["new"]["mood"], "anvilbase_realtime_printer 42501");
}

#[tokio::test]
async fn a_cast_that_raises_fails_no_write_and_its_loss_is_told() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    for (raise, n) in [
        ("raise exception 'boom'", 1),
        ("assert false", 2),
        ("perform 1 / 0", 3),
    ] {
        mallory
            .batch_execute(&format!(
                "create type mallory.mood{n} as enum ('happy'); \
                 create function mallory.mood_json(mallory.mood{n}) returns json language plpgsql as \
                   $$ begin {raise}; return '1'; end $$; \
                 create cast (mallory.mood{n} as json) with function mallory.mood_json(mallory.mood{n}); \
                 create table public.m{n} (id int primary key, mood mallory.mood{n})"
            ))
            .await
            .unwrap();
        let mut tap = fixture.tap().await;
        fixture
            .run(&format!("insert into public.m{n} values (1, 'happy')"))
            .await;
        fixture
            .run(&format!("update public.m{n} set id = 2; delete from public.m{n}"))
            .await;
        let told = tap.all(&fixture).await;
        let told: Vec<_> = told
            .iter()
            .map(|told| (told.operation(), told.json["t"].clone()))
            .collect();
        let table = serde_json::Value::from(format!("m{n}"));
        assert_eq!(
            told,
            vec![("L", table.clone()), ("L", table.clone()), ("L", table)]
        );
    }
}

/// pg_temp comes first for type names unless a search_path says otherwise.
#[tokio::test]
async fn temporary_types_do_not_stand_in_for_ours() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    fixture
        .run("create table public.t (id int primary key); grant all on public.t to mallory")
        .await;
    mallory
        .batch_execute(
            "create table mallory.seen (who name); grant insert on mallory.seen to public; \
             grant usage on schema mallory to public; \
             create function mallory.look(text) returns bool language plpgsql as \
               $$ begin insert into mallory.seen values (current_user); return true; end $$; \
             create function mallory.look(oid) returns bool language plpgsql as \
               $$ begin insert into mallory.seen values (current_user); return true; end $$; \
             create domain pg_temp.text as pg_catalog.text check (mallory.look(value::pg_catalog.text)); \
             create domain pg_temp.oid as pg_catalog.oid check (mallory.look(value::pg_catalog.oid)); \
             create temp table settings (channel pg_catalog.text)",
        )
        .await
        .unwrap();
    let mut tap = fixture.tap().await;
    mallory
        .batch_execute(
            "insert into public.t values (1); update public.t set id = 2; create table public.u (a int)",
        )
        .await
        .unwrap();
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1", "U 2"]);
    assert_eq!(fixture.text("select count(*)::text from mallory.seen").await, "0");
}

#[tokio::test]
async fn a_stranger_can_neither_call_nor_attach_what_is_ours() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    mallory
        .batch_execute("create table mallory.t (a int)")
        .await
        .unwrap();
    let attempts = [
        "select * from anvilbase_realtime.settings",
        "select * from anvilbase_realtime.tables",
        "select * from anvilbase_realtime.table_settings",
        "select anvilbase_realtime.open_feed()",
        "select anvilbase_realtime.beat('x')",
        "select anvilbase_realtime.row_json(row(1))",
        "select anvilbase_realtime.notice(1, 'public', 't', 'X')",
        "select anvilbase_realtime.lost(1)",
        "select anvilbase_realtime.set_table('public', 'sentinel', realtime_public => true)",
        "select anvilbase_realtime.attach('public.sentinel'::regclass)",
        "select anvilbase_realtime.random_key()",
        // To his own it gives him nothing; and partitions need everybody's right to this function.
        "create trigger x after insert on public.sentinel for each row execute function anvilbase_realtime.emit()",
        "create trigger x after truncate on mallory.t execute function anvilbase_realtime.emit_truncate()",
        "create function anvilbase_realtime.x() returns int language sql as 'select 1'",
        "set role anvilbase_realtime_owner",
        "set role anvilbase_realtime_printer",
    ];
    // Whom tokens name, and our own lower logins, are strangers too.
    fixture.run("grant anon, authenticated to mallory").await;
    for role in ["mallory", "anon", "authenticated"] {
        mallory.batch_execute(&format!("set role {role}")).await.unwrap();
        for attempt in attempts {
            let error = mallory.batch_execute(attempt).await.expect_err(attempt);
            assert_eq!(
                error.code().unwrap().code(),
                "42501",
                "{role}: {attempt}: {error:?}"
            );
        }
        mallory.batch_execute("reset role").await.unwrap();
    }
    // By name alone, past the schema's own lock.
    fixture
        .run("grant usage on schema anvilbase_realtime to mallory")
        .await;
    for attempt in attempts {
        let error = mallory.batch_execute(attempt).await.expect_err(attempt);
        assert_eq!(error.code().unwrap().code(), "42501", "{attempt}: {error:?}");
    }
}

/// Whoever makes partitions may hang the row trigger on what is his; what it is not made for must announce nothing, least of
/// all the loss of anything, and must leave the statement as it is.
#[tokio::test]
async fn the_row_trigger_on_what_it_is_not_made_for_announces_nothing_and_changes_no_statement() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    fixture
        .run(&format!(
            "grant usage on schema anvilbase_realtime to mallory; grant temporary on database {DATABASE} to mallory"
        ))
        .await;
    let mut tap = fixture.tap().await;
    for (create, own) in [
        ("create temp table own", "own"),
        ("create table mallory.own", "mallory.own"),
    ] {
        for trigger in [
            "after insert or update or delete or truncate on TABLE for each statement",
            "before insert or update or delete or truncate on TABLE for each statement",
            "before insert or update or delete on TABLE for each row",
            "after insert or update or delete on TABLE for each row",
        ] {
            // That one announces its owner's own rows, which is another matter.
            if own == "mallory.own" && trigger.starts_with("after") && trigger.ends_with("row") {
                continue;
            }
            let trigger = trigger.replace("TABLE", own);
            let create = format!(
                "{create} (id int primary key, word text); \
                 create trigger own {trigger} execute function anvilbase_realtime.emit()"
            );
            mallory.batch_execute(&create).await.unwrap();
            for (sql, rows) in [
                ("insert into TABLE values (1, 'a'), (2, 'b')", 2),
                ("update TABLE set word = 'c'", 2),
                ("delete from TABLE where word = 'c' and id = 1", 1),
                ("truncate TABLE", 0),
                ("drop table TABLE", 0),
            ] {
                let done = mallory.execute(&*sql.replace("TABLE", own), &[]).await.unwrap();
                assert_eq!(done, rows, "{trigger}: {sql}");
            }
        }
    }
    let view = "create view mallory.v as select 1 as id; \
                create trigger own instead of insert on mallory.v for each row execute function anvilbase_realtime.emit(); \
                insert into mallory.v values (2)";
    mallory.batch_execute(view).await.unwrap();
    // All but that tables came and went.
    let mut told = tap.all(&fixture).await;
    told.retain(|envelope| envelope.operation() != "X");
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn our_own_logins_have_no_more_than_they_need() {
    let fixture = Fixture::start().await;
    for (login, refused, allowed) in [
        (
            "anvilbase_realtime_prober",
            &[
                "select * from anvilbase_realtime.settings",
                "select anvilbase_realtime.open_feed()",
                "set role service_role",
                "select anvilbase_realtime.set_table('public', 'sentinel', realtime_public => true)",
            ][..],
            &[
                "select * from anvilbase_realtime.table_settings",
                "set role anon",
                "reset role",
                "set role authenticated",
            ][..],
        ),
        (
            "anvilbase_realtime_service",
            &[
                "select * from anvilbase_realtime.settings",
                "select anvilbase_realtime.open_feed()",
            ][..],
            &[
                "select anvilbase_realtime.set_table('public', 'sentinel', realtime_public => true)",
                "set role service_role",
            ][..],
        ),
        (
            "anvilbase_realtime_listener",
            &[
                "select * from public.sentinel",
                "select anvilbase_realtime.row_json(row(1))",
                "set role anon",
                "select anvilbase_realtime.notice(1, 'public', 't', 'X')",
            ][..],
            &[
                "select anvilbase_realtime.open_feed()",
                "select anvilbase_realtime.beat('x')",
            ][..],
        ),
    ] {
        let client = connect_as(&fixture.login_dsn(login)).await;
        for attempt in refused {
            let error = client.batch_execute(attempt).await.expect_err(attempt);
            assert_eq!(error.code().unwrap().code(), "42501", "{login}: {attempt}");
        }
        for attempt in allowed {
            client
                .batch_execute(attempt)
                .await
                .unwrap_or_else(|error| panic!("{login}: {attempt}: {error:?}"));
        }
    }
}

/// Everything that a login may look at, and the server's log with every statement in it.
#[tokio::test]
async fn the_channels_name_is_nowhere_to_be_seen() {
    let mut fixture = Fixture::start_with(&[
        ("log_statement", "all"),
        ("log_min_duration_statement", "0"),
        ("log_parameter_max_length", "-1"),
        ("log_lock_waits", "on"),
    ])
    .await;
    let mallory = fixture.mallory().await;
    let mut tap = fixture.tap().await;
    fixture
        .run("create table public.t (id int primary key, b text)")
        .await;
    fixture.provision_again().await;
    mallory
        .batch_execute("create table public.mine (id int primary key)")
        .await
        .unwrap();
    mallory
        .batch_execute("insert into public.mine values (1)")
        .await
        .unwrap();
    fixture
        .run("insert into public.t values (1, 'a'), (2, repeat('x', 9000)); truncate public.t")
        .await;
    assert!(!tap.all(&fixture).await.is_empty());
    let channel = fixture.channel().await;
    assert_eq!(channel.len(), "anvilbase_rt_".len() + 32);
    let secret = channel.trim_start_matches("anvilbase_rt_");

    let visible = [
        "select s::text from pg_catalog.pg_settings s",
        "select p::text from pg_catalog.pg_proc p",
        "select a::text from pg_catalog.pg_stat_activity a",
        "select l::text from pg_catalog.pg_locks l",
        "select c::text from pg_catalog.pg_listening_channels() c",
        "select t::text from pg_catalog.pg_trigger t",
        "select v::text from pg_catalog.pg_views v",
        "select d::text from pg_catalog.pg_db_role_setting d",
        "select a::text from pg_catalog.pg_attrdef a",
        "select s::text from pg_catalog.pg_stats s",
        "select d::text from pg_catalog.pg_description d",
        "select p::text from pg_catalog.pg_prepared_statements p",
    ];
    for query in visible {
        for row in mallory.query(query, &[]).await.unwrap() {
            assert!(!row.get::<_, String>(0).contains(secret), "{query}");
        }
    }
    // Not even a superuser sees it in another session's statements.
    let activity = fixture
        .admin
        .query("select query from pg_catalog.pg_stat_activity", &[])
        .await
        .unwrap();
    assert!(activity.iter().all(|row| {
        !row.get::<_, Option<String>>(0)
            .unwrap_or_default()
            .contains(secret)
    }));
    let log = std::fs::read_to_string(fixture.pg.server.data_dir().join("server.log")).unwrap();
    assert!(
        log.contains("open_feed") && log.contains("insert into public.t"),
        "the log holds statements"
    );
    assert!(!log.contains(secret), "the log holds the channel's name");
    assert!(
        !log.contains(crate::support::PASSWORD),
        "the log holds a password"
    );
}

/// A held lock's key is in pg_locks for everybody, so a stranger can be there first the next time.
#[tokio::test]
async fn a_stranger_on_the_lock_is_locked_out() {
    let fixture = Fixture::start().await;
    let mallory = fixture.mallory().await;
    let first = fixture.tap().await;
    let key = "select (classid::bigint << 32) | objid::bigint from pg_catalog.pg_locks \
               where locktype = 'advisory' and objsubid = 1 and granted";
    let seen: i64 = mallory.query_one(key, &[]).await.unwrap().get(0);
    drop(first);
    mallory
        .query_one("select pg_catalog.pg_advisory_lock($1)", &[&seen])
        .await
        .unwrap();

    let listener = connect_as(&fixture.listener_dsn()).await;
    let query = "select outcome, key_rotated, epoch from anvilbase_realtime.open_feed()";
    let row = listener.query_one(query, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, bool>(1)), ("taken", true));
    let other = connect_as(&fixture.listener_dsn()).await;
    let refused = other.query_one(query, &[]).await.unwrap();
    assert_eq!(
        (refused.get::<_, &str>(0), refused.get::<_, bool>(1)),
        ("held", false)
    );
    drop(listener);
    realtime_testkit::wait::until("the lock is free", || async {
        let again = other.query_one(query, &[]).await.unwrap();
        (again.get::<_, &str>(0) == "taken").then(|| {
            assert!(again.get::<_, i64>(2) > row.get::<_, i64>(2));
        })
    })
    .await;
}

#[tokio::test]
async fn a_schema_that_a_stranger_made_first_is_refused() {
    let pg = realtime_testkit::postgres::Postgres::start().await;
    pg.create_database(DATABASE).await;
    let mut admin = pg.connect(DATABASE).await;
    admin
        .batch_execute("create role mallory; create schema anvilbase_realtime authorization mallory")
        .await
        .unwrap();
    let error = provision(&mut admin, ProvisionOptions::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("not owned by anvilbase_realtime_owner"), "{error}");
}
