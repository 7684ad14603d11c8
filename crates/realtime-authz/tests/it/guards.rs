//! What a policy's helper can become: nobody else than the role that is judged.

use realtime_authz::LimitArgs;
use realtime_proto::v1;
use realtime_testkit::wait::until;

use crate::fixture::*;

/// A table of authenticated users' secrets, and one whose policy for anon asks `attempt`, which gives true once it
/// has seen a secret.
async fn with_attempt(attempt: &str) -> Fixture {
    let db = Fixture::start_with(LimitArgs {
        query_pool_size: 1,
        ..limits()
    })
    .await;
    db.run(&format!(
        "create table secrets(owner uuid, word text); alter table secrets enable row level security; \
         create policy p on secrets for select to authenticated using (owner = auth.uid()); \
         insert into secrets values ('{U1}', 'hush'); \
         create function attempt() returns boolean language plpgsql as $attempt$ \
           declare claims text := current_setting('request.jwt.claims'); found boolean := false; \
           begin begin {attempt} exception when others then raise exception using errcode = 'ATTCK'; end; \
             return found; end $attempt$; \
         create table trap(id int primary key); alter table trap enable row level security; \
         create policy p on trap for select to anon using (attempt());"
    ))
    .await;
    db
}

/// What the attempt does once it is another role, and how it covers its traces.
fn reading(become_other: &str, become_anon: &str) -> String {
    format!(
        "{become_other} perform set_config('request.jwt.claims', '{{\"role\":\"authenticated\",\"sub\":\"{U1}\"}}', true); \
         found := exists (select from secrets where word = 'hush'); \
         perform set_config('request.jwt.claims', claims, true); {become_anon}"
    )
}

#[tokio::test]
async fn a_helper_cannot_become_another_role_for_a_while() {
    let pairs = [
        (
            "execute 'reset role'; execute 'set role authenticated';",
            "execute 'reset role'; execute 'set role anon';",
        ),
        (
            "perform set_config('role', 'authenticated', true);",
            "perform set_config('role', 'anon', true);",
        ),
        (
            "execute 'set local role authenticated';",
            "execute 'set local role anon';",
        ),
        (
            "execute 'set session authorization default'; execute 'set role authenticated';",
            "execute 'set role anon';",
        ),
        ("execute 'discard all';", "null;"),
    ];
    for (other, anon_again) in pairs {
        let db = with_attempt(&reading(other, anon_again)).await;
        let event = db.change("insert into trap values (1)").await;
        assert_eq!(
            db.judge(&event, &[anon(), anon()]).await,
            vec![policy_error("ATTCK"); 2],
            "{other}"
        );
    }
}

/// What PostgreSQL does where there is no guard: the tests above would fail on it, so they can fail.
#[tokio::test]
async fn without_its_guard_a_role_is_judged_and_not_guarded() {
    for undo in [
        "drop function anvilbase_realtime.as_anon(text, text[])",
        "alter function anvilbase_realtime.as_anon(text, text[]) security invoker",
        "alter function anvilbase_realtime.as_anon(text, text[]) set row_security = off",
        "alter function anvilbase_realtime.as_anon(text, text[]) owner to authenticated",
    ] {
        let attempt = reading(
            "perform set_config('role', 'authenticated', true);",
            "perform set_config('role', 'anon', true);",
        );
        let db = with_attempt(&attempt).await;
        db.unguard("anon", undo).await;
        let event = db.change("insert into trap values (1)").await;
        assert_eq!(db.judge(&event, &[anon()]).await, [WHOLE], "{undo}");
    }
}

