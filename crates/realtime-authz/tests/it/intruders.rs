//! What others than a policy's author can bring into its judgement, and what they get of it.

use realtime_proto::v1;
use serde_json::json;

use crate::fixture::*;

/// In REST a statement is planned for each caller, or for all by one plan; here it must never be for all.
#[tokio::test]
async fn a_helper_that_wrongly_says_that_it_is_immutable_does_not_give_everybody_the_first_ones_verdict() {
    let db = Fixture::start_with(realtime_authz::LimitArgs {
        query_pool_size: 1,
        ..limits()
    })
    .await;
    db.run(
        "create function me() returns uuid language plpgsql immutable as $$ begin return auth.uid(); end $$; \
         create table t(id int primary key, owner uuid); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = me());",
    )
    .await;
    for id in 0..10 {
        let event = db.change(&format!("insert into t values ({id}, '{U1}')")).await;
        assert_eq!(
            db.judge(&event, &[user(U1), user(U2), user(U1), user(U2)]).await,
            [WHOLE, HIDDEN, WHOLE, HIDDEN]
        );
    }
    for id in 10..20 {
        let event = db.change(&format!("insert into t values ({id}, '{U1}')")).await;
        assert_eq!(db.judge(&event, &[user(U2), user(U1)]).await, [HIDDEN, WHOLE]);
    }
}

/// A domain's check runs while the image becomes a row, before the policy looks at it.
#[tokio::test]
async fn a_domain_of_somebody_elses_cannot_change_whose_eyes_look() {
    let db = Fixture::start().await;
    db.run(&format!(
        "create function intrude() returns boolean language plpgsql as $$ begin \
           if current_user = 'authenticated' then \
             perform set_config('request.jwt.claims', '{{\"role\":\"authenticated\",\"sub\":\"{U1}\"}}', true); end if; \
           return true; end $$; \
         create domain sly as int check (intrude()); \
         create table t(id int primary key, owner uuid, d sly); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = auth.uid());"
    ))
    .await;
    let unreadable = no(v1::Reason::ImageUnreadable);
    let event = db.change(&format!("insert into t values (1, '{U1}', 1)")).await;
    assert_eq!(db.sees(&event, user(U2)).await, unreadable);
    let update = db.change("update t set d = 2").await;
    assert_eq!(db.sees(&update, user(U2)).await, unreadable);
}

/// Columns and tables that are called what the statement itself uses.
#[tokio::test]
async fn hostile_names_stand_for_themselves() {
    let db = Fixture::start().await;
    let long = "é".repeat(31);
    for (table, column) in [
        ("t", "t"),
        ("r", "r"),
        ("v", "v"),
        ("$1", "$2"),
        ("json_populate_record", "value"),
        ("a\"b", "a\"b"),
        ("a'; --", "\\"),
        ("current_user", "current_user"),
        ("x.y", "public.x.y"),
        (&long, &long),
        ("new", "old"),
        ("\u{1}\n", "\t\\n"),
        ("{VAR ", ":varattno 7"),
    ] {
        let (table, column) = (table.replace('"', "\"\""), column.replace('"', "\"\""));
        let (qualified, column) = (format!("public.\"{table}\""), format!("\"{column}\""));
        db.run(&format!(
            "create table {qualified} (id int, secret text, {column} uuid, body text, primary key (id, {column})); \
             alter table {qualified} enable row level security; \
             create policy p on {qualified} for select to authenticated using ({column} = auth.uid() \
               and (select count(*) from generate_series(1, 1) as \"r\"(id) where id = \"{table}\".id) < 2 \
               and \"{table}\".* is not null)"
        ))
        .await;
        let insert = format!("insert into {qualified} values (1, 's', '{U1}', 'b')");
        assert_eq!(
            db.seen(&insert, &[user(U1), user(U2), anon()]).await,
            [WHOLE, HIDDEN, HIDDEN],
            "{table}"
        );
        // By its key.
        let large = format!("update {qualified} set body = repeat('x', 9000)");
        assert_eq!(
            db.seen(&large, &[user(U1), user(U2)]).await,
            [WHOLE, HIDDEN],
            "{table}"
        );
        db.run(&format!("drop table {qualified}")).await;
    }
}

