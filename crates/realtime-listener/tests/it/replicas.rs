//! Writes of replicas' sessions: silent, unless a table is set to announce them.

use realtime_testkit::wait::until;

use crate::support::{DATABASE, Fixture, brief};

#[tokio::test]
async fn g03_a_replicas_writes_are_silent_unless_the_table_is_set_to_announce_them() {
    let fixture = Fixture::start().await;
    fixture
        .run(
            "create table public.t (id int primary key); create table public.p (id int) partition by range (id); \
             create table public.p1 partition of public.p for values from (0) to (10)",
        )
        .await;
    let mut tap = fixture.tap().await;
    let as_replica = "set session_replication_role = replica; insert into public.t values ({n}); \
         insert into public.p values ({n}); truncate public.p1; set session_replication_role = origin";
    let write = |n: &str| as_replica.replace("{n}", n);
    fixture.run(&write("1")).await;
    assert!(tap.all(&fixture).await.is_empty());

    for table in ["t", "p"] {
        fixture
            .run(&format!(
                "select anvilbase_realtime.set_table('public', '{table}', replica_events => true)"
            ))
            .await;
    }
    // A partition that is made later, and an owner who switches triggers off and on, change nothing about it.
    fixture
        .run(
            "create table public.p2 partition of public.p for values from (10) to (20); \
             alter table public.t disable trigger all; alter table public.t enable trigger all",
        )
        .await;
    tap.all(&fixture).await;
    fixture.run(&write("2")).await;
    fixture.run(&write("12")).await;
    let operations: Vec<_> = tap
        .all(&fixture)
        .await
        .iter()
        .map(|event| format!("{} {}", event.operation(), event.json["t"].as_str().unwrap()))
        .collect();
    assert_eq!(operations, ["I t", "I p", "T p", "I t", "I p", "T p"]);
    // Ordinary writes give one event as before.
    fixture
        .run("insert into public.t values (3); insert into public.p values (3)")
        .await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 3", "I 3"]);

    for table in ["t", "p"] {
        fixture
            .run(&format!(
                "select anvilbase_realtime.set_table('public', '{table}', replica_events => false)"
            ))
            .await;
    }
    tap.all(&fixture).await;
    fixture.run(&write("4")).await;
    assert!(tap.all(&fixture).await.is_empty());
}

/// A subscriber of logical replication, whose rows another database writes.
#[tokio::test]
async fn g03_a_logical_subscription_is_silent_or_heard() {
    let fixture = Fixture::start_with(&[("wal_level", "logical")]).await;
    fixture.pg.create_database("origin").await;
    let origin = fixture.pg.connect("origin").await;
    let table = "create table public.t (id int primary key, b text)";
    origin
        .batch_execute(&format!("{table}; create publication p for table public.t"))
        .await
        .unwrap();
    origin
        .batch_execute("select pg_catalog.pg_create_logical_replication_slot('s', 'pgoutput')")
        .await
        .unwrap();
    fixture.run(table).await;
    // Within one server, the slot must be there before.
    let dsn = fixture.pg.server.superuser_url("origin");
    fixture
        .run(&format!(
            "create subscription s connection '{dsn}' publication p with (create_slot = false, slot_name = 's', copy_data = false)"
        ))
        .await;
    let mut tap = fixture.tap().await;
    let subscriber = fixture.pg.connect(DATABASE).await;
    let applied = async |id: i32| {
        origin
            .execute("insert into public.t values ($1, 'x')", &[&id])
            .await
            .unwrap();
        until("the subscription to apply the row", || async {
            let there = subscriber
                .query("select from public.t where id = $1", &[&id])
                .await;
            (there.unwrap().len() == 1).then_some(())
        })
        .await;
    };
    applied(1).await;
    assert!(tap.changes(&fixture).await.is_empty());
    fixture
        .run("select anvilbase_realtime.set_table('public', 't', replica_events => true)")
        .await;
    applied(2).await;
    origin
        .batch_execute("update public.t set b = 'y' where id = 2; delete from public.t where id = 1; insert into public.t values (3)")
        .await
        .unwrap();
    until("the subscription to apply the rest", || async {
        let there = subscriber.query("select from public.t where id = 3", &[]).await;
        (there.unwrap().len() == 1).then_some(())
    })
    .await;
    assert_eq!(
        brief(&tap.changes(&fixture).await, "id"),
        ["I 2", "U 2", "D 1", "I 3"]
    );
    fixture
        .run("alter subscription s disable; alter subscription s set (slot_name = none); drop subscription s")
        .await;
}
