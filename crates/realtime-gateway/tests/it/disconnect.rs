//! An operator's word, heard by every gateway on the bus.

use prost::Message as _;
use realtime_core::claims::Who;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_proto::v1;
use realtime_testkit::wait::until;
use realtime_testkit::ws::{Client, Frame};
use serde_json::json;

use crate::harness::{World, is_row, join, notes, project, subscribed, token};

async fn order(world: &World, project: &ProjectId, who: Who) {
    let body = v1::DisconnectRequest::of(project, &who).encode_to_vec();
    world.bus.publish(subject::SESSION, body.into()).await.unwrap();
}

#[tokio::test]
async fn b12_an_order_ends_a_users_sockets_on_every_gateway_and_nobody_elses() {
    let world = World::start().await;
    let (second, third) = (world.another_gateway().await, world.another_gateway().await);
    let mut meant = Vec::new();
    for gateway in [&world, &second, &third] {
        let url = gateway.url_as("2.0.0", &token("authenticated", "u1"));
        let mut client = Client::connect(&url).await;
        join(&mut client, "room", &token("authenticated", "u1"), notes()).await;
        subscribed(&mut client).await;
        meant.push(client);
    }
    // A socket of nobody's, with a channel of theirs beside another's.
    let mut shared = world.client().await;
    for sub in ["u1", "u2"] {
        join(&mut shared, sub, &token("authenticated", sub), notes()).await;
        subscribed(&mut shared).await;
    }
    let (mut other, _) = world.joined(&token("authenticated", "u2"), notes()).await;

    // Of another project, of nobody, and what is no order at all.
    order(&world, &ProjectId::parse("q").unwrap(), Who::Subject("u1".into())).await;
    order(&world, &project().id, Who::Session("u1".into())).await;
    world.bus.publish(subject::SESSION, "junk".into()).await.unwrap();
    order(&world, &project().id, Who::Subject("u1".into())).await;
    for client in &mut meant {
        let closed = loop {
            if let Frame::Closed(closed) = client.next().await {
                break closed;
            }
        };
        assert_eq!(closed, Some((4403, "disconnected by an operator".to_owned())));
    }
    let (said, before) = shared.until("the notice", |frame| frame[3] == "system").await;
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(
        (&said[0], &said[4]["message"]),
        (&json!("u1"), &json!("Server requested disconnect"))
    );
    shared
        .until("the close", |frame| frame[3] == "phx_close" && frame[0] == "u1")
        .await;
    world.insert(json!({ "id": 1 })).await;
    for client in [&mut shared, &mut other] {
        let (_, before) = client.until("a row", |frame| is_row(frame, 1)).await;
        assert!(before.is_empty(), "{before:?}");
    }
    // The order is about what was open: the token still counts.
    join(&mut shared, "u1", &token("authenticated", "u1"), notes()).await;
    until("only the others are left", async || {
        let open = [&world, &second, &third].map(|gateway| gateway.gateway.open_sessions());
        (open == [2, 0, 0]).then_some(())
    })
    .await;
}
