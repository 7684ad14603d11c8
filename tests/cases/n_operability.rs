//! What a subscriber is told where nothing will arrive.

use realtime_tests::world::{U1, Who, World, binding};
use serde_json::{Value, json};

#[tokio::test]
async fn n01_a_binding_that_cannot_emit_is_said_and_harms_no_other() {
    let world = World::start().await;
    world
        .run(
            "create table opted (id int primary key); alter table opted enable row level security; \
             create table bare (id int primary key); \
             create table locked (id int primary key); alter table locked enable row level security; \
             revoke select on locked from authenticated; create view v as select 1 as id",
        )
        .await;
    world.set_table("opted", json!({ "cdc_enabled": false })).await;
    let bindings = [
        binding("*", "later"),
        binding("*", "opted"),
        binding("*", "notes"),
        binding("INSERT", "bare"),
        binding("*", "locked"),
        binding("*", "v"),
    ];
    let mut socket = world.socket(&Who::u1()).await;
    let reply = socket.join("realtime:test", &bindings, None).await.unwrap();
    assert_eq!(
        reply["postgres_changes"].as_array().unwrap().len(),
        bindings.len()
    );
    let hints = socket.subscribed("realtime:test").await;
    let mut told = Vec::new();
    for frame in &hints {
        let payload = &frame[4];
        assert_eq!(
            (&frame[3], &payload["status"]),
            (&json!("system"), &json!("ok")),
            "{frame}"
        );
        assert_eq!(
            (&payload["extension"], &payload["channel"]),
            (&json!("postgres_changes"), &json!("test"))
        );
        assert!(
            payload["message"].as_str().unwrap().ends_with("arrives")
                || payload["message"].as_str().unwrap().contains("arrive")
        );
        told.push((
            payload["binding"].as_u64().unwrap(),
            payload["code"].as_str().unwrap(),
        ));
    }
    let expected = [
        (0, "no_such_table"),
        (1, "opted_out"),
        (3, "rls_disabled"),
        (4, "no_privilege"),
        (5, "not_a_base_table"),
    ];
    assert_eq!(told, expected);

    world.run(&format!("insert into notes (id, owner) values (1, '{U1}'); insert into opted values (1); insert into bare values (1); insert into locked values (1)")).await;
    let tables = |seen: Vec<Value>| {
        seen.iter()
            .map(|data| data["table"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(tables(world.changes(&mut socket).await), ["notes"]);

    // Each works once it can, without a rejoin.
    world
        .run(&format!(
            "create table later (id int primary key, owner uuid); alter table later enable row level security; \
             create policy own on later for select to authenticated using (owner = auth.uid()); \
             insert into later values (1, '{U1}')"
        ))
        .await;
    assert_eq!(tables(world.changes(&mut socket).await), ["later"]);
    world.set_table("opted", json!({ "cdc_enabled": true })).await;
    world.set_table("bare", json!({ "realtime_public": true })).await;
    // The table was silent for a while, and that is told before the next row.
    world
        .run(
            "create policy everybody on opted for select to authenticated using (true); insert into opted values (2); \
             insert into bare values (2); grant select on locked to authenticated; \
             create policy everybody on locked for select to authenticated using (true); insert into locked values (2)",
        )
        .await;
    let frames = world.frames(&mut socket).await;
    let told: Vec<&Value> = frames
        .iter()
        .map(|frame| {
            if frame[3] == "system" {
                &frame[4]["code"]
            } else {
                &frame[4]["data"]["table"]
            }
        })
        .collect();
    assert_eq!(told, ["gap", "opted", "bare", "locked"]);
    world.stop().await;
}
