//! Limits, and what happens at them.

use realtime_authz::{AuthzServer, LimitArgs};
use realtime_core::claims::Role;
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_proto::v1;
use realtime_proto::v1::authz_service_server::AuthzService as _;
use realtime_testkit::wait::until;
use serde_json::json;
use tonic::Request;

use crate::fixture::*;

const SLOW: &str = "create function hold() returns boolean language plpgsql stable as $$ begin \
       if auth.jwt() ? 'hold' then perform pg_sleep(600); end if; return true; end $$; \
     create table t(id int primary key); alter table t enable row level security; \
     create policy p on t for select to authenticated using (hold());";

#[tokio::test]
async fn a_full_pool_fails_closed_and_is_counted() {
    let limits = LimitArgs {
        query_pool_size: 2,
        query_pool_acquire_ms: 100,
        authz_deadline_ms: 4_000,
        ..limits()
    };
    let db = Fixture::start_with(limits).await;
    db.run(SLOW).await;
    let event = db.change("insert into t values (1)").await;
    // The facts are read before the pool is full.
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    let hold = || subject(json!({"role": "authenticated", "hold": 1}));
    let held = [vec![hold()], vec![hold()]];
    let holders = futures_util::future::join_all(held.iter().map(|subjects| db.judge(&event, subjects)));
    let others = async {
        until("both connections at work", || async {
            let sql = "select count(*) from pg_stat_activity where usename = $1 and wait_event = 'PgSleep'";
            let busy: i64 = db.admin.query_one(sql, &[&PROBER]).await.unwrap().get(0);
            (busy == 2).then_some(())
        })
        .await;
        assert_eq!(db.sees(&event, user(U1)).await, no(v1::Reason::PoolSaturated));
        let text = db.metrics.encode_process().unwrap();
        assert!(text.contains("authz_pool_saturated_total 1\n"), "{text}");
        assert!(text.contains("authz_connections 2\n"), "{text}");
    };
    let (late, ()) = futures_util::join!(holders, others);
    assert_eq!(late, vec![vec![no(v1::Reason::Deadline)]; 2]);
    // What was late was closed, not returned.
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    until("closed connections are gone", || async {
        (db.sessions().await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_process_limit_is_shared_and_idle_connections_give_way() {
    let limits = LimitArgs {
        max_db_connections: 1,
        query_pool_acquire_ms: 5_000,
        ..limits()
    };
    let db = Fixture::start_with(limits).await;
    db.run("create table t(id int primary key); alter table t enable row level security; create policy p on t using (true)").await;
    db.catalog.replace(vec![
        project(&db.pg, "app", PROBER, "prober"),
        project(&db.pg, "two", PROBER, "prober"),
    ]);
    let event = db.change("insert into t values (1)").await;
    for _ in 0..3 {
        assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
        let request = v1::CheckRequest {
            project: "two".into(),
            event: Some((&event).into()),
            subjects: vec![user(U1)],
            facts: None,
        };
        let verdicts = db
            .authz
            .check(Request::new(request))
            .await
            .unwrap()
            .into_inner()
            .verdicts;
        assert_eq!(verdicts[0].decision(), v1::Decision::Deliver);
    }
    until("one connection in all", || async {
        (db.sessions().await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_counted_down() {
    let db = Fixture::start_with(LimitArgs {
        query_pool_idle_seconds: 1,
        ..limits()
    })
    .await;
    db.run("create table t(id int primary key); alter table t enable row level security; create policy p on t using (true)").await;
    let event = db.change("insert into t values (1)").await;
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    let name: String = db
        .admin
        .query_one(
            "select application_name from pg_stat_activity where usename = $1 limit 1",
            &[&PROBER],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(name, "anvilbase-realtime-authz/app");
    until("no sessions", || async {
        (db.sessions().await == 0).then_some(())
    })
    .await;
    assert!(
        db.metrics
            .encode_process()
            .unwrap()
            .contains("authz_connections 0\n")
    );
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
}

#[tokio::test]
async fn a_login_that_may_too_much_is_refused() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key); alter table t enable row level security; create policy p on t using (true); \
         create role sneaky login password 'x' noinherit; grant anon, authenticated to sneaky; \
         grant usage on schema anvilbase_realtime to sneaky; grant select on anvilbase_realtime.table_settings, anvilbase_realtime.guarded to sneaky; \
         create role middle; grant service_role to middle; create table of_sneaky(id int);",
    )
    .await;
    let event = db.change("insert into t values (1)").await;
    let refusals = [
        ("alter role sneaky superuser", "alter role sneaky nosuperuser"),
        ("alter role sneaky bypassrls", "alter role sneaky nobypassrls"),
        ("grant service_role to sneaky", "revoke service_role from sneaky"),
        ("grant middle to sneaky", "revoke middle from sneaky"),
        (
            "alter table of_sneaky owner to sneaky",
            "alter table of_sneaky owner to postgres",
        ),
    ];
    let judged = async || {
        // Every catalog of its own: nothing is kept from the login's better days.
        let mut config = project(&db.pg, "app", "sneaky", "x");
        config.roles = vec![Role::new("authenticated")];
        let server = AuthzServer::new(
            Catalog::from_projects(vec![config]),
            &limits(),
            &Metrics::new(),
            &db.tasks,
        );
        let request = v1::CheckRequest {
            project: "app".into(),
            event: Some((&event).into()),
            subjects: vec![user(U1)],
            facts: None,
        };
        Seen::from(
            server
                .service()
                .check(Request::new(request))
                .await
                .unwrap()
                .into_inner()
                .verdicts
                .remove(0),
        )
    };
    assert_eq!(judged().await, WHOLE);
    for (grant, revoke) in refusals {
        db.run(grant).await;
        assert_eq!(judged().await, no(v1::Reason::DatabaseUnavailable), "{grant}");
        db.run(revoke).await;
        assert_eq!(judged().await, WHOLE, "{revoke}");
    }
}

#[tokio::test]
async fn a_database_that_is_down_fails_closed_and_comes_back() {
    let mut db = Fixture::start().await;
    db.run("create table t(id int primary key); alter table t enable row level security; create policy p on t using (true)").await;
    let event = db.change("insert into t values (1)").await;
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    db.pg.server.stop(false);
    assert_eq!(
        db.sees(&event, user(U1)).await,
        no(v1::Reason::DatabaseUnavailable)
    );
    db.pg.server.resume().await.unwrap();
    until("verdicts again", || async {
        (db.sees(&event, user(U1)).await == WHOLE).then_some(())
    })
    .await;
}
