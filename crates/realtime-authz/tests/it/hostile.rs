//! Policies that fail, and policies that try to get out.

use realtime_proto::v1;
use realtime_testkit::wait::until;
use serde_json::json;

use crate::fixture::*;

/// A table whose policy calls `body`, and another one that the same connections judge.
async fn with_policy(db: &Fixture, body: &str) {
    db.run(&format!(
        "create function trick() returns boolean language plpgsql as $trick$ begin {body} return true; end $trick$; \
         create table trap(id int primary key, owner uuid); alter table trap enable row level security; \
         create policy p on trap for select to authenticated, anon using (trick()); \
         create table own(id int primary key, owner uuid); alter table own enable row level security; \
         create policy p on own for select to authenticated using (owner = auth.uid());"
    ))
    .await;
}

/// Whatever the trap did, the other table's rows are judged as ever, on the same pool of one.
async fn others_are_judged_as_ever(db: &Fixture) {
    for id in 0..3 {
        let event = db.change(&format!("insert into own values ({id}, '{U1}')")).await;
        assert_eq!(
            db.judge(&event, &[user(U2), user(U1), anon()]).await,
            [HIDDEN, WHOLE, HIDDEN]
        );
    }
}

async fn start() -> Fixture {
    Fixture::start_with(realtime_authz::LimitArgs {
        query_pool_size: 1,
        ..limits()
    })
    .await
}

#[tokio::test]
async fn claims_that_make_a_policy_raise_silence_their_own_subject_only() {
    let db = Fixture::start().await;
    db.run(
        "create table docs(id int primary key, org uuid); alter table docs enable row level security; \
         create policy p on docs for select to authenticated \
           using (org = (auth.jwt() -> 'app_metadata' ->> 'org')::uuid); \
         create table notes(id int primary key, owner uuid); alter table notes enable row level security; \
         create policy p on notes for select to authenticated using (owner = auth.uid());",
    )
    .await;
    let org = |org: &str| subject(json!({"role": "authenticated", "sub": U1, "app_metadata": {"org": org}}));
    let event = db.change(&format!("insert into docs values (1, '{U1}')")).await;
    let mut many = vec![org("null"); 100];
    many.push(org(U1));
    many.push(org(U2));
    let mut expected = vec![policy_error("22P02"); 100];
    expected.extend([WHOLE, HIDDEN]);
    assert_eq!(db.judge(&event, &many).await, expected);
    let event = db.change(&format!("insert into notes values (1, '{U1}')")).await;
    let broken = v1::Subject {
        role: "authenticated".into(),
        claims_json: "no json".into(),
    };
    let foreign = user("user_2abc");
    let nul = v1::Subject {
        role: "authenticated".into(),
        claims_json: "{\"sub\":\"a\0b\"}".into(),
    };
    let seen = db
        .judge(&event, &[broken, foreign, user(U1), nul, user(U2)])
        .await;
    assert_eq!(
        seen,
        [
            policy_error("22P02"),
            policy_error("22P02"),
            WHOLE,
            policy_error("22021"),
            HIDDEN
        ]
    );
}

#[tokio::test]
async fn a_policy_that_changes_roles_or_claims_is_not_believed() {
    let attempts = [
        // Refused by PostgreSQL itself, within the role's guard.
        ("perform set_config('role', 'none', true);", "42501"),
        ("perform set_config('role', 'none', false);", "42501"),
        ("execute 'reset role';", "42501"),
        ("execute 'set role anon';", "42501"),
        ("execute 'reset role'; execute 'set local role anon';", "42501"),
        ("perform set_config('request.jwt.claims', '{}', true);", "55000"),
        ("perform set_config('request.jwt.claims', '{}', false);", "55000"),
        ("execute 'reset all';", "55000"),
    ];
    for (attempt, sqlstate) in attempts {
        for guarded in [true, false] {
            let db = start().await;
            if !guarded {
                let drop = "drop function anvilbase_realtime.as_authenticated(text, text[])";
                db.unguard("authenticated", drop).await;
            }
            let refused = policy_error(if guarded { sqlstate } else { "55000" });
            with_policy(&db, attempt).await;
            let event = db.change(&format!("insert into trap values (1, '{U1}')")).await;
            assert_eq!(
                db.judge(&event, &[user(U1), user(U2)]).await,
                vec![refused.clone(); 2],
                "{attempt}"
            );
            others_are_judged_as_ever(&db).await;
            // Of an UPDATE every image is asked about under a check of its own.
            let update = db.change("update trap set id = 2").await;
            assert_eq!(db.judge(&update, &[user(U1)]).await, [refused], "{attempt}");
        }
    }
}

