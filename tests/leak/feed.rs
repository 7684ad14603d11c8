//! The feed itself: its channel, its subjects, and what the database's own users can put in its way.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::bus::{Bus, Delivery, Subscription};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_testkit::nats::{GATEWAY_PASSWORD, LISTENER_PASSWORD, Nats, READER_PASSWORD};
use realtime_testkit::wait::within;
use realtime_tests::world::{U1, U2, Who, World, binding};
use serde_json::json;

use crate::support::{HUSH, brief, follow, nothing_hidden};

/// A login that may make tables, and everything that an owner of tables may.
async fn mallory(world: &World) -> tokio_postgres::Client {
    world
        .run(
            "create role mallory login password 'm'; grant create, usage on schema public to mallory;
             create schema mallory authorization mallory; grant usage on schema mallory to public",
        )
        .await;
    world.postgres.connect_login("mallory", "m", "postgres").await
}

#[tokio::test]
async fn names_that_the_channel_might_have() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    let mut service = follow(&world, &Who::service(), "notes").await;
    let relid = world
        .column("select 'notes'::regclass::oid::text")
        .await
        .remove(0);
    let forged = json!({ "v": 1, "n": "00000000-0000-4000-8000-00000000000a", "r": relid.parse::<u32>().unwrap(), "s": "public", "t": "notes",
        "o": "I", "c": "2026-01-01T00:00:00.000Z", "new": { "id": 1, "title": HUSH }, "old": null });
    for channel in [
        "anvilbase_realtime",
        "anvilbase_rt",
        "anvilbase_rt_",
        "anvilbase",
        "realtime",
        "notes",
        "public.notes",
        "cdc",
        "dev",
        "anvilbase_rt_00000000000000000000000000000000",
        "*",
        "%",
        "anvilbase_rt_*",
        "pgrst",
        "arc_changes",
    ] {
        mallory
            .query("select pg_notify($1, $2)", &[&channel, &forged.to_string()])
            .await
            .unwrap();
    }
    assert!(
        mallory
            .query("select pg_notify('', $1)", &[&forged.to_string()])
            .await
            .is_err()
    );
    assert_eq!(nothing_hidden(&world, &mut service).await.len(), 0);
    world.stop().await;
}

