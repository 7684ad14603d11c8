//! What is set for tables, through the login that provisioning made for it.

use realtime_authz::LimitArgs;
use realtime_authz::settings::Settings;
use realtime_node::catalog::{Catalog, DatabaseConfig};
use realtime_node::postgres::Dsn;
use realtime_proto::v1;
use realtime_proto::v1::table_service_server::TableService as _;
use tonic::{Code, Request, Status};

use crate::fixture::*;

const SERVICE: &str = "anvilbase_realtime_service";

/// A provisioned database whose service login has a password, and the service over it.
async fn start(limits: LimitArgs) -> (Fixture, Settings) {
    let db = Fixture::start_with(limits.clone()).await;
    db.run("alter role anvilbase_realtime_service password 's'").await;
    let settings = settings(&db, SERVICE, "s", &limits);
    (db, settings)
}

fn settings(db: &Fixture, login: &str, password: &str, limits: &LimitArgs) -> Settings {
    let mut config = project(&db.pg, "app", PROBER, "prober");
    let dsn = Dsn::parse(&db.pg.server.url(login, password, DATABASE)).unwrap();
    config.database = Some(DatabaseConfig {
        listener_dsn: None,
        prober_dsn: None,
        service_dsn: Some(dsn),
    });
    let catalog = Catalog::from_projects(vec![config]);
    let metrics = realtime_node::metrics::Metrics::new();
    realtime_authz::AuthzServer::new(catalog, limits, &metrics, &db.tasks).settings()
}

async fn list(
    settings: &Settings,
    schema: &str,
    after: &str,
    limit: u32,
) -> Result<v1::ListTablesResponse, Status> {
    let request = v1::ListTablesRequest {
        project: "app".into(),
        schema: schema.into(),
        after: after.into(),
        limit,
    };
    Ok(settings.list_tables(Request::new(request)).await?.into_inner())
}

fn of(schema: &str, table: &str) -> v1::SetTableRequest {
    v1::SetTableRequest {
        project: "app".into(),
        schema: schema.into(),
        table: table.into(),
        ..Default::default()
    }
}

async fn set(settings: &Settings, request: v1::SetTableRequest) -> Result<v1::TableState, Status> {
    let answer = settings.set_table(Request::new(request)).await?;
    Ok(answer.into_inner().table.unwrap())
}