#[tokio::test]
async fn what_a_policy_leaves_behind_in_the_session_is_gone_with_its_subject() {
    let left_behind = [
        // Reverted with the transaction.
        "perform set_config('search_path', 'pg_temp', false); perform set_config('row_security', 'off', false); \
         perform set_config('app.x', 'y', false);",
        "execute 'create temp table own(id int, owner uuid)';",
        "execute 'listen x';",
        // Taken off afterwards.
        "perform pg_advisory_lock(42);",
        // Closes the session.
        "execute 'prepare mine as select true';",
        "execute 'deallocate all';",
        "perform pg_terminate_backend(pg_backend_pid());",
    ];
    for body in left_behind {
        let db = start().await;
        with_policy(&db, body).await;
        let event = db.change(&format!("insert into trap values (1, '{U1}')")).await;
        let _ = db.judge(&event, &[user(U1), anon(), user(U2)]).await;
        let locks = "select count(*) from pg_locks where locktype = 'advisory' and objid = 42";
        let held: i64 = db.admin.query_one(locks, &[]).await.unwrap().get(0);
        assert_eq!(held, 0, "{body}");
        others_are_judged_as_ever(&db).await;
    }
}

#[tokio::test]
async fn prepared_statements_of_ours_cannot_be_replaced() {
    let db = start().await;
    // The names that the driver gives are easy to guess: every one of them says "visible" from here on.
    with_policy(
        &db,
        "for n in 0..40 loop begin execute format('deallocate s%s', n); exception when others then null; end; \
           execute format('prepare s%s(text, text, text) as select true, true, true', n); end loop;"
            .replace("for n in", "declare n int; begin for n in")
            .replace("end loop;", "end loop; end;")
            .as_str(),
    )
    .await;
    // First of all a statement of the other table is prepared, then the trap goes off.
    others_are_judged_as_ever(&db).await;
    let event = db.change("insert into trap values (1, null)").await;
    let _ = db.judge(&event, &[user(U1)]).await;
    db.run("delete from own").await;
    others_are_judged_as_ever(&db).await;
}

#[tokio::test]
async fn a_policy_cannot_write() {
    let db = start().await;
    db.run("create table log(n int); grant insert on log to authenticated")
        .await;
    with_policy(&db, "insert into log values (1);").await;
    let event = db.change("insert into trap values (1, null)").await;
    // As for a GET of REST: read-only.
    assert_eq!(db.sees(&event, user(U1)).await, policy_error("25006"));
    others_are_judged_as_ever(&db).await;
}

#[tokio::test]
async fn a_slow_policy_costs_the_check_and_no_other() {
    let limits = realtime_authz::LimitArgs {
        authz_deadline_ms: 1500,
        query_pool_size: 1,
        ..limits()
    };
    let db = Fixture::start_with(limits).await;
    db.run(
        "create function slow() returns boolean language plpgsql stable as $$ begin \
           if auth.jwt() ? 'slow' then perform pg_sleep(60); end if; return true; end $$; \
         create table t(id int primary key); alter table t enable row level security; \
         create policy p on t for select to authenticated using (slow());",
    )
    .await;
    let slow = subject(json!({"role": "authenticated", "slow": true}));
    let event = db.change("insert into t values (1)").await;
    // Nothing is believed that came of a session which nobody could look at again.
    let late = no(v1::Reason::Deadline);
    assert_eq!(db.judge(&event, &[user(U1), slow, user(U2)]).await, vec![late; 3]);
    // The session on which it still runs is not used again, and ends.
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, WHOLE]);
    until("the slow session's end", || async {
        (db.sessions().await <= 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_killed_at_work_fails_closed_and_is_replaced() {
    let db = start().await;
    db.run(
        "create function wait() returns boolean language plpgsql stable as $$ begin \
           if auth.jwt() ? 'wait' then perform pg_sleep(30); end if; return true; end $$; \
         create table t(id int primary key); alter table t enable row level security; \
         create policy p on t for select to authenticated using (wait());",
    )
    .await;
    let waits = subject(json!({"role": "authenticated", "wait": true}));
    let event = db.change("insert into t values (1)").await;
    let killed = async {
        until("the check at work, to kill its session", || async {
            let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                       where usename = $1 and wait_event = 'PgSleep'";
            let killed: i64 = db.admin.query_one(sql, &[&PROBER]).await.unwrap().get(0);
            (killed > 0).then_some(())
        })
        .await;
    };
    let subjects = [user(U1), waits, user(U2)];
    let (seen, ()) = futures_util::join!(db.judge(&event, &subjects), killed);
    let lost = no(v1::Reason::DatabaseUnavailable);
    assert_eq!(seen, vec![lost; 3]);
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, WHOLE]);
}

#[tokio::test]
async fn nothing_of_a_row_or_of_claims_is_told_in_an_error() {
    let db = start().await;
    with_policy(
        &db,
        "raise exception 'the claims are %', current_setting('request.jwt.claims') using errcode = 'ZZ999';",
    )
    .await;
    let event = db.change("insert into trap values (1, null)").await;
    assert_eq!(db.sees(&event, user(U1)).await, policy_error("ZZ999"));
}
