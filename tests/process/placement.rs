//! Who holds which project, and what is told to those who must wait.

use std::time::Duration;

use realtime_testkit::wait::until;
use realtime_testkit::ws::Client;
use realtime_tests::cluster::{Cluster, Options};
use realtime_tests::world::{Socket, Who};
use serde_json::{Value, json};

fn projects(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("p{n}")).collect()
}

/// A socket of a project, joined to everything.
async fn join(cluster: &Cluster, project: &str) -> Client {
    let who = Who::claims(json!({ "role": "service_role", "ref": project }));
    let mut socket = Socket::at(cluster.gateways[0].port, &who.token()).await;
    let all = [json!({ "event": "*", "schema": "public" })];
    socket.join("realtime:all", &all, None).await.unwrap();
    socket.client
}

async fn told(client: &mut Client, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    client
        .until(what, |frame| frame[3] == "system" && fits(&frame[4]))
        .await
        .0
}

#[tokio::test]
async fn n02_a_project_beyond_the_ceiling_is_told_and_served_when_a_slot_is_free() {
    let options = Options {
        listeners: 1,
        authz: 1,
        gateways: 1,
        projects: projects(3),
        env: vec![
            ("ANVILBASE_REALTIME_MAX_LISTENERS", "2".to_owned()),
            ("ANVILBASE_REALTIME_LINGER_SECONDS", "1".to_owned()),
            ("ANVILBASE_REALTIME_FEED_LINGER_SECONDS", "1".to_owned()),
        ],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    let live = |payload: &Value| payload["message"] == "Subscribed to PostgreSQL";
    let mut first = join(&cluster, "p0").await;
    told(&mut first, "p0 is live", live).await;
    let mut second = join(&cluster, "p1").await;
    told(&mut second, "p1 is live", live).await;

    let mut third = join(&cluster, "p2").await;
    let deferred = told(&mut third, "p2 is deferred", |payload| {
        payload["code"] == "deferred"
    })
    .await;
    assert_eq!(deferred[4]["status"], "ok");
    assert!(
        deferred[4]["message"].as_str().unwrap().contains("capacity"),
        "{deferred}"
    );

    first.close().await;
    told(&mut third, "p2 is live", live).await;
    let sql = cluster.postgres.connect("p2").await;
    sql.batch_execute("create table t (id int primary key); insert into t values (1)")
        .await
        .unwrap();
    third
        .until("the row", |frame| {
            frame[3] == "postgres_changes" && frame[4]["data"]["new"]["id"] == 1
        })
        .await;
    cluster.stop().await;
}

/// Evenness and take-over, with 30 projects as in a small installation.
#[tokio::test]
async fn three_listeners_share_projects_evenly_and_take_over_those_of_a_killed_one() {
    const PROJECTS: usize = 30;
    let options = Options {
        listeners: 3,
        authz: 1,
        gateways: 1,
        projects: projects(PROJECTS),
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await;
    let mut sockets = Vec::new();
    for project in projects(PROJECTS) {
        let mut client = join(&cluster, &project).await;
        told(&mut client, "live", |payload| {
            payload["message"] == "Subscribed to PostgreSQL"
        })
        .await;
        sockets.push(client);
    }
    let mut counts = Vec::new();
    for listener in &cluster.listeners {
        counts.push(listener.held().await.len());
    }
    println!("held: {counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), PROJECTS);
    let even = PROJECTS / 3;
    assert!(
        counts.iter().all(|count| count.abs_diff(even) * 5 <= even),
        "{counts:?}"
    );

    let started = std::time::Instant::now();
    cluster.listeners[0].kill();
    until("the others hold all projects", || async {
        let held = cluster.listeners[1].held().await.len() + cluster.listeners[2].held().await.len();
        (held == PROJECTS).then_some(())
    })
    .await;
    let took = started.elapsed();
    println!("taken over after {took:.2?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    for client in &mut sockets {
        // Those of the killed one are told of the hole; nobody's socket broke.
        client
            .send_json(&json!([null, "h", "phoenix", "heartbeat", {}]))
            .await;
        client
            .until("the heartbeat's answer", |frame| frame[1] == "h")
            .await;
    }
    cluster.stop().await;
}