#[tokio::test]
async fn tables_that_could_be_on_the_feed_are_listed_by_name() {
    let (db, settings) = start(limits()).await;
    db.run(
        r#"create table "Orders" (id int primary key); create table mails (mail varchar(80) primary key);
           alter table mails enable row level security;
           create domain address as text; create table domains (a int, b address, primary key (a, b));
           create unlogged table u (id int); create table r (id int) partition by range (id);
           create table r1 partition of r for values from (0) to (9);
           create view v as select 1 as x; create materialized view mv as select 1 as x; create sequence sq;
           create temp table tmp (id int); create schema other; create table other.o (id int);
           grant usage on schema other to service_role; grant select on other.o to service_role;
           alter table u disable trigger all;"#,
    )
    .await;
    let listed = list(&settings, "public", "", 100).await.unwrap();
    let names: Vec<&str> = listed.tables.iter().map(|table| &*table.table).collect();
    assert_eq!(names, ["Orders", "domains", "mails", "r", "u"]);
    assert!(!listed.more);
    let mails = &listed.tables[2];
    assert!(
        mails.cdc_enabled && mails.rls_enabled && mails.delete_events && mails.emitting && mails.text_key
    );
    assert!(!mails.realtime_public && !mails.emit_events);
    let keys: Vec<bool> = listed.tables.iter().map(|table| table.text_key).collect();
    assert_eq!(keys, [false, true, true, false, false]);
    assert!(listed.tables[3].emitting, "a partitioned table");
    assert!(!listed.tables[4].emitting, "its owner disabled our triggers");

    let page = list(&settings, "public", "", 2).await.unwrap();
    assert!(page.more);
    let rest = list(&settings, "public", &page.tables[1].table, 3).await.unwrap();
    assert!(!rest.more);
    assert_eq!(rest.tables[..], listed.tables[2..]);

    let other = list(&settings, "other", "", 100).await.unwrap();
    assert!(!other.tables[0].emit_events && !other.tables[0].emitting);
    for schema in [
        "pg_catalog",
        "information_schema",
        "anvilbase_realtime",
        "missing",
        "Public",
        "",
        "pub\0lic",
    ] {
        assert!(
            list(&settings, schema, "", 100).await.unwrap().tables.is_empty(),
            "{schema:?}"
        );
    }
    for limit in [0, 10_001] {
        assert_eq!(
            list(&settings, "public", "", limit).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
}

#[tokio::test]
async fn a_setting_takes_its_trigger_along() {
    let (db, settings) = start(limits()).await;
    db.run(
        "create table t (id int primary key); create schema other; create table other.o (id int primary key); \
         grant usage on schema other to service_role; grant select on other.o to service_role",
    )
    .await;
    let off = set(
        &settings,
        v1::SetTableRequest {
            cdc_enabled: Some(false),
            ..of("public", "t")
        },
    )
    .await
    .unwrap();
    assert!(!off.cdc_enabled && !off.emitting && off.delete_events);
    let rest = v1::SetTableRequest {
        realtime_public: Some(true),
        delete_events: Some(false),
        ..of("public", "t")
    };
    let kept = set(&settings, rest).await.unwrap();
    assert!(!kept.cdc_enabled && kept.realtime_public && !kept.delete_events);
    let on = set(
        &settings,
        v1::SetTableRequest {
            cdc_enabled: Some(true),
            ..of("public", "t")
        },
    )
    .await
    .unwrap();
    assert!(on.cdc_enabled && on.emitting && on.realtime_public && !on.delete_events);
    assert_eq!(list(&settings, "public", "", 9).await.unwrap().tables, [on]);

    let joined = set(
        &settings,
        v1::SetTableRequest {
            emit_events: Some(true),
            ..of("other", "o")
        },
    )
    .await
    .unwrap();
    assert!(joined.emit_events && joined.emitting);
    db.change("insert into other.o values (1)").await;

    let always = v1::SetTableRequest {
        replica_events: Some(true),
        ..of("public", "t")
    };
    assert!(set(&settings, always).await.unwrap().replica_events);
    db.change(
        "set session_replication_role = replica; insert into t values (1); reset session_replication_role",
    )
    .await;
}

#[tokio::test]
async fn what_is_no_table_of_the_feed_cannot_be_set() {
    let (db, settings) = start(limits()).await;
    db.run(
        "create table r (id int) partition by range (id); create table leaf partition of r for values from (0) to (9); \
         create view v as select 1 as x; create temp table tmp (id int); create table t (id int)",
    )
    .await;
    let longest = "t".repeat(64);
    for (schema, table) in [
        ("public", "missing"),
        ("public", "T"),
        ("public", "v"),
        ("public", "leaf"),
        ("public", "tmp"),
        ("public", ""),
        ("public", "t\0"),
        ("public", "t; drop table t"),
        ("public", "public.t"),
        ("public", &longest),
        ("", "t"),
        ("anvilbase_realtime", "settings"),
        ("anvilbase_realtime", "tables"),
        ("pg_catalog", "pg_class"),
    ] {
        let request = v1::SetTableRequest {
            realtime_public: Some(true),
            ..of(schema, table)
        };
        let refused = set(&settings, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{schema}.{table}: {refused}");
    }
    assert!(
        list(&settings, "public", "", 9)
            .await
            .unwrap()
            .tables
            .iter()
            .all(|table| !table.realtime_public)
    );
}

/// service_role gets the feed's rows whole: through the API it puts nothing there that it may not read whole itself.
#[tokio::test]
async fn what_service_role_may_not_read_cannot_be_put_on_the_feed_in_its_name() {
    let (db, settings) = start(limits()).await;
    db.run(
        "create schema auth_x; create table auth_x.users (id int primary key, secret text); \
         create schema usable; create table usable.users (id int primary key, secret text); \
         grant usage on schema usable to service_role; grant select (id) on usable.users to service_role; \
         create schema closed; create table closed.users (id int primary key); grant select on closed.users to service_role; \
         create table withheld (id int primary key); revoke all on withheld from service_role",
    )
    .await;
    let outside = [
        ("auth_x", "users"),
        ("usable", "users"),
        ("closed", "users"),
        ("public", "withheld"),
    ];
    for (schema, table) in outside {
        let request = v1::SetTableRequest {
            emit_events: Some(true),
            cdc_enabled: Some(true),
            ..of(schema, table)
        };
        let refused = set(&settings, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{schema}.{table}: {refused}");
        let listed = list(&settings, schema, "", 9).await.unwrap();
        assert!(listed.tables.is_empty(), "{schema}: {listed:?}");
    }
    let on_feed = "select count(*) from anvilbase_realtime.tables t where t.schema_name <> 'public'";
    let on_feed: i64 = db.admin.query_one(on_feed, &[]).await.unwrap().get(0);
    assert_eq!(on_feed, 0);
    // Nor past this service, by the login itself: whatever role it takes on.
    let url = db.pg.server.url(SERVICE, "s", DATABASE);
    let options = realtime_node::postgres::PgOptions::new("service");
    let (login, connection) = realtime_node::postgres::connect(&Dsn::parse(&url).unwrap(), &options)
        .await
        .unwrap();
    db.tasks.spawn("service login", connection.drive());
    for (schema, table) in outside {
        let statement =
            format!("select anvilbase_realtime.set_table('{schema}', '{table}', emit_events => true)");
        let refused = login.batch_execute(&statement).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{schema}.{table}");
    }
    // Once it may read it whole, it may; and the database's owner always could.
    db.run("grant select on usable.users to service_role").await;
    let request = v1::SetTableRequest {
        emit_events: Some(true),
        ..of("usable", "users")
    };
    assert!(set(&settings, request).await.unwrap().emitting);
    db.run("select anvilbase_realtime.set_table('auth_x', 'users', emit_events => true)")
        .await;
}

#[tokio::test]
async fn a_table_that_somebody_holds_is_left_alone_and_its_writers_soon_too() {
    let (db, settings) = start(LimitArgs {
        settings_deadline_ms: 700,
        ..limits()
    })
    .await;
    db.run("create table t (id int primary key); create table s (id int primary key)")
        .await;
    let holder = db.pg.connect(DATABASE).await;
    holder
        .batch_execute("begin; insert into t values (1)")
        .await
        .unwrap();
    let request = v1::SetTableRequest {
        cdc_enabled: Some(false),
        ..of("public", "t")
    };
    let refused = set(&settings, request.clone()).await.unwrap_err();
    assert!(
        [Code::Aborted, Code::DeadlineExceeded].contains(&refused.code()),
        "{refused}"
    );
    // Nothing of it waits any more, so that others write.
    db.run("insert into t values (2)").await;
    holder.batch_execute("commit").await.unwrap();
    let listed = list(&settings, "public", "", 9).await.unwrap();
    assert!(
        listed
            .tables
            .iter()
            .all(|table| table.cdc_enabled && table.emitting)
    );
    assert!(!set(&settings, request).await.unwrap().cdc_enabled);
}

#[tokio::test]
async fn connections_are_few_and_end() {
    let (db, settings) = start(LimitArgs {
        settings_calls_max: 2,
        ..limits()
    })
    .await;
    db.run("create table t (id int primary key)").await;
    let calls = (0..8).map(|_| list(&settings, "public", "", 9));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap().tables.len(), 1);
    }
    let count = "select count(*) from pg_stat_activity where usename = $1";
    realtime_testkit::wait::until("no session is left", || async {
        let left: i64 = db.admin.query_one(count, &[&SERVICE]).await.unwrap().get(0);
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_login_that_could_do_more_is_not_used() {
    let (db, _) = start(limits()).await;
    db.run(
        "create role mighty login superuser password 'm'; create role owner login password 'o'; \
         create table t (id int primary key); create table owned (id int); alter table owned owner to owner",
    )
    .await;
    for (login, password) in [("mighty", "m"), ("owner", "o")] {
        let refused = list(&settings(&db, login, password, &limits()), "public", "", 9)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{login}");
        assert!(!refused.message().contains(login));
    }
    // The prober may read settings and must not set them.
    let prober = settings(&db, PROBER, "prober", &limits());
    let request = v1::SetTableRequest {
        realtime_public: Some(true),
        ..of("public", "t")
    };
    assert!(set(&prober, request).await.is_err());
    let refused = list(&settings(&db, SERVICE, "wrong", &limits()), "public", "", 9)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let unknown = v1::ListTablesRequest {
        project: "other".into(),
        ..Default::default()
    };
    let unknown = v1::ListTablesRequest {
        schema: "public".into(),
        limit: 1,
        ..unknown
    };
    let refused = settings(&db, SERVICE, "s", &limits())
        .list_tables(Request::new(unknown))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn names_that_the_encoding_lacks_are_names_of_no_table() {
    let (db, _) = start(limits()).await;
    db.run("create database latin with template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'")
        .await;
    let mut admin = db.pg.connect("latin").await;
    realtime_listener_sql(&mut admin).await;
    let mut config = project(&db.pg, "app", PROBER, "prober");
    let dsn = Dsn::parse(&db.pg.server.url(SERVICE, "s", "latin")).unwrap();
    config.database = Some(DatabaseConfig {
        listener_dsn: None,
        prober_dsn: None,
        service_dsn: Some(dsn),
    });
    let metrics = realtime_node::metrics::Metrics::new();
    let settings = realtime_authz::AuthzServer::new(
        Catalog::from_projects(vec![config]),
        &limits(),
        &metrics,
        &db.tasks,
    )
    .settings();
    let request = v1::SetTableRequest {
        cdc_enabled: Some(true),
        ..of("public", "日本")
    };
    assert_eq!(set(&settings, request).await.unwrap_err().code(), Code::NotFound);
    assert!(list(&settings, "日本", "", 9).await.unwrap().tables.is_empty());
}

async fn realtime_listener_sql(admin: &mut tokio_postgres::Client) {
    admin
        .batch_execute("begin; set local search_path = pg_catalog, pg_temp")
        .await
        .unwrap();
    for sql in PROVISION {
        admin.batch_execute(sql).await.unwrap();
    }
    admin.batch_execute("commit").await.unwrap();
}
