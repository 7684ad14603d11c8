//! Columns that a role may not read.

use realtime_tests::world::World;

use crate::support::{HUSH, brief, half_open, nothing_hidden};

#[tokio::test]
async fn a_column_whose_grant_its_own_transaction_revokes() {
    let world = World::start().await;
    let mut one = half_open(&world).await;
    world
        .run("grant select (secret) on docs to authenticated; insert into docs values (1, 'a', 'b')")
        .await;
    let frames = world.frames(&mut one).await;
    assert_eq!(frames[0][4]["data"]["new"]["secret"], "b");
    world
        .run(&format!(
            "begin; insert into docs values (2, 'a', '{HUSH}'); revoke select (secret) on docs from authenticated; commit"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT docs 2"]);
    world.stop().await;
}

/// The grant goes with the column, the image with the name.
#[tokio::test]
async fn columns_that_swap_their_names_behind_a_write() {
    let world = World::start().await;
    let mut one = half_open(&world).await;
    let swap = "alter table docs rename secret to tmp; alter table docs rename word to secret; alter table docs rename tmp to word";
    world
        .run(&format!(
            "begin; insert into docs values (1, 'a', '{HUSH}'); {swap}; commit"
        ))
        .await;
    nothing_hidden(&world, &mut one).await;
    world
        .run(&format!(
            "insert into docs (id, secret, word) values (2, 'a', '{HUSH}')"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    assert_eq!(brief(&frames), ["INSERT docs 2"]);
    assert!(
        frames
            .iter()
            .any(|frame| frame[4]["data"]["new"]["secret"] == "a"),
        "{frames:?}"
    );
    world.stop().await;
}

/// A column that is made anew under its name, and readable now.
#[tokio::test]
async fn a_column_that_is_made_anew_behind_a_write() {
    let world = World::start().await;
    let mut one = half_open(&world).await;
    world.run("insert into docs values (1, 'a', 'b')").await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT docs 1"]);
    world
        .run(&format!(
            "begin; insert into docs values (2, 'a', '{HUSH}'); alter table docs drop secret; alter table docs add secret text;
             grant select (secret) on docs to authenticated; commit"
        ))
        .await;
    nothing_hidden(&world, &mut one).await;
    world.run("insert into docs values (3, 'a', 'open')").await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT docs 3"]);
    world.stop().await;
}

#[tokio::test]
async fn a_column_that_comes_after_the_join() {
    let world = World::start().await;
    let mut one = half_open(&world).await;
    world
        .run(&format!(
            "alter table docs add more text default '{HUSH}'; insert into docs values (1, 'a', '{HUSH}');
             begin; alter table docs add again text default '{HUSH}'; update docs set word = 'b'; commit"
        ))
        .await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut one).await),
        ["INSERT docs 1", "UPDATE docs 1"]
    );
    world.stop().await;
}
