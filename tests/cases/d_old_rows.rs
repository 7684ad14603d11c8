//! What `old` holds: the whole row before an UPDATE, apart from `new`; of a DELETE its key, and the row for trusted servers.

use realtime_tests::world::{U1, U2, Who, World, binding};
use serde_json::{Value, json};

#[tokio::test]
async fn d02_a_deleted_row_is_its_key_whatever_the_replica_identity() {
    let world = World::start().await;
    for identity in ["full", "nothing", "default"] {
        world
            .run(&format!("alter table notes replica identity {identity}"))
            .await;
        let mut one = world.subscriber(&Who::u1(), &[binding("DELETE", "notes")]).await;
        let mut service = world
            .subscriber(&Who::service(), &[binding("DELETE", "notes")])
            .await;
        world
            .run(&format!(
                "insert into notes (id, owner, title, tags) values (7, '{U1}', 'a', '{{x}}'); delete from notes"
            ))
            .await;
        let seen = world.changes(&mut one).await;
        assert_eq!(seen.len(), 1, "{identity}");
        assert_eq!(seen[0]["old"], json!({ "id": 7 }));
        assert_eq!(seen[0]["old_record"], json!({ "id": 7 }));
        // The list still names every column that the subscriber may read.
        assert_eq!(
            names(&seen[0]),
            [
                "id", "owner", "room", "title", "done", "amount", "at", "tags", "meta"
            ]
        );
        let whole = world.changes(&mut service).await;
        assert_eq!(whole[0]["old"]["title"], "a");
        assert_eq!(whole[0]["old"]["owner"], U1);
        assert_eq!(whole[0]["old"].as_object().unwrap().len(), 9);
    }
    world.stop().await;
}

#[tokio::test]
async fn d03_an_update_brings_the_whole_row_before_it() {
    let world = World::start().await;
    world
        .run(&format!(
            "insert into notes (id, owner, room, title, done, amount, tags) \
             values (1, '{U1}', 1, 'a', false, 0.10, '{{x}}'); alter table notes replica identity nothing"
        ))
        .await;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "notes")]).await;
    let mut two = world.subscriber(&Who::u2(), &[binding("*", "notes")]).await;
    world.run("update notes set title = 'b' where id = 1").await;
    // Nothing changes, and it is an update all the same.
    world.run("update notes set id = id").await;
    world
        .run("insert into notes (id) values (1) on conflict do nothing")
        .await;
    world
        .run("insert into notes (id) values (1) on conflict (id) do update set room = 2")
        .await;
    let seen = world.changes(&mut one).await;
    let kinds: Vec<_> = seen.iter().map(|change| &change["eventType"]).collect();
    assert_eq!(kinds, ["UPDATE", "UPDATE", "UPDATE"]);
    let whole = |room: i64, title: &str| {
        json!({ "id": 1, "owner": U1, "room": room, "title": title, "done": false, "amount": 0.1, "at": null,
                "tags": ["x"], "meta": null })
    };
    for (change, old, new) in [
        (&seen[0], whole(1, "a"), whole(1, "b")),
        (&seen[1], whole(1, "b"), whole(1, "b")),
        (&seen[2], whole(1, "b"), whole(2, "b")),
    ] {
        assert_eq!((&change["old"], &change["new"]), (&old, &new));
        assert_eq!((&change["old_record"], &change["record"]), (&old, &new));
    }
    assert!(world.changes(&mut two).await.is_empty());
    // Each image is judged by itself: whoever sees the new one alone gets no old one.
    world.run(&format!("update notes set owner = '{U2}'")).await;
    let seen = world.changes(&mut two).await;
    assert_eq!(
        (seen.len(), &seen[0]["old"], &seen[0]["new"]["title"]),
        (1, &Value::Null, &json!("b"))
    );
    // And of both only the columns that the role may read.
    world
        .run("revoke select on notes from authenticated; grant select (id, owner, title) on notes to authenticated")
        .await;
    world.run("update notes set title = 'c', room = 3").await;
    let seen = world.changes(&mut two).await;
    assert_eq!(seen[0]["old"], json!({ "id": 1, "owner": U2, "title": "b" }));
    assert_eq!(seen[0]["new"], json!({ "id": 1, "owner": U2, "title": "c" }));
    assert_eq!(names(&seen[0]), ["id", "owner", "title"]);
    world.stop().await;
}

fn names(change: &Value) -> Vec<&str> {
    let columns = change["columns"].as_array().unwrap();
    columns
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect()
}
