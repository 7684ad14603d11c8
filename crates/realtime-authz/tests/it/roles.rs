//! Which roles are judged at all, and what they may read.

use realtime_proto::v1;
use serde_json::json;

use crate::fixture::*;

#[tokio::test]
async fn only_the_projects_roles_are_judged() {
    let db = Fixture::start().await;
    db.run(
        "create role outsider; grant outsider to anvilbase_realtime_prober; \
         create table t(id int primary key); alter table t enable row level security; \
         create policy p on t using (true); grant select on t to outsider, public;",
    )
    .await;
    let event = db.change("insert into t values (1)").await;
    let refused = no(v1::Reason::NoPrivilege);
    // Not listed; listed and bypassing; the prober itself; a superuser; tricks with names.
    for role in [
        "outsider",
        "service_role",
        "anvilbase_realtime_prober",
        "postgres",
        "none",
        "",
        "authenticated; reset role",
    ] {
        let seen = db
            .judge(&event, &[subject(json!({ "role": role })), user(U1)])
            .await;
        assert_eq!(seen, [refused.clone(), WHOLE], "{role}");
    }
    // Listed, but there is no such role in the database; then, not one for the prober to take on.
    for change in ["", "create role ghost; grant select on t to ghost"] {
        db.run(change).await;
        let seen = db
            .judge(&event, &[subject(json!({"role": "ghost"})), user(U1)])
            .await;
        assert_eq!(seen, [refused.clone(), WHOLE]);
        let told = db.describe("public", "t", "ghost").await.unwrap_err();
        assert_eq!(told.code(), tonic::Code::FailedPrecondition);
    }
}

#[tokio::test]
async fn a_role_reads_the_columns_that_it_may_and_an_empty_list_means_none() {
    let db = Fixture::start().await;
    db.run(
        "create table cp(id int primary key, pub text, secret text); alter table cp enable row level security; \
         create policy p on cp using (true); \
         revoke select on cp from authenticated, anon; grant select (id, pub) on cp to authenticated; \
         create table none(id int primary key); alter table none enable row level security; create policy p on none using (true); \
         revoke select on none from authenticated;",
    )
    .await;
    let some = |old| Seen::Row {
        old,
        columns: Some(vec!["id".into(), "pub".into()]),
    };
    let refused = no(v1::Reason::NoPrivilege);
    assert_eq!(
        db.seen("insert into cp values (1, 'a', 'b')", &[user(U1), anon()])
            .await,
        [some(false), refused.clone()]
    );
    assert_eq!(
        db.seen("update cp set secret = 'c'", &[user(U1), anon()]).await,
        [some(true), refused.clone()]
    );
    assert_eq!(
        db.seen("delete from cp", &[user(U1), anon()]).await,
        [some(false), refused.clone()]
    );
    assert_eq!(
        db.seen("insert into none values (1)", &[user(U1), anon()]).await,
        [refused, WHOLE]
    );
}

#[tokio::test]
async fn without_row_security_a_table_must_be_public_on_purpose() {
    let db = Fixture::start().await;
    db.run(
        "create table open_t(id int primary key); \
         create table public_t(id int primary key); \
         select anvilbase_realtime.set_table('public', 'public_t', realtime_public => true); \
         create table quiet(id int primary key); alter table quiet enable row level security; create policy p on quiet using (true); \
         select anvilbase_realtime.set_table('public', 'quiet', delete_events => false); \
         create schema closed; create table closed.t(id int primary key); alter table closed.t enable row level security; \
         create policy p on closed.t using (true); grant select on closed.t to authenticated; \
         select anvilbase_realtime.set_table('closed', 't', emit_events => true);",
    )
    .await;
    let both = [user(U1), anon()];
    let off = no(v1::Reason::RlsDisabled);
    let withheld = no(v1::Reason::DeletesWithheld);
    for sql in [
        "insert into open_t values (1)",
        "update open_t set id = 2",
        "delete from open_t",
    ] {
        assert_eq!(db.seen(sql, &both).await, vec![off.clone(); 2], "{sql}");
    }
    assert_eq!(
        db.seen("insert into public_t values (1)", &both).await,
        [WHOLE, WHOLE]
    );
    assert_eq!(
        db.seen("update public_t set id = 2", &both).await,
        [WHOLE_OLD, WHOLE_OLD]
    );
    assert_eq!(db.seen("delete from public_t", &both).await, [WHOLE, WHOLE]);
    assert_eq!(
        db.seen("insert into quiet values (1)", &both).await,
        [WHOLE, WHOLE]
    );
    assert_eq!(db.seen("delete from quiet", &both).await, vec![withheld; 2]);
    // SELECT on the table is not enough without USAGE on its schema.
    assert_eq!(
        db.seen("insert into closed.t values (1)", &both).await,
        vec![no(v1::Reason::NoPrivilege); 2]
    );
}

#[tokio::test]
async fn a_role_that_bypasses_row_security_is_not_served_by_it() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key); alter table t enable row level security; create policy p on t using (true); \
         alter role authenticated bypassrls;",
    )
    .await;
    // Nor is the prober let in that could become such a role.
    assert_eq!(
        db.seen("insert into t values (1)", &[user(U1)]).await,
        [no(v1::Reason::DatabaseUnavailable)]
    );
    db.run("alter role authenticated nobypassrls; alter table t owner to authenticated")
        .await;
    let after = realtime_core::change::Position { epoch: 1, seq: 1 };
    let event = db.change("insert into t values (2)").await;
    assert_eq!(
        db.judge_after(&event, &[user(U1), anon()], after).await,
        [no(v1::Reason::RlsDisabled), WHOLE]
    );
    db.run("alter table t force row level security").await;
    let after = realtime_core::change::Position { epoch: 1, seq: 2 };
    assert_eq!(
        db.judge_after(&event, &[user(U1), anon()], after).await,
        [WHOLE, WHOLE]
    );
}
