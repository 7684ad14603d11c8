//! One suite for both buses: what our services rely on, they both do.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use realtime_node::bus::{Bus, BusError, Delivery, Subscription};
use realtime_node::tasks::Tasks;
use realtime_testkit::nats::{Nats, binaries};
use realtime_testkit::wait::within;

async fn body(subscription: &mut Subscription) -> String {
    match within("a message", subscription.next()).await {
        Some(Delivery::Message(message)) => String::from_utf8(message.body.to_vec()).unwrap(),
        other => panic!("expected a message, got {other:?}"),
    }
}

async fn keeps_order_and_matches_wildcards(bus: &Bus) {
    let mut all = bus.subscribe("t1.p.>", 100).await.unwrap();
    let mut one = bus.subscribe("t1.p.cdc.*.b", 100).await.unwrap();
    bus.flush().await.unwrap();
    for n in 0..20 {
        let subject = if n % 2 == 0 { "t1.p.cdc.a.b" } else { "t1.p.ctl" };
        bus.publish(subject, Bytes::from(n.to_string())).await.unwrap();
    }
    bus.publish("t1.q.ctl", Bytes::from_static(b"elsewhere"))
        .await
        .unwrap();
    bus.publish("t1.p.cdc.a.b", Bytes::from_static(b"sentinel"))
        .await
        .unwrap();
    for n in 0..20 {
        assert_eq!(body(&mut all).await, n.to_string());
    }
    assert_eq!(body(&mut all).await, "sentinel");
    for n in (0..20).step_by(2) {
        assert_eq!(body(&mut one).await, n.to_string());
    }
    assert_eq!(body(&mut one).await, "sentinel");
}

async fn a_queue_group_shares_and_an_empty_one_answers_at_once(bus: &Bus, tasks: &Tasks) {
    let ask = || bus.request("t2.attach", Bytes::new(), Duration::from_secs(5));
    assert!(matches!(ask().await, Err(BusError::NoResponders)));
    let (first, second) = (serve(bus, tasks, "one").await, serve(bus, tasks, "two").await);
    bus.flush().await.unwrap();
    let mut answers = HashSet::new();
    // A group spreads at random: both answer within so many tries, or something is wrong.
    for _ in 0..200 {
        answers.insert(ask().await.unwrap());
        if answers.len() == 2 {
            break;
        }
    }
    assert_eq!(answers.len(), 2);
    first.drain(Duration::from_secs(5)).await;
    second.drain(Duration::from_secs(5)).await;
    bus.flush().await.unwrap();
    assert!(matches!(ask().await, Err(BusError::NoResponders)));
}

/// Serves as one of the group until its tasks are drained; returns once it serves.
async fn serve(bus: &Bus, tasks: &Tasks, name: &'static str) -> Tasks {
    let group = tasks.child();
    let mut subscription = bus.queue_subscribe("t2.attach", "listeners", 10).await.unwrap();
    let (bus, stop) = (bus.clone(), group.cancelled());
    group.spawn("server", async move {
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                delivery = subscription.next() => match delivery {
                    Some(Delivery::Message(message)) => {
                        bus.respond(&message, Bytes::from_static(name.as_bytes())).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                },
            }
        }
        subscription.unsubscribe().await;
    });
    group
}

async fn a_server_that_is_silent_times_out(bus: &Bus) {
    let _deaf = bus.queue_subscribe("t3.attach", "listeners", 10).await.unwrap();
    bus.flush().await.unwrap();
    let asked = bus
        .request("t3.attach", Bytes::new(), Duration::from_millis(100))
        .await;
    assert!(matches!(asked, Err(BusError::Timeout(_))), "{asked:?}");
}

/// `capacity` is what the bus was made with.
async fn an_overflow_is_told_and_then_messages_go_on(bus: &Bus, publisher: &Bus, capacity: usize) {
    let mut slow = bus.subscribe("t4.x", capacity).await.unwrap();
    let mut marks = bus.subscribe("t4.mark", capacity).await.unwrap();
    bus.flush().await.unwrap();
    for n in 0..capacity * 4 {
        publisher
            .publish("t4.x", Bytes::from(n.to_string()))
            .await
            .unwrap();
    }
    publisher.publish("t4.mark", Bytes::new()).await.unwrap();
    // What was published before the mark has been taken or lost by now.
    while !matches!(within("the mark", marks.next()).await, Some(Delivery::Message(_))) {}
    let mut lost = false;
    let mut read = 0;
    loop {
        match within("the last message", slow.next()).await {
            Some(Delivery::Lost(_)) => lost = true,
            Some(Delivery::Message(message)) if &message.body[..] == b"last" => break,
            Some(Delivery::Message(_)) => {}
            None => panic!("the subscription ended"),
        }
        read += 1;
        if read == capacity / 2 {
            // By now there is room again.
            publisher
                .publish("t4.x", Bytes::from_static(b"last"))
                .await
                .unwrap();
        }
    }
    assert!(
        lost,
        "{} of {} messages were lost without a word",
        capacity * 3,
        capacity * 4
    );
}

async fn suite(bus: &Bus, publisher: &Bus, tasks: &Tasks, capacity: usize) {
    keeps_order_and_matches_wildcards(bus).await;
    a_queue_group_shares_and_an_empty_one_answers_at_once(bus, tasks).await;
    a_server_that_is_silent_times_out(bus).await;
    an_overflow_is_told_and_then_messages_go_on(bus, publisher, capacity).await;
}

#[tokio::test]
async fn local() {
    let tasks = Tasks::new();
    let bus = Bus::local();
    suite(&bus, &bus, &tasks, 64).await;
    assert!(tasks.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn every_nats_server_of_the_machine() {
    for binary in binaries() {
        let tasks = Tasks::new();
        let nats = Nats::start_binary(&binary, None).await;
        let bus = nats.bus_as(None, 64, &tasks).await;
        let publisher = nats.bus(&tasks).await;
        suite(&bus, &publisher, &tasks, 64).await;
        assert!(tasks.drain(Duration::from_secs(5)).await);
    }
}

#[tokio::test]
async fn a_reconnect_is_told_to_each_subscription() {
    let tasks = Tasks::new();
    let mut nats = Nats::start().await;
    let bus = nats.bus(&tasks).await;
    let mut subscription = bus.subscribe("a.b", 10).await.unwrap();
    bus.flush().await.unwrap();
    nats.kill();
    nats.resume().await;
    assert!(matches!(
        within("the loss", subscription.next()).await,
        Some(Delivery::Lost(_))
    ));
    bus.flush().await.unwrap();
    bus.publish("a.b", Bytes::from_static(b"after")).await.unwrap();
    assert_eq!(body(&mut subscription).await, "after");
    assert!(tasks.drain(Duration::from_secs(5)).await);
}
