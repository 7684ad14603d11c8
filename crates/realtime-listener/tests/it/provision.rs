//! Installing, again and again, on what there is.

use realtime_listener::provision::{Password, ProvisionError, ProvisionOptions, provision};
use realtime_testkit::postgres::Postgres;

use crate::support::{DATABASE, Fixture, brief, options};

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let mut fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    fixture
        .run("select anvilbase_realtime.set_table('public', 't', realtime_public => true)")
        .await;
    let state = "select pg_catalog.concat((select s::text from anvilbase_realtime.settings s), \
        (select pg_catalog.string_agg(t::text, ',' order by t.relid) from anvilbase_realtime.tables t), \
        (select pg_catalog.string_agg(pg_catalog.concat(g.tgname, g.tgenabled), ',' order by g.oid) from pg_catalog.pg_trigger g), \
        (select pg_catalog.string_agg(pg_catalog.concat(p.oid::regprocedure, p.proacl), ',' order by p.oid) from pg_catalog.pg_proc p \
         where p.pronamespace = 'anvilbase_realtime'::regnamespace))";
    let before = fixture.text(state).await;
    let report = fixture.provision_again().await;
    assert!(
        report.attached.is_empty() && report.notices.is_empty(),
        "{report:?}"
    );
    assert_eq!(fixture.text(state).await, before);
    // The tap's login still works: a password that was not given is kept.
    let mut tap = fixture.tap().await;
    fixture.run("insert into public.t values (1)").await;
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1"]);
}

