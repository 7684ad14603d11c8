//! From a commit to the bus, through reconnects, hand-overs and full queues.

use std::time::Duration;

use prost::Message as _;
use realtime_core::id::ProjectId;
use realtime_core::subject::{self, Kind};
use realtime_listener::provision::{ProvisionOptions, provision};
use realtime_listener::{Listener, ListenerConfig};
use realtime_node::bus::{Bus, BusError, Delivery, Subscription};
use realtime_node::catalog::{Catalog, DatabaseConfig, Listen, ProjectConfig};
use realtime_node::metrics::Metrics;
use realtime_node::postgres::Dsn;
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::attach_reply::Outcome;
use realtime_proto::v1::feed_status;
use realtime_testkit::nats::Nats;
use realtime_testkit::wait::{until, within};

use crate::support::Fixture;

const QUICK: &[Duration] = &[Duration::from_millis(100)];

/// A listener in a task group of its own, and all that it says of a project.
struct Replica {
    listener: Listener,
    tasks: Tasks,
    metrics: Metrics,
}

struct Ear(Subscription);

/// What was heard, in the order of the feed.
#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Change {
        table: String,
        new: Option<String>,
        position: (u64, u64),
    },
    Up {
        position: (u64, u64),
    },
    Down(v1::DownReason),
    Gap {
        reason: String,
        dropped: u64,
        table: String,
    },
    TableChanged(String),
    Truncated(String),
}

fn config() -> ListenerConfig {
    ListenerConfig {
        up_every: Duration::from_millis(200),
        heartbeat_every: Duration::from_millis(300),
        heartbeat_deadline: Duration::from_secs(2),
        pinned_every: Duration::from_millis(200),
        reopen_steps: QUICK,
        ..ListenerConfig::default()
    }
}

fn id(name: &str) -> ProjectId {
    ProjectId::parse(name).unwrap()
}

fn project(name: &str, listen: Listen, dsn: Dsn) -> ProjectConfig {
    let database = DatabaseConfig {
        listener_dsn: Some(dsn),
        prober_dsn: None,
        service_dsn: None,
    };
    ProjectConfig {
        id: id(name),
        listen,
        roles: Vec::new(),
        database: Some(database),
        tokens: None,
    }
}

async fn replica(bus: &Bus, config: ListenerConfig, catalog: &Catalog) -> Replica {
    let (tasks, metrics) = (Tasks::new(), Metrics::new());
    let listener = Listener::start(config, bus.clone(), catalog.clone(), &metrics, &tasks)
        .await
        .unwrap();
    Replica {
        listener,
        tasks,
        metrics,
    }
}

impl Replica {
    async fn stop(&self) {
        assert!(
            self.tasks.drain(Duration::from_secs(10)).await,
            "the replica did not drain"
        );
        assert_eq!(self.tasks.panics(), 0);
    }
}

async fn attach(bus: &Bus, name: &str) -> Result<v1::AttachReply, BusError> {
    let request = v1::AttachRequest {
        project: name.into(),
        gateway: "test".into(),
    }
    .encode_to_vec();
    let reply = bus
        .request(subject::ATTACH, request.into(), Duration::from_secs(5))
        .await?;
    Ok(v1::AttachReply::decode(reply).unwrap())
}

impl Ear {
    async fn of(bus: &Bus, name: &str) -> Self {
        let ear = Self(
            bus.subscribe(&subject::project_all(&id(name)), 100_000)
                .await
                .unwrap(),
        );
        bus.flush().await.unwrap();
        ear
    }

    async fn next(&mut self) -> Heard {
        let message = loop {
            match within("a message of the feed", self.0.next()).await.unwrap() {
                Delivery::Message(message) => break message,
                // The bus's own word that it stood still; a test that breaks the bus expects it.
                Delivery::Lost(_) => {}
            }
        };
        let place = |position: Option<v1::Position>| position.map(|p| (p.epoch, p.seq)).unwrap();
        let name = |schema: &str, table: &str| format!("{schema}.{table}");
        if subject::kind(&id("app"), &message.subject) == Kind::Change {
            let event = v1::ChangeEvent::decode(message.body).unwrap();
            let table = name(&event.schema, &event.table);
            return Heard::Change {
                table,
                new: event.new_json,
                position: place(event.position),
            };
        }
        let status = v1::FeedStatus::decode(message.body).unwrap();
        match status.kind.unwrap() {
            feed_status::Kind::Up(_) => Heard::Up {
                position: place(status.position),
            },
            feed_status::Kind::Down(down) => Heard::Down(down.reason()),
            feed_status::Kind::Gap(gap) => Heard::Gap {
                reason: gap.reason,
                dropped: gap.dropped,
                table: name(&gap.schema, &gap.table),
            },
            feed_status::Kind::TableChanged(t) => Heard::TableChanged(name(&t.schema, &t.table)),
            feed_status::Kind::Truncated(t) => Heard::Truncated(name(&t.schema, &t.table)),
        }
    }