/// Whatever a session of the feed shows to another login while it works.
#[tokio::test]
async fn what_a_stranger_sees_of_the_feeds_sessions() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    let mut one = follow(&world, &Who::u1(), "notes").await;
    world
        .run(&format!(
            "insert into notes (id, owner, title) values (1, '{U1}', '{HUSH}')"
        ))
        .await;
    world.frames(&mut one).await;
    let channel = world
        .column("select channel from anvilbase_realtime.settings")
        .await
        .remove(0);
    for view in [
        "pg_stat_activity",
        "pg_locks",
        "pg_prepared_statements",
        "pg_cursors",
        "pg_stat_statements_info",
        "pg_settings",
        "pg_stat_ssl",
    ] {
        let Ok(rows) = mallory.query(&format!("select v::text from {view} v"), &[]).await else {
            continue;
        };
        for row in rows {
            let text: String = row.get(0);
            assert!(
                !text.contains(&channel) && !text.contains(HUSH) && !text.contains(U1),
                "{view}: {text}"
            );
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn our_functions_run_under_no_ones_search_path() {
    let world = World::start().await;
    // With the rights of their owner: the path is pinned, or every name is written out (and then it is one of these).
    let sql = "select p.proname::text from pg_proc p where p.pronamespace = 'anvilbase_realtime'::regnamespace and p.prosecdef
               and not coalesce(p.proconfig::text like '%search_path=pg_catalog, pg_temp%' or p.proconfig::text like '%\"search_path=pg_catalog, pg_temp\"%', false)
               order by 1";
    assert_eq!(
        world.column(sql).await,
        ["as_anon", "as_authenticated", "row_json"]
    );
    // Nor may anybody else run one of them, but for what can only be a trigger, or replace one.
    let sql = "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'anvilbase_realtime'::regnamespace
               and p.prorettype <> 'trigger'::regtype
               and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x where x.grantee = 0)";
    assert_eq!(world.column(sql).await, Vec::<String>::new());
    let sql = "select r.rolname::text from pg_roles r where has_schema_privilege(r.oid, 'anvilbase_realtime', 'CREATE')
               and not r.rolsuper and r.rolname <> 'anvilbase_realtime_owner'";
    assert_eq!(world.column(sql).await, Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn a_policy_that_notifies_and_locks() {
    let world = World::start().await;
    let (listener, mut heard) = {
        let (client, connection) = realtime_node::postgres::connect(
            &world.postgres.superuser_dsn("postgres"),
            &realtime_node::postgres::PgOptions::new("listener of tests"),
        )
        .await
        .unwrap();
        (client, connection)
    };
    world
        .run(
            "create table docs (id int primary key, owner uuid, word text); alter table docs enable row level security;
             create function tells(word text) returns boolean language plpgsql as $$ begin
               perform pg_notify('told', word); perform pg_advisory_lock(4711); perform pg_advisory_xact_lock(4712); return false; end $$;
             create policy p on docs for select to authenticated using (owner = auth.uid() or tells(word))",
        )
        .await;
    let mut two = follow(&world, &Who::u2(), "docs").await;
    let tasks = Tasks::new();
    let (sender, mut told) = tokio::sync::mpsc::channel(16);
    tasks.spawn("heard", async move {
        while let Some(Ok(message)) = heard.next_message().await {
            if let tokio_postgres::AsyncMessage::Notification(one) = message
                && sender.send(one.payload().to_owned()).await.is_err()
            {
                return;
            }
        }
    });
    listener.batch_execute("listen told").await.unwrap();
    world
        .run(&format!(
            "insert into docs values (1, '{U1}', '{HUSH}'), (2, '{U2}', 'mine')"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut two).await), ["INSERT docs 2"]);
    world.run("notify told, 'the sentinel'").await;
    assert_eq!(
        within("the sentinel", told.recv()).await.as_deref(),
        Some("the sentinel")
    );
    let held = "select count(*)::text from pg_locks where locktype = 'advisory' and objid in (4711, 4712)";
    assert_eq!(world.column(held).await, ["0"]);
    drop(listener);
    world.stop().await;
}

/// Everything that an owner's triggers can set is set while the feed's own trigger runs.
#[tokio::test]
async fn an_owner_whose_triggers_change_what_they_can() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    mallory
        .batch_execute(
            "create function mallory.upsets() returns trigger language plpgsql as $$ begin
               perform set_config('search_path', 'mallory, pg_temp', false); perform set_config('timezone', 'Asia/Kathmandu', false);
               perform set_config('row_security', 'off', false); perform set_config('standard_conforming_strings', 'off', false);
               perform set_config('request.jwt.claims', '{\"sub\":\"00000000-0000-4000-8000-000000000002\"}', false);
               perform set_config('anvilbase_realtime.channel', 'x', false);
               perform set_config('quote_all_identifiers', 'on', false); perform set_config('xmlbinary', 'hex', false);
               return new; end $$;
             create function mallory.pg_notify(text, text) returns void language plpgsql as $$ begin raise exception 'caught'; end $$;
             create function mallory.row_to_json(record) returns json language plpgsql as $$ begin return '{\"id\":666}'; end $$;
             create table public.odd (id int primary key, owner uuid, at timestamptz);
             alter table public.odd enable row level security;
             create policy own on public.odd for select to authenticated using (owner = auth.uid());
             grant select on public.odd to authenticated;
             create trigger \"!!\" before insert or update on public.odd for each row execute function mallory.upsets();
             create trigger \"!\" after insert or update on public.odd for each row execute function mallory.upsets()",
        )
        .await
        .unwrap();
    let (mut one, mut two) = (
        follow(&world, &Who::u1(), "odd").await,
        follow(&world, &Who::u2(), "odd").await,
    );
    let insert = format!(
        "insert into public.odd values (1, '{U1}', '2026-01-01 00:00:00+00'); update public.odd set id = 2"
    );
    mallory.batch_execute(&insert).await.unwrap();
    let frames = world.frames(&mut one).await;
    assert_eq!(brief(&frames), ["INSERT odd 1", "UPDATE odd 2"]);
    assert_eq!(frames[1][4]["data"]["new"]["at"], "2026-01-01T00:00:00+00:00");
    assert_eq!(brief(&world.frames(&mut two).await), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn tables_and_functions_named_like_ours() {
    let world = World::start().await;
    world
        .run(
            "create table settings (channel text primary key); create table tables (relid oid primary key, realtime_public boolean default true);
             create table table_settings (relid oid primary key, realtime_public boolean default true);
             create function emit() returns trigger language plpgsql as $$ begin raise exception 'not ours'; end $$;
             create function row_json(record) returns text language plpgsql as $$ begin return '{}'; end $$;
             create function as_authenticated(text, text[]) returns boolean[] language sql as $$ select array[true, true, true] $$;
             create schema \"anvilbase_realtime \";
             create table \"anvilbase_realtime \".settings (channel text);
             alter table settings enable row level security; alter table tables enable row level security",
        )
        .await;
    let mut one = world
        .subscriber(
            &Who::u1(),
            &["settings", "tables", "table_settings", "notes"].map(|table| binding("*", table)),
        )
        .await;
    world
        .run(&format!(
            "insert into settings values ('{HUSH}'); insert into tables values (1); insert into table_settings values ('notes'::regclass);
             insert into notes (id, owner, title) values (1, '{U2}', '{HUSH}'), (2, '{U1}', 'x')"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT notes 2"]);
    world.stop().await;
}

#[tokio::test]
async fn a_writers_temporary_tables_in_a_policys_place() {
    let world = World::start().await;
    world
        .run(
            "create table members (member uuid primary key); alter table members enable row level security;
             create policy own on members for select to authenticated using (member = auth.uid());
             create table docs (id int primary key, word text); alter table docs enable row level security;
             create policy p on docs for select to authenticated using (exists (select from members))",
        )
        .await;
    let mut one = follow(&world, &Who::u1(), "docs").await;
    let writer = world.postgres.connect("postgres").await;
    writer
        .batch_execute(&format!(
            "create temp table members (member uuid); insert into members values ('{U1}'); grant select on members to public;
             create function pg_temp.uid() returns uuid language sql as $$ select '{U1}'::uuid $$;
             insert into public.docs values (1, '{HUSH}')"
        ))
        .await
        .unwrap();
    assert_eq!(nothing_hidden(&world, &mut one).await.len(), 0);
    world.stop().await;
}

/// Bytes on our own subjects that are none of ours, and words of an owner that was replaced.
#[tokio::test]
async fn messages_on_the_bus_that_say_nothing_or_too_much() {
    let bus = Bus::local();
    let world = World::start_with(|_| {}, bus.clone()).await;
    let mut one = follow(&world, &Who::u1(), "notes").await;
    let dev = ProjectId::parse("dev").unwrap();
    let cdc = subject::change(&dev, &realtime_core::id::TableRef::new("public", "notes"));
    let old = v1::ChangeEvent {
        id: "x".into(),
        relid: 1,
        schema: "public".into(),
        table: "notes".into(),
        operation: v1::Operation::Delete.into(),
        position: Some(v1::Position { epoch: 1, seq: 1 }),
        ..v1::ChangeEvent::default()
    };
    let other = ProjectId::parse("other").unwrap();
    for (to, body) in [
        (cdc.clone(), Bytes::from_static(b"\xff\xff\xff")),
        (cdc.clone(), Bytes::new()),
        (cdc.clone(), Bytes::from(HUSH)),
        (cdc.clone(), old.encode_to_vec().into()),
        (subject::control(&dev), Bytes::from_static(b"\x00\x01")),
        (subject::control(&dev), Bytes::new()),
        (
            subject::change(&other, &realtime_core::id::TableRef::new("public", "notes")),
            old.encode_to_vec().into(),
        ),
        (format!("{}.dev.nonsense", subject::ROOT), Bytes::from(HUSH)),
        (subject::SESSION.to_owned(), Bytes::from_static(b"\xff\x00")),
        (subject::SESSION.to_owned(), Bytes::new()),
    ] {
        bus.publish(&to, body).await.unwrap();
    }
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    assert_eq!(brief(&frames), ["INSERT notes 1"]);
    world.stop().await;
}

async fn first(subscription: &mut Subscription) -> Vec<u8> {
    match within("a message", subscription.next()).await {
        Some(Delivery::Message(message)) => message.body.to_vec(),
        other => panic!("expected a message, got {other:?}"),
    }
}

/// What each credential may not publish does not arrive: the first message is the listener's.
#[tokio::test]
async fn credentials_that_publish_what_is_not_theirs() {
    let (nats, tasks) = (Nats::start_with_permissions().await, Tasks::new());
    let listener = nats
        .bus_as(Some(("listener", LISTENER_PASSWORD)), 64, &tasks)
        .await;
    let gateway = nats.bus_as(Some(("gateway", GATEWAY_PASSWORD)), 64, &tasks).await;
    let reader = nats
        .bus_as(Some(("dev-reader", READER_PASSWORD)), 64, &tasks)
        .await;
    let mut heard = gateway.subscribe("anvilbase.rt.>", 64).await.unwrap();
    gateway.flush().await.unwrap();
    for subject in [
        "anvilbase.rt.dev.cdc.public.notes",
        "anvilbase.rt.dev.ctl",
        "anvilbase.rt.other.cdc.public.notes",
        "anvilbase.rt._cluster.x",
        "anvilbase.rt.dev.topic.public.a",
    ] {
        for forger in [&gateway, &reader] {
            let _ = forger.publish(subject, Bytes::from_static(b"forged")).await;
        }
    }
    for subject in [
        subject::ATTACH,
        subject::SESSION,
        "anvilbase.rt._cluster.interest.dev",
        "_INBOX.x",
    ] {
        let _ = reader.publish(subject, Bytes::from_static(b"forged")).await;
    }
    for bus in [&gateway, &reader] {
        let _ = bus.flush().await;
    }
    listener
        .publish("anvilbase.rt.dev.ctl", Bytes::from_static(b"sentinel"))
        .await
        .unwrap();
    assert_eq!(first(&mut heard).await, b"sentinel");
}

#[tokio::test]
async fn a_readers_credential_that_listens_to_others() {
    let (nats, tasks) = (Nats::start_with_permissions().await, Tasks::new());
    let listener = nats
        .bus_as(Some(("listener", LISTENER_PASSWORD)), 64, &tasks)
        .await;
    let reader = nats
        .bus_as(Some(("dev-reader", READER_PASSWORD)), 64, &tasks)
        .await;
    let mut own = reader.subscribe("anvilbase.rt.dev.>", 64).await.unwrap();
    let mut others = Vec::new();
    for subject in [
        "anvilbase.rt.>",
        "anvilbase.rt.*.ctl",
        "anvilbase.rt.other.>",
        "anvilbase.rt._cluster.>",
        ">",
        "*.rt.other.ctl",
        "_INBOX.>",
        "$SYS.>",
    ] {
        // Refused at once or later: either way nothing may come.
        if let Ok(subscription) = reader.subscribe(subject, 64).await {
            others.push((subject, subscription));
        }
    }
    let _ = reader.flush().await;
    listener
        .publish("anvilbase.rt.other.ctl", Bytes::from(HUSH))
        .await
        .unwrap();
    listener
        .publish("anvilbase.rt.other.cdc.public.notes", Bytes::from(HUSH))
        .await
        .unwrap();
    listener
        .publish("anvilbase.rt.dev.ctl", Bytes::from_static(b"sentinel"))
        .await
        .unwrap();
    assert_eq!(first(&mut own).await, b"sentinel");
    for (subject, mut subscription) in others {
        // What was to come would have come before the sentinel, on the same connection.
        let next = tokio::time::timeout(Duration::ZERO, subscription.next()).await;
        if let Ok(Some(Delivery::Message(message))) = next {
            assert!(
                !String::from_utf8_lossy(&message.body).contains(HUSH),
                "{subject}"
            );
        }
    }
}