/// What a role owns it may alter: then it is judged no more, on sessions old and new, until its guard is made again.
#[tokio::test]
async fn a_guard_that_its_role_has_altered_or_dropped_judges_nobody() {
    let guard = "anvilbase_realtime.as_anon(text, text[])";
    let db = with_attempt(&reading(
        "perform set_config('role', 'authenticated', true);",
        "perform set_config('role', 'anon', true);",
    ))
    .await;
    db.run("create schema evil; grant create, usage on schema evil to anon")
        .await;
    let event = db.change("insert into trap values (1)").await;
    let own = db
        .change(&format!("insert into secrets values ('{U2}', 'x')"))
        .await;
    let closed = no(v1::Reason::DatabaseUnavailable);
    let afresh = async || {
        db.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'anvilbase_realtime_prober'")
            .await;
        until("a session that knows nothing yet", || async {
            (db.sessions().await == 0).then_some(())
        })
        .await;
        until("its first answer", || async {
            (db.judge(&own, &[user(U1), user(U2)]).await == [HIDDEN, WHOLE]).then_some(())
        })
        .await;
    };
    for undo in [
        format!("alter function {guard} security invoker"),
        format!("alter function {guard} set row_security = off"),
        format!("alter function {guard} set search_path = evil, pg_catalog"),
        format!("alter function {guard} set role = 'authenticated'"),
        format!("alter function {guard} security invoker immutable"),
        format!("alter function {guard} stable"),
        format!("grant execute on function {guard} to authenticated"),
        format!("alter function {guard} set schema evil"),
        format!("drop function {guard}"),
    ] {
        // A session that knows the guard already, and then one that does not.
        assert_eq!(db.judge(&event, &[anon()]).await, [policy_error("ATTCK")]);
        db.run(&format!("set role anon; {undo}; reset role")).await;
        let seen = db.judge(&event, &[anon(), anon()]).await;
        assert_eq!(seen, vec![closed.clone(); 2], "{undo}");
        afresh().await;
        assert_eq!(db.sees(&event, anon()).await, closed, "{undo}");
        // Others are judged as ever, and provisioning heals it.
        assert_eq!(db.judge(&own, &[user(U1), user(U2)]).await, [HIDDEN, WHOLE]);
        db.provision_again().await;
        afresh().await;
        assert_eq!(
            db.judge(&event, &[anon()]).await,
            [policy_error("ATTCK")],
            "{undo}"
        );
    }
}

/// Prepared statements outlive the transaction of whoever made them, and share their names with those of the protocol.
#[tokio::test]
async fn a_helper_cannot_put_statements_of_its_own_in_the_place_of_ours() {
    let db = Fixture::start_with(LimitArgs {
        query_pool_size: 1,
        ..limits()
    })
    .await;
    db.run(
        "create function evil(place text) returns boolean[] language plpgsql as $$ begin \
           begin execute 'reset role'; exception when others then null; end; \
           raise log 'evil is % as %', current_user, place; return array[true, true, true]; end $$; \
         create function attempt() returns boolean language plpgsql as $$ declare s record; begin \
           for s in select name, array_to_string(parameter_types, ',') as types, left(statement, 40) as place \
                    from pg_prepared_statements where not from_sql loop \
             execute format('deallocate %I', s.name); \
             execute format('prepare %I(%s) as select public.evil(%L)', s.name, s.types, s.place); \
           end loop; return false; end $$; \
         create table trap(id int primary key); alter table trap enable row level security; \
         create policy p on trap for select to anon, authenticated using (attempt()); \
         create table own(id int primary key, owner uuid); alter table own enable row level security; \
         create policy p on own for select to authenticated using (owner = auth.uid());",
    )
    .await;
    let event = db.change("insert into trap values (1)").await;
    let others = subject(serde_json::json!({"role": "anon", "sub": U2}));
    let seen = db
        .judge(&event, &[anon(), others, anon(), user(U1), user(U2), user(U1)])
        .await;
    assert!(
        seen.iter()
            .all(|seen| *seen == no(v1::Reason::DatabaseUnavailable)),
        "{seen:?}"
    );
    // Within a guard it was somebody, and that is why nothing of this is believed.
    let log = db.server_log();
    assert!(
        log.contains("evil is anon as") && log.contains("evil is authenticated as"),
        "{log}"
    );
    assert!(!log.contains(&format!("evil is {PROBER}")), "{log}");
    let own = db.change(&format!("insert into own values (1, '{U1}')")).await;
    assert_eq!(
        db.judge(&own, &[user(U1), user(U2), anon()]).await,
        [WHOLE, HIDDEN, HIDDEN]
    );
}