#[tokio::test]
async fn what_default_privileges_gave_away_is_taken_back() {
    let pg = Postgres::start().await;
    pg.create_database(DATABASE).await;
    let mut admin = pg.connect(DATABASE).await;
    admin
        .batch_execute(
            "create role nosy login; alter default privileges grant all on tables to nosy; \
             alter default privileges grant all on functions to nosy; alter default privileges grant all on schemas to nosy",
        )
        .await
        .unwrap();
    provision(&mut admin, options()).await.unwrap();
    let held = "select count(*) from (
        select c.relacl as acl from pg_catalog.pg_class c where c.relnamespace = 'anvilbase_realtime'::regnamespace
        union all select p.proacl from pg_catalog.pg_proc p where p.pronamespace = 'anvilbase_realtime'::regnamespace
          and p.proname <> 'emit'
        union all select n.nspacl from pg_catalog.pg_namespace n where n.nspname = 'anvilbase_realtime') a, \
        pg_catalog.aclexplode(a.acl) x where x.grantee in (0, 'nosy'::regrole)";
    assert_eq!(admin.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
    // Without an explicit list PUBLIC may execute.
    let open = "select count(*) from pg_catalog.pg_proc p where p.pronamespace = 'anvilbase_realtime'::regnamespace \
                and p.proacl is null";
    assert_eq!(admin.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn databases_of_one_cluster_are_provisioned_at_once() {
    let pg = Postgres::start().await;
    let mut runs = Vec::new();
    for n in 0..4 {
        let name = format!("app{n}");
        pg.create_database(&name).await;
        let mut admin = pg.connect(&name).await;
        runs.push(async move {
            provision(&mut admin, options()).await.unwrap();
            let row = admin
                .query_one("select channel, lock_key from anvilbase_realtime.settings", &[])
                .await
                .unwrap();
            (row.get::<_, String>(0), row.get::<_, i64>(1))
        });
    }
    let mut settings = futures_util::future::join_all(runs).await;
    settings.sort();
    settings.dedup();
    assert_eq!(settings.len(), 4);
}

#[tokio::test]
async fn tables_that_were_there_before_are_attached_unless_locked() {
    let pg = Postgres::start().await;
    pg.create_database(DATABASE).await;
    let mut admin = pg.connect(DATABASE).await;
    admin
        .batch_execute("create table public.free (a int); create table public.busy (a int); create schema o; create table o.t (a int)")
        .await
        .unwrap();
    let other = pg.connect(DATABASE).await;
    other
        .batch_execute("begin; insert into public.busy values (1)")
        .await
        .unwrap();
    let report = provision(&mut admin, options()).await.unwrap();
    assert_eq!(report.attached, ["public.free"]);
    assert_eq!(report.not_attached.len(), 1);
    assert_eq!(report.not_attached[0].0, "public.busy");
    other.batch_execute("commit").await.unwrap();
    let report = provision(&mut admin, ProvisionOptions::default()).await.unwrap();
    assert_eq!(report.attached, ["public.busy"]);
}

#[tokio::test]
async fn a_dump_in_another_database_starts_anew() {
    let mut fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    fixture
        .run("select anvilbase_realtime.set_table('public', 't', realtime_public => true)")
        .await;
    let channel = fixture.channel().await;
    // What a restored dump looks like: rows of another database's oids, and its channel.
    fixture.run("update anvilbase_realtime.settings set database_oid = 1; update anvilbase_realtime.tables set database_oid = 1").await;
    fixture.provision_again().await;
    assert_ne!(fixture.channel().await, channel);
    let public = "select count(*)::text from anvilbase_realtime.tables where realtime_public";
    assert_eq!(fixture.text(public).await, "0");
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_by_name() {
    let pg = Postgres::start().await;
    let admin = pg.connect("postgres").await;
    admin
        .batch_execute(
            "create database ascii encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'",
        )
        .await
        .unwrap();
    let mut ascii = pg.connect("ascii").await;
    let error = provision(&mut ascii, options()).await.unwrap_err().to_string();
    assert!(error.contains("SQL_ASCII"), "{error}");

    pg.create_database("later").await;
    let mut later = pg.connect("later").await;
    provision(&mut later, options()).await.unwrap();
    later
        .batch_execute("update anvilbase_realtime.settings set version = 999")
        .await
        .unwrap();
    let error = provision(&mut later, options()).await.unwrap_err().to_string();
    assert!(error.contains("newer release"), "{error}");

    let clear = ProvisionOptions {
        listener_password: Password::Verifier("x'; drop".into()),
        ..options()
    };
    assert!(matches!(
        provision(&mut later, clear).await,
        Err(ProvisionError::NotAVerifier)
    ));
}

#[tokio::test]
async fn generated_passwords_log_in() {
    let mut fixture = Fixture::start().await;
    let generate = ProvisionOptions {
        listener_password: Password::Generate,
        ..ProvisionOptions::default()
    };
    let report = provision(&mut fixture.admin, generate).await.unwrap();
    let password = report.generated.listener.clone().unwrap();
    assert!(!format!("{report:?}").contains(&password));
    fixture
        .pg
        .connect_login("anvilbase_realtime_listener", &password, DATABASE)
        .await;
}

#[tokio::test]
async fn without_a_superuser_the_logins_own_tables_emit() {
    let pg = Postgres::start().await;
    pg.create_database(DATABASE).await;
    let root = pg.connect(DATABASE).await;
    root.batch_execute(
        "create role builder login createrole password 'builder'; grant create on database app to builder; \
         grant create on schema public to builder; create role service_role nologin bypassrls; \
         create table public.foreign_owned (a int)",
    )
    .await
    .unwrap();
    let mut builder = pg.connect_login("builder", "builder", DATABASE).await;
    builder
        .batch_execute("create table public.own (id int primary key)")
        .await
        .unwrap();
    let report = provision(&mut builder, options()).await.unwrap();
    assert!(!report.superuser);
    assert_eq!(report.attached, ["public.own"]);
    assert_eq!(report.not_attached.len(), 1, "{report:?}");
    assert!(
        report
            .notices
            .iter()
            .any(|notice| notice.contains("not a superuser")),
        "{report:?}"
    );
    let fixture = Fixture { pg, admin: root };
    fixture.run("create table public.sentinel (n bigint)").await;
    provision(&mut builder, ProvisionOptions::default())
        .await
        .unwrap();
    fixture.run("alter table public.sentinel owner to builder").await;
    let report = provision(&mut builder, ProvisionOptions::default())
        .await
        .unwrap();
    assert_eq!(report.attached, ["public.sentinel"]);
    let mut tap = fixture.tap().await;
    builder
        .batch_execute("insert into public.own values (1)")
        .await
        .unwrap();
    builder
        .batch_execute("select anvilbase_realtime.set_table('public', 'own', cdc_enabled => false)")
        .await
        .unwrap();
    builder
        .batch_execute("insert into public.own values (2)")
        .await
        .unwrap();
    assert_eq!(brief(&tap.changes(&fixture).await, "id"), ["I 1"]);
}

#[tokio::test]
async fn claims_helpers_read_what_rest_sets_and_stay_as_the_platform_made_them() {
    let mut fixture = Fixture::start().await;
    fixture.run("select pg_catalog.set_config('request.jwt.claims', \
        '{\"sub\":\"00000000-0000-4000-8000-000000000001\",\"role\":\"authenticated\",\"email\":\"a@b.c\"}', false)").await;
    fixture.run("set role anon").await;
    let shown =
        "select pg_catalog.concat_ws(' ', auth.uid(), auth.role(), auth.email(), auth.jwt() ->> 'sub')";
    assert_eq!(
        fixture.text(shown).await,
        "00000000-0000-4000-8000-000000000001 authenticated a@b.c 00000000-0000-4000-8000-000000000001"
    );
    fixture
        .run("select pg_catalog.set_config('request.jwt.claims', '', false)")
        .await;
    assert_eq!(
        fixture
            .text("select pg_catalog.concat(auth.uid(), auth.role(), auth.email(), auth.jwt())")
            .await,
        "{}"
    );
    fixture.run("reset role; create or replace function auth.role() returns text language sql as 'select ''theirs''::text'").await;
    fixture.provision_again().await;
    assert_eq!(fixture.text("select auth.role()").await, "theirs");
}
