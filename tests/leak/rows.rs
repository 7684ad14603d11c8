//! Rows that somebody may not see.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding};
use serde_json::json;

use crate::support::{HUSH, brief, follow, nothing_hidden, only_gaps};

/// A table that everybody may read, whose facts have just been used; `id` 1 was delivered.
async fn open_table(world: &World, who: &Who) -> Socket {
    world
        .run(
            "create table docs (id int primary key, word text); alter table docs enable row level security;
             create policy p on docs for select using (true)",
        )
        .await;
    let mut socket = follow(world, who, "docs").await;
    world.run("insert into docs values (1, 'open')").await;
    assert_eq!(brief(&world.frames(&mut socket).await), ["INSERT docs 1"]);
    socket
}

/// No committed state of the database ever showed the row: the policy that is in force with it hides it.
#[tokio::test]
async fn a_row_that_its_own_transaction_hides_by_a_policy() {
    let world = World::start().await;
    let mut one = open_table(&world, &Who::u1()).await;
    for (n, hide) in ["alter policy p on docs using (id = 1)", "drop policy p on docs"]
        .iter()
        .enumerate()
    {
        world
            .run(&format!(
                "begin; insert into docs values ({n} + 2, '{HUSH}'); {hide}; commit"
            ))
            .await;
        only_gaps(&nothing_hidden(&world, &mut one).await);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_row_that_its_own_transaction_hides_by_a_revoke() {
    let world = World::start().await;
    let mut one = open_table(&world, &Who::u1()).await;
    world
        .run(&format!(
            "begin; insert into docs values (2, '{HUSH}'); revoke select on docs from authenticated; commit"
        ))
        .await;
    only_gaps(&nothing_hidden(&world, &mut one).await);
    world.stop().await;
}

#[tokio::test]
async fn a_row_that_its_own_transaction_hides_by_a_setting() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, word text);
             select anvilbase_realtime.set_table('public', 'docs', realtime_public => true)",
        )
        .await;
    let mut anon = follow(&world, &Who::anon(), "docs").await;
    world.run("insert into docs values (1, 'open')").await;
    assert_eq!(brief(&world.frames(&mut anon).await), ["INSERT docs 1"]);
    world
        .run(&format!(
            "begin; insert into docs values (2, '{HUSH}');
             select anvilbase_realtime.set_table('public', 'docs', realtime_public => false); commit"
        ))
        .await;
    only_gaps(&nothing_hidden(&world, &mut anon).await);
    world.stop().await;
}

/// A membership fires no event trigger; a group's policy is judged by it all the same.
#[tokio::test]
async fn a_row_that_its_own_transaction_hides_by_a_membership() {
    let world = World::start().await;
    world
        .run(
            "alter role authenticated inherit; create role staff; grant staff to authenticated; create table docs (id int primary key, word text);
             alter table docs enable row level security; create policy p on docs for select to staff using (true)",
        )
        .await;
    let mut one = follow(&world, &Who::u1(), "docs").await;
    world.run("insert into docs values (1, 'open')").await;
    assert_eq!(brief(&world.frames(&mut one).await), ["INSERT docs 1"]);
    world
        .run(&format!(
            "begin; insert into docs values (2, '{HUSH}'); revoke staff from authenticated; commit"
        ))
        .await;
    only_gaps(&nothing_hidden(&world, &mut one).await);
    world.stop().await;
}

/// The event names a table that another one's policies now stand for.
#[tokio::test]
async fn tables_that_swap_their_names() {
    let world = World::start().await;
    world
        .run(
            "create table open (id int primary key, word text); alter table open enable row level security;
             create policy p on open for select using (true);
             create table secret (id int primary key, word text); alter table secret enable row level security",
        )
        .await;
    let bindings = [binding("*", "open"), binding("*", "secret")];
    let mut one = world.subscriber(&Who::u1(), &bindings).await;
    world
        .run(&format!(
            "insert into open values (1, 'open'); insert into secret values (2, '{HUSH}')"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT open 1"]);
    let swap =
        "alter table open rename to tmp; alter table secret rename to open; alter table tmp rename to secret";
    // Before the swap, after it, and after another one.
    world
        .run(&format!(
            "begin; insert into secret values (3, '{HUSH}'); {swap}; insert into open values (4, '{HUSH}');
             insert into secret values (5, 'open'); commit"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    assert_eq!(brief(&frames), ["INSERT secret 5"]);
    world
        .run(&format!(
            "{swap}; insert into secret values (6, '{HUSH}'); insert into open values (7, 'open')"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT open 7"]);
    world.stop().await;
}

/// The table that the row was in is gone; one of the same name would show it.
#[tokio::test]
async fn a_table_made_anew_under_its_name() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, word text); alter table docs enable row level security;
             create policy p on docs for select using (id = 1)",
        )
        .await;
    let mut one = follow(&world, &Who::u1(), "docs").await;
    world.run("insert into docs values (1, 'open')").await;
    assert_eq!(brief(&world.frames(&mut one).await), ["INSERT docs 1"]);
    world
        .run(&format!(
            "begin; insert into docs values (2, '{HUSH}'); drop table docs; create table docs (id int primary key, word text);
             alter table docs enable row level security; create policy p on docs for select using (true);
             insert into docs values (3, 'open'); commit"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut one).await), ["INSERT docs 3"]);
    world.stop().await;
}

#[tokio::test]
async fn an_upsert_on_the_row_of_another() {
    let world = World::start().await;
    let mut two = follow(&world, &Who::u2(), "notes").await;
    world
        .run(&format!(
            "insert into notes (id, owner, title) values (1, '{U1}', '{HUSH}');
             insert into notes (id, owner, title) values (1, '{U2}', '{HUSH}') on conflict (id) do update set room = 1;
             insert into notes (id, owner, title) values (1, '{U2}', 'x') on conflict (id) do update set owner = excluded.owner, title = 'x'"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut two).await;
    assert_eq!(brief(&frames), ["UPDATE notes 1"]);
    assert_eq!(frames[0][4]["data"]["old"], json!(null));
    world.stop().await;
}

/// The key of a row that was hidden until its owner, and its key, changed.
#[tokio::test]
async fn the_former_key_of_a_row_that_comes_into_view() {
    let world = World::start().await;
    world
        .run(
            "create table codes (id text primary key, owner uuid); alter table codes enable row level security;
             create policy own on codes for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let mut two = follow(&world, &Who::u2(), "codes").await;
    world
        .run(&format!(
            "insert into codes values ('{HUSH}', '{U1}'); update codes set id = 'new', owner = '{U2}'"
        ))
        .await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut two).await),
        ["UPDATE codes \"new\""]
    );
    // The same where the row is too large to be carried.
    world
        .run(&format!(
            "insert into codes values (repeat('{HUSH}', 200), '{U1}')"
        ))
        .await;
    world
        .run(&format!(
            "update codes set id = repeat('y', 4000), owner = '{U2}' where length(id) > 100"
        ))
        .await;
    nothing_hidden(&world, &mut two).await;
    world.stop().await;
}