    /// The next message that is no beat.
    async fn next_word(&mut self) -> Heard {
        let word = async {
            loop {
                let heard = self.next().await;
                if !matches!(heard, Heard::Up { .. }) {
                    return heard;
                }
            }
        };
        within("a message that is no beat", word).await
    }

    async fn up(&mut self) -> (u64, u64) {
        loop {
            if let Heard::Up { position } = self.next().await {
                return position;
            }
        }
    }
}

#[tokio::test]
async fn changes_reach_the_bus_in_order_with_what_changes_their_table() {
    let fixture = Fixture::start().await;
    fixture
        .run("create table public.t (id int8 primary key, b text)")
        .await;
    let nats = Nats::start().await;
    let buses = Tasks::new();
    for bus in [Bus::local(), nats.bus(&buses).await] {
        let catalog = Catalog::from_projects(vec![project("app", Listen::Demand, fixture.listener_dsn())]);
        let replica = replica(&bus, config(), &catalog).await;
        let mut ear = Ear::of(&bus, "app").await;
        assert_eq!(attach(&bus, "app").await.unwrap().outcome(), Outcome::Accepted);
        assert_eq!(attach(&bus, "app").await.unwrap().outcome(), Outcome::Accepted);
        assert_eq!(
            attach(&bus, "nobody").await.unwrap().outcome(),
            Outcome::UnknownProject
        );
        let (epoch, seq) = ear.up().await;
        assert_eq!(seq, 0);
        fixture
            .run("begin; insert into public.t values (9223372036854775807, 'é'); alter table public.t rename to u; \
                  update public.u set b = 'x'; truncate public.u; commit; alter table public.u rename to t")
            .await;
        let change = |table: &str, new: &str, seq| Heard::Change {
            table: table.into(),
            new: Some(new.into()),
            position: (epoch, seq),
        };
        assert_eq!(
            ear.next_word().await,
            change("public.t", r#"{"id":9223372036854775807,"b":"é"}"#, 1)
        );
        let mut heard = Vec::new();
        while heard.last() != Some(&Heard::TableChanged("public.t".into())) || heard.len() < 4 {
            heard.push(ear.next_word().await);
        }
        let update = heard
            .iter()
            .position(|heard| matches!(heard, Heard::Change { .. }))
            .unwrap();
        let truncate = heard
            .iter()
            .position(|heard| *heard == Heard::Truncated("public.u".into()))
            .unwrap();
        assert!(
            heard[..update].contains(&Heard::TableChanged("public.u".into())),
            "{heard:?}"
        );
        assert!(update < truncate, "{heard:?}");
        fixture.run("grant select on public.t to anon").await;
        while ear.next_word().await != Heard::TableChanged(".".into()) {}
        let (_, last) = ear.up().await;
        fixture
            .run("insert into public.t values (1, null); delete from public.t")
            .await;
        assert_eq!(
            ear.next_word().await,
            change("public.t", r#"{"id":1,"b":null}"#, last + 1)
        );
        replica.stop().await;
        while ear.next_word().await != Heard::Down(v1::DownReason::Shutdown) {}
    }
}

#[tokio::test]
async fn a_lost_session_is_a_gap_before_the_next_event() {
    let fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Always, fixture.listener_dsn())]);
    let replica = replica(&bus, config(), &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    let (epoch, _) = ear.up().await;
    let end = "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity \
               where application_name like 'anvilbase-realtime-listener%'";
    fixture
        .run(&format!(
            "alter role anvilbase_realtime_listener nologin; {end}; insert into public.t values (1)"
        ))
        .await;
    assert_eq!(ear.next_word().await, Heard::Down(v1::DownReason::ConnectionLost));
    assert_eq!(
        ear.next_word().await,
        Heard::Down(v1::DownReason::DatabaseUnavailable)
    );
    fixture.run("alter role anvilbase_realtime_listener login").await;
    let mut heard = ear.next_word().await;
    while heard == Heard::Down(v1::DownReason::DatabaseUnavailable) {
        heard = ear.next_word().await;
    }
    assert_eq!(
        heard,
        Heard::Gap {
            reason: "listener_reconnect".into(),
            dropped: 0,
            table: ".".into()
        }
    );
    let (later, _) = ear.up().await;
    assert!(later > epoch);
    fixture.run("insert into public.t values (2)").await;
    let new = Some(r#"{"id":2}"#.into());
    assert_eq!(
        ear.next_word().await,
        Heard::Change {
            table: "public.t".into(),
            new,
            position: (later, 2)
        }
    );
    assert_eq!(replica.listener.held()[0].reconnects, 1);
    assert!(
        replica
            .metrics
            .encode_process()
            .unwrap()
            .contains(r#"listener_gaps_total{reason="listener_reconnect"} 1"#)
    );
    replica.stop().await;
}

/// The channel of the writers is another one now: statements go through, notifications do not come.
#[tokio::test]
async fn a_session_that_hears_nothing_is_found_out() {
    let mut fixture = Fixture::start().await;
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Always, fixture.listener_dsn())]);
    let replica = replica(&bus, config(), &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    ear.up().await;
    let rotate = ProvisionOptions {
        rotate_channel: true,
        ..ProvisionOptions::default()
    };
    provision(&mut fixture.admin, rotate).await.unwrap();
    // The run's own grants came through the old channel.
    let mut heard = ear.next_word().await;
    while matches!(heard, Heard::TableChanged(_)) {
        heard = ear.next_word().await;
    }
    assert_eq!(heard, Heard::Down(v1::DownReason::ConnectionLost));
    assert!(matches!(ear.next_word().await, Heard::Gap { .. }));
    fixture.run("insert into public.sentinel values (1)").await;
    assert!(matches!(ear.next_word().await, Heard::Change { .. }));
    replica.stop().await;
}