/// An operator or function of the same name that fits better than the built-in one, made after facts were read.
#[tokio::test]
async fn a_double_of_a_built_in_name_is_not_taken_for_it() {
    let db = Fixture::start().await;
    db.run(
        "create type mood as enum ('good', 'bad'); \
         create table t(id int primary key, mood mood); alter table t enable row level security; \
         create policy p on t for select to authenticated using (mood = 'good'::mood);",
    )
    .await;
    let event = db.change("insert into t values (1, 'bad')").await;
    assert_eq!(db.sees(&event, user(U1)).await, HIDDEN);
    db.run(
        "create function yes(mood, mood) returns boolean language sql as 'select true'; \
         create operator public.= (function = yes, leftarg = mood, rightarg = mood);",
    )
    .await;
    // On connections old and new, with facts as old as the feed's notice of it.
    let seen = realtime_core::change::Position { epoch: 1, seq: 1 };
    assert_eq!(db.judge_after(&event, &[user(U1)], seen).await, [HIDDEN]);
    db.run(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'anvilbase_realtime_prober'",
    )
    .await;
    realtime_testkit::wait::until("the old sessions' end", || async {
        (db.sessions().await == 0).then_some(())
    })
    .await;
    let _ = db.judge_after(&event, &[user(U1)], seen).await;
    assert_eq!(db.judge_after(&event, &[user(U1)], seen).await, [HIDDEN]);
}

/// What the facts are read from while their table is dropped.
#[tokio::test]
async fn the_policies_of_a_table_that_is_being_dropped_admit_nothing() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key); alter table t enable row level security; \
         create policy p on t for select using (true)",
    )
    .await;
    let reader = db.pg.connect(DATABASE).await;
    reader
        .batch_execute("begin isolation level repeatable read; select 1")
        .await
        .unwrap();
    let relid: u32 = reader
        .query_one("select 't'::regclass::oid", &[])
        .await
        .unwrap()
        .get(0);
    db.run("drop table t").await;
    let policies = include_str!("../../src/tables/sql/policies.sql");
    let rows = reader.query(policies, &[&relid, &"anon"]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].get::<_, &str>("condition"), "false");
}

/// A role's own defaults come with its login; a database's come to everybody.
#[tokio::test]
async fn defaults_of_the_database_change_no_verdict() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, owner uuid, share float8, at timestamptz, word text); \
         alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = auth.uid() and share = '0.30000000000000004'::float8 and at >= '2026-02-01 00:00:00+00'::timestamptz and word = e'a\\\\b''c');",
    )
    .await;
    for default in [
        "row_security = off",
        "search_path = pg_temp",
        "default_transaction_isolation = serializable",
        "default_transaction_read_only = on",
        "datestyle = 'SQL, DMY'",
        "timezone = 'Asia/Kathmandu'",
        "extra_float_digits = -15",
        "standard_conforming_strings = off",
        "quote_all_identifiers = on",
        "transform_null_equals = on",
        "array_nulls = off",
        "intervalstyle = 'sql_standard'",
        "lc_monetary = 'C'",
        "bytea_output = 'escape'",
        "plan_cache_mode = force_generic_plan",
        "jit = on",
    ] {
        db.run(&format!("alter database {DATABASE} set {default}")).await;
    }
    let insert = format!(
        "insert into t values (1, '{U1}', 0.1::float8 + 0.2::float8, '2026-02-01 00:00:00+00', e'a\\\\b''c')"
    );
    let near = format!("insert into t values (2, '{U1}', 0.3, '2026-02-01 00:00:00+00', e'a\\\\b''c')");
    let early = format!(
        "insert into t values (3, '{U1}', 0.1::float8 + 0.2::float8, '2026-01-31 23:59:59+00', e'a\\\\b''c')"
    );
    for _ in 0..8 {
        assert_eq!(db.seen(&insert, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
        assert_eq!(db.seen(&near, &[user(U1)]).await, [HIDDEN]);
        assert_eq!(db.seen(&early, &[user(U1)]).await, [HIDDEN]);
        db.run("delete from t").await;
    }
    let nobody = subject(json!({"role": "authenticated"}));
    assert_eq!(db.seen(&insert, &[nobody]).await, [HIDDEN]);
}
