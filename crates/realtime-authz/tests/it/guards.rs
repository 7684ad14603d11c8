//! What a policy's helper can become: nobody else than the role that is judged.

use realtime_authz::LimitArgs;
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
        db.run(undo).await;
        let event = db.change("insert into trap values (1)").await;
        assert_eq!(db.judge(&event, &[anon()]).await, [WHOLE], "{undo}");
    }
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
