//! What a feed does by time alone, on a clock of its own.

use realtime_core::subject::{ATTACH, ATTACH_QUEUE};
use realtime_node::bus::{Bus, Subscription as BusSubscription};
use realtime_node::metrics::Metrics;
use realtime_proto::v1::attach_reply::Outcome;

use super::*;
use crate::authz::Authz;
use crate::feed::registry::Registry;
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;

async fn attach_request(requests: &mut BusSubscription, bus: &Bus) {
    let Some(Delivery::Message(request)) = requests.next().await else {
        panic!("the bus closed")
    };
    let reply = v1::AttachReply {
        outcome: Outcome::Accepted.into(),
        listener: "l".into(),
    };
    bus.respond(&request, reply.encode_to_vec().into()).await.unwrap();
}

async fn up(bus: &Bus, project: &ProjectId) {
    let status = v1::FeedStatus {
        owner: "l".into(),
        position: Some(v1::Position { epoch: 1, seq: 0 }),
        kind: Some(Status::Up(v1::feed_status::Up {})),
    };
    bus.publish(&subject::control(project), status.encode_to_vec().into())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_feed_asks_again_when_its_owners_beat_is_missing() {
    let (bus, tasks) = (Bus::local(), Tasks::new());
    let project = ProjectId::parse("p").unwrap();
    let metrics = GatewayMetrics::new(&Metrics::new());
    let shared = Shared::new(
        bus.clone(),
        Authz::new([]),
        Arc::new(Limits::defaults()),
        metrics,
        "g",
    );
    let mut requests = bus.queue_subscribe(ATTACH, ATTACH_QUEUE, 16).await.unwrap();
    let registry = Registry::new(shared, tasks.clone());
    let _feed = registry.feed(&project);
    attach_request(&mut requests, &bus).await;
    let began = Instant::now();
    // Nobody is up yet: asked again after 5 s less jitter, until a beat comes.
    attach_request(&mut requests, &bus).await;
    let waited = began.elapsed().as_secs_f64();
    assert!((3.0..=5.1).contains(&waited), "{waited}");
    for _ in 0..4 {
        up(&bus, &project).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(registry.page().contains("\"live\":true"), "{}", registry.page());
    // The last beat was 5 s ago.
    let began = Instant::now();
    attach_request(&mut requests, &bus).await;
    let waited = began.elapsed().as_secs_f64();
    let latest = 10.1 + ATTACH_SPREAD.as_secs_f64();
    assert!((9.9..=latest).contains(&waited), "{waited}");
    assert!(registry.page().contains("\"live\":false"), "{}", registry.page());
    tasks.drain(Duration::from_secs(1)).await;
}