#[tokio::test]
async fn one_listener_holds_a_project_and_hands_it_over() {
    let fixture = Fixture::start().await;
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Demand, fixture.listener_dsn())]);
    let first = replica(&bus, config(), &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    attach(&bus, "app").await.unwrap();
    let (epoch, _) = ear.up().await;
    let second = replica(&bus, config(), &catalog).await;
    // The group takes turns: one of two requests comes to each.
    let mut outcomes = [
        attach(&bus, "app").await.unwrap().outcome(),
        attach(&bus, "app").await.unwrap().outcome(),
    ];
    outcomes.sort();
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::HeldElsewhere]);
    until("the second lets its slot go", || async {
        second.listener.held().is_empty().then_some(())
    })
    .await;
    first.stop().await;
    while ear.next_word().await != Heard::Down(v1::DownReason::Shutdown) {}
    assert_eq!(attach(&bus, "app").await.unwrap().outcome(), Outcome::Accepted);
    assert!(ear.up().await.0 > epoch);
    second.stop().await;
}

#[tokio::test]
async fn a_full_listener_defers_and_a_free_one_does_not() {
    let fixture = Fixture::start().await;
    fixture.pg.create_database("two").await;
    let mut two = fixture.pg.connect("two").await;
    provision(&mut two, ProvisionOptions::default()).await.unwrap();
    let dsn = fixture
        .pg
        .server
        .url("anvilbase_realtime_listener", crate::support::PASSWORD, "two");
    let nats = Nats::start().await;
    let buses = Tasks::new();
    for bus in [Bus::local(), nats.bus(&buses).await] {
        let projects = vec![
            project("app", Listen::Demand, fixture.listener_dsn()),
            project("two", Listen::Demand, Dsn::parse(&dsn).unwrap()),
        ];
        let catalog = Catalog::from_projects(projects);
        let linger = Duration::from_millis(700);
        let replica = replica(
            &bus,
            ListenerConfig {
                max_listeners: 1,
                linger,
                ..config()
            },
            &catalog,
        )
        .await;
        let mut ear = Ear::of(&bus, "app").await;
        assert_eq!(attach(&bus, "app").await.unwrap().outcome(), Outcome::Accepted);
        ear.up().await;
        until("the full listener leaves the group", || async {
            matches!(attach(&bus, "two").await, Err(BusError::NoResponders)).then_some(())
        })
        .await;
        // Without interest the slot is freed after the linger, and the group joined again.
        assert_eq!(ear.next_word().await, Heard::Down(v1::DownReason::NoInterest));
        until("the other project is taken", || async {
            attach(&bus, "two")
                .await
                .ok()
                .filter(|reply| reply.outcome() == Outcome::Accepted)
        })
        .await;
        replica.stop().await;
    }
}