/// What is logged of a policy's error or warning, and what a helper can learn of how it was called.
#[tokio::test]
async fn neither_rows_nor_claims_are_in_the_servers_log_or_in_a_helpers_reach() {
    let db = Fixture::start().await;
    db.run(
        "create function whisper() returns boolean language plpgsql as $$ declare stack text; begin \
           get diagnostics stack = pg_context; \
           for n in 1..9 loop stack := stack || coalesce(current_setting('anvilbase_realtime.p' || n, true), ''); end loop; \
           if stack like '%hush%' then raise exception using errcode = 'LEAKS'; end if; \
           raise warning 'whispered'; return true; end $$; \
         create table t(id int primary key, word text); alter table t enable row level security; \
         create policy p on t for select to authenticated using (whisper() and auth.uid() is not null);",
    )
    .await;
    let event = db.change("insert into t values (1, 'hush-row')").await;
    let told = subject(serde_json::json!({"role": "authenticated", "sub": U1, "secret": "hush-claim"}));
    let broken = subject(serde_json::json!({"role": "authenticated", "sub": "hush-subject"}));
    let no_json = v1::Subject {
        role: "authenticated".into(),
        claims_json: "{\"role\": hush-broken}".into(),
    };
    assert_eq!(
        db.judge(&event, &[told, broken, no_json]).await,
        [WHOLE, policy_error("22P02"), policy_error("22P02")]
    );
    let log = db.server_log();
    assert!(
        log.contains("WARNING:  whispered") && log.contains("what a policy runs has raised an error"),
        "{log}"
    );
    assert!(!log.contains("hush"), "{log}");
}

/// The prober's login is the cluster's: whoever were it could end the sessions of every database.
#[tokio::test]
async fn a_helper_cannot_end_other_sessions_of_the_prober() {
    let db = with_attempt(
        "execute 'reset role'; \
         perform pg_terminate_backend(pid) from pg_stat_activity where usename = session_user and pid <> pg_backend_pid();",
    )
    .await;
    let other = db.pg.connect_login(PROBER, "prober", "postgres").await;
    let event = db.change("insert into trap values (1)").await;
    assert_eq!(db.judge(&event, &[anon()]).await, [policy_error("ATTCK")]);
    other.query_one("select 1", &[]).await.unwrap();
    // As the role itself it may not either.
    db.run(
        "create or replace function attempt() returns boolean language plpgsql as $$ begin \
           perform pg_terminate_backend(pid) from pg_stat_activity where usename = session_user and pid <> pg_backend_pid(); \
           return true; end $$",
    )
    .await;
    assert_eq!(db.judge(&event, &[anon()]).await, [policy_error("42501")]);
    other.query_one("select 1", &[]).await.unwrap();
}

#[tokio::test]
async fn every_role_that_the_prober_can_become_has_a_guard_of_its_own() {
    let db = Fixture::start().await;
    let long = "r".repeat(63);
    db.run(&format!(
        "create role \"Odd ' role\"; create role {long}; grant \"Odd ' role\", {long} to anvilbase_realtime_prober"
    ))
    .await;
    db.provision_again().await;
    let sql = "select r.rolname::text from pg_proc p join pg_roles r on r.oid = p.proowner \
               where p.pronamespace = 'anvilbase_realtime'::regnamespace and p.proname like 'as\\_%' and p.prosecdef order by 1";
    let rows = db.admin.query(sql, &[]).await.unwrap();
    let guarded: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(guarded, ["Odd ' role", "anon", "authenticated", &long]);
    // Nobody but its role may call one, and no role may call what it does not own here.
    for role in ["anon", "\"Odd ' role\""] {
        db.run(&format!("set role {role}")).await;
        let call = "select anvilbase_realtime.as_authenticated('x', '{}')";
        let refused = db.admin.batch_execute(call).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{role}");
        let replace = "create or replace function anvilbase_realtime.as_anon(statement text, parameters text[]) \
                       returns boolean[] language sql as 'select array[true, true, true]'";
        let refused = db.admin.batch_execute(replace).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{role}");
        db.run("reset role").await;
    }
    until("a verdict through a guard that was made anew", || async {
        db.run(
            "create table if not exists t(id int primary key); alter table t enable row level security; \
                drop policy if exists p on t; create policy p on t using (true); truncate t",
        )
        .await;
        let event = db.change("insert into t values (1)").await;
        (db.sees(&event, user(U1)).await == WHOLE).then_some(())
    })
    .await;
}
