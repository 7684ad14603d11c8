//! Rows and columns reach those who may read them, and nobody else.

use realtime_tests::world::{U1, U2, Who, World, binding};
use serde_json::json;

#[tokio::test]
async fn a07_a_row_that_leaves_the_readers_scope_is_not_shown() {
    let world = World::start().await;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "notes")]).await;
    let mut two = world.subscriber(&Who::u2(), &[binding("*", "notes")]).await;
    world
        .run(&format!(
            "insert into notes (id, owner, title) values (1, '{U1}', 'a')"
        ))
        .await;
    assert_eq!(world.changes(&mut one).await.len(), 1);
    assert_eq!(world.changes(&mut two).await.len(), 0);

    world
        .run(&format!(
            "update notes set owner = '{U2}', title = 'x' where id = 1"
        ))
        .await;
    assert_eq!(world.changes(&mut one).await.len(), 0);
    let seen = world.changes(&mut two).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["new"]["title"], "x");
    assert_eq!(seen[0]["old"], json!(null));
    assert_eq!(seen[0]["old_record"], json!({}));
    world.stop().await;
}