#[tokio::test]
async fn interest_keeps_a_project() {
    let fixture = Fixture::start().await;
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Demand, fixture.listener_dsn())]);
    let config = ListenerConfig {
        linger: Duration::from_millis(1_500),
        ..config()
    };
    let replica = replica(&bus, config, &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    attach(&bus, "app").await.unwrap();
    let interest = v1::Interest {
        gateway: "test".into(),
        sessions: 1,
    }
    .encode_to_vec();
    // Many lingers, counted in beats of 200 ms.
    for _ in 0..20 {
        bus.publish(&subject::interest(&id("app")), interest.clone().into())
            .await
            .unwrap();
        ear.up().await;
    }
    assert_eq!(ear.next_word().await, Heard::Down(v1::DownReason::NoInterest));
    replica.stop().await;
}

#[tokio::test]
async fn a_project_leaves_with_its_file() {
    let fixture = Fixture::start().await;
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Always, fixture.listener_dsn())]);
    let replica = replica(&bus, config(), &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    ear.up().await;
    catalog.replace(Vec::new());
    assert_eq!(ear.next_word().await, Heard::Down(v1::DownReason::Shutdown));
    until("the slot is free", || async {
        replica.listener.held().is_empty().then_some(())
    })
    .await;
    replica.stop().await;
}

#[tokio::test]
async fn a_bus_that_stands_still_never_stops_the_reading() {
    let fixture = Fixture::start().await;
    fixture.run("create table public.t (id int primary key)").await;
    let mut nats = Nats::start().await;
    let buses = Tasks::new();
    let bus = nats.bus(&buses).await;
    let catalog = Catalog::from_projects(vec![project("app", Listen::Always, fixture.listener_dsn())]);
    let replica = replica(
        &bus,
        ListenerConfig {
            publish_events_max: 64,
            ..config()
        },
        &catalog,
    )
    .await;
    let mut ear = Ear::of(&bus, "app").await;
    ear.up().await;
    nats.kill();
    for batch in 0..40 {
        fixture
            .run(&format!(
                "insert into public.t select n from generate_series({batch} * 1000, {batch} * 1000 + 999) n"
            ))
            .await;
    }
    // Read by everybody who listens, or it would still be there.
    until("the server's queue is empty", || async {
        let usage: f64 = fixture
            .admin
            .query_one("select pg_catalog.pg_notification_queue_usage()", &[])
            .await
            .unwrap()
            .get(0);
        (usage == 0.0).then_some(())
    })
    .await;
    let sessions = "select count(*)::text from pg_catalog.pg_stat_activity \
                    where application_name like 'anvilbase-realtime-listener%'";
    assert_eq!(fixture.text(sessions).await, "1");
    nats.resume().await;
    let gap = loop {
        if let Heard::Gap { reason, dropped, .. } = ear.next_word().await {
            break (reason, dropped);
        }
    };
    assert_eq!(gap.0, "publish_backlog");
    assert!(gap.1 > 0);
    fixture.run("insert into public.t values (-1)").await;
    loop {
        if let Heard::Change { new: Some(new), .. } = ear.next_word().await
            && new == r#"{"id":-1}"#
        {
            break;
        }
    }
    assert_eq!(replica.listener.held()[0].reconnects, 0);
    replica.stop().await;
}

#[tokio::test]
async fn a_database_that_is_not_provisioned_is_named_as_such() {
    let fixture = Fixture::start().await;
    fixture.pg.create_database("bare").await;
    let dsn = fixture
        .pg
        .server
        .url("anvilbase_realtime_listener", crate::support::PASSWORD, "bare");
    let bus = Bus::local();
    let catalog = Catalog::from_projects(vec![project("app", Listen::Always, Dsn::parse(&dsn).unwrap())]);
    let replica = replica(&bus, config(), &catalog).await;
    let mut ear = Ear::of(&bus, "app").await;
    assert_eq!(ear.next_word().await, Heard::Down(v1::DownReason::NotProvisioned));
    let mut bare = fixture.pg.connect("bare").await;
    provision(&mut bare, ProvisionOptions::default()).await.unwrap();
    ear.up().await;
    replica.stop().await;
}
