//! Values that are made to be taken for something else.

use realtime_tests::world::{U1, Who, World};

use crate::support::{brief, follow};

#[tokio::test]
async fn documents_nested_deeper_than_any_parser_likes() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, owner uuid, doc json); alter table docs enable row level security;
             create policy own on docs for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let mut one = follow(&world, &Who::u1(), "docs").await;
    for (id, depth) in [100, 127, 128, 129, 1000, 3600].iter().enumerate() {
        world
            .run(&format!(
                "insert into docs values ({id}, '{U1}', (repeat('[', {depth}) || repeat(']', {depth}))::json)"
            ))
            .await;
    }
    let texts = world.texts(&mut one).await;
    assert_eq!(texts.len(), 6);
    assert!(texts[5].contains(&"[".repeat(3600)));
    let _ = brief(&[]);
    world.stop().await;
}
