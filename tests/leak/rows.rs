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

/// Followed by its own name, a partition without row security would show what its root hides.
#[tokio::test]
async fn a_partition_without_its_roots_row_security() {
    let world = World::start().await;
    world
        .run(
            "create table ev (id int, day date, owner uuid, word text, primary key (id, day)) partition by range (day);
             create table ev_1 partition of ev for values from ('2026-01-01') to ('2026-02-01');
             create table ev_2 (word text, owner uuid, day date not null, id int not null); alter table ev attach partition ev_2 for values from ('2026-02-01') to ('2026-03-01');
             alter table ev enable row level security;
             create policy own on ev for select to authenticated using (owner = auth.uid());
             select anvilbase_realtime.set_table('public', 'ev', realtime_public => true)",
        )
        .await;
    let bindings = ["ev", "ev_1", "ev_2"].map(|table| binding("*", table));
    let mut two = world.subscriber(&Who::u2(), &bindings).await;
    world
        .run(&format!(
            "insert into ev values (1, '2026-01-05', '{U1}', '{HUSH}'); insert into ev_1 values (2, '2026-01-06', '{U1}', '{HUSH}');
             insert into ev_2 (id, day, owner, word) values (3, '2026-02-06', '{U1}', '{HUSH}'), (4, '2026-02-07', '{U2}', 'mine');
             update ev set day = '2026-02-10' where id = 1; alter table ev detach partition ev_1;
             insert into ev_1 values (5, '2026-01-07', '{U1}', '{HUSH}')"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut two).await;
    // A row that moves is deleted here and inserted there: of a deletion only the key is told.
    assert_eq!(brief(&frames), ["INSERT ev 4", "DELETE ev 1"]);
    world.stop().await;
}

#[tokio::test]
async fn a_child_without_its_parents_row_security() {
    let world = World::start().await;
    world
        .run(
            "create table parent (id int primary key, owner uuid, word text); create table child () inherits (parent);
             alter table parent enable row level security; create policy own on parent for select to authenticated using (owner = auth.uid());
             create table open (id int primary key, owner uuid, word text); alter table open enable row level security; create policy p on open for select using (true);
             create table shut () inherits (open); alter table shut enable row level security",
        )
        .await;
    let mut two = world
        .subscriber(
            &Who::u2(),
            &["parent", "child", "open", "shut"].map(|table| binding("*", table)),
        )
        .await;
    world
        .run(&format!(
            "insert into child values (1, '{U1}', '{HUSH}'); update parent set word = '{HUSH}'; insert into shut values (2, '{U2}', '{HUSH}');
             update open set word = '{HUSH}'; insert into open values (3, '{U1}', 'open')"
        ))
        .await;
    assert_eq!(brief(&nothing_hidden(&world, &mut two).await), ["INSERT open 3"]);
    world.stop().await;
}

#[tokio::test]
async fn views_and_rules_over_hidden_rows() {
    let world = World::start().await;
    world
        .run(
            "create view all_notes as select * from notes; create materialized view old_notes as select * from notes;
             create table inbox (id int primary key, owner uuid, word text); create rule r as on insert to inbox do instead
               insert into notes (id, owner, title) values (new.id, new.owner, new.word);
             alter table inbox enable row level security; create policy p on inbox using (true)",
        )
        .await;
    let mut two = world
        .subscriber(
            &Who::u2(),
            &["all_notes", "old_notes", "inbox", "notes"].map(|table| binding("*", table)),
        )
        .await;
    world
        .run(&format!(
            "insert into inbox values (1, '{U1}', '{HUSH}'); insert into all_notes (id, owner, title) values (2, '{U1}', '{HUSH}');
             update all_notes set room = 1; refresh materialized view old_notes"
        ))
        .await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut two).await),
        Vec::<String>::new()
    );
    world.stop().await;
}

#[tokio::test]
async fn everything_at_once_is_no_more_than_each_by_itself() {
    let world = World::start().await;
    world
        .run(
            "create table off (id int primary key, word text); create table none (id int primary key, word text); alter table none enable row level security;
             create table kept (id int primary key, word text); alter table kept enable row level security; create policy p on kept for select to service_role using (true)",
        )
        .await;
    let wide = [
        json!({ "event": "*", "schema": "public" }),
        json!({ "event": "*", "schema": "*" }),
        json!({ "event": "*", "schema": "public", "table": "*" }),
    ];
    let (mut two, mut anon) = (
        world.subscriber(&Who::u2(), &wide).await,
        world.subscriber(&Who::anon(), &wide).await,
    );
    world
        .run(&format!(
            "insert into off values (1, '{HUSH}'); insert into none values (1, '{HUSH}'); insert into kept values (1, '{HUSH}');
             insert into notes (id, owner, title) values (1, '{U1}', '{HUSH}'), (2, '{U2}', 'mine'); create table late as select '{HUSH}' as word;
             insert into late values ('{HUSH}')"
        ))
        .await;
    let rows = |frames: &[serde_json::Value]| -> Vec<String> {
        brief(frames)
            .into_iter()
            .filter(|row| !row.contains("sentinel"))
            .collect()
    };
    assert_eq!(rows(&nothing_hidden(&world, &mut two).await), ["INSERT notes 2"]);
    assert_eq!(
        rows(&nothing_hidden(&world, &mut anon).await),
        Vec::<String>::new()
    );
    world.stop().await;
}

/// What was hidden when it was written is not told of later, when it would be seen.
#[tokio::test]
async fn a_row_that_comes_into_view_by_another_table() {
    let world = World::start().await;
    world
        .run(&format!(
            "create table members (member uuid, room int, primary key (member, room)); alter table members enable row level security;
             create policy own on members for select to authenticated using (member = auth.uid());
             create table msgs (id int primary key, room int, word text); alter table msgs enable row level security;
             create policy p on msgs for select to authenticated using (exists (select from members where members.room = msgs.room));
             insert into members values ('{U1}', 1)"
        ))
        .await;
    let mut two = world
        .subscriber(&Who::u2(), &[binding("*", "msgs"), binding("*", "members")])
        .await;
    world
        .run(&format!("insert into msgs values (1, 1, '{HUSH}')"))
        .await;
    assert_eq!(nothing_hidden(&world, &mut two).await.len(), 0);
    world
        .run(&format!("insert into members values ('{U2}', 1)"))
        .await;
    assert_eq!(nothing_hidden(&world, &mut two).await.len(), 1);
    // The row before the change is judged by what may be seen now, as REST would.
    world.run("update msgs set word = 'open'").await;
    let frames = world.frames(&mut two).await;
    assert_eq!(frames[0][4]["data"]["new"]["word"], "open");
    world.run("delete from members").await;
    world.frames(&mut two).await;
    world.run(&format!("update msgs set word = '{HUSH}'")).await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut two).await),
        Vec::<String>::new()
    );
    world.stop().await;
}

#[tokio::test]
async fn a_table_that_moves_out_of_reach_behind_a_write() {
    let world = World::start().await;
    let mut one = open_table(&world, &Who::u1()).await;
    world
        .run(&format!(
            "create schema vault; begin; insert into docs values (2, '{HUSH}'); alter table docs set schema vault; commit"
        ))
        .await;
    only_gaps(&nothing_hidden(&world, &mut one).await);
    world.stop().await;
}

#[tokio::test]
async fn deletes_of_rows_that_a_public_table_no_longer_shows() {
    let world = World::start().await;
    world
        .run(&format!(
            "create table docs (id text primary key); select anvilbase_realtime.set_table('public', 'docs', realtime_public => true);
             insert into docs values ('open'), ('{HUSH}')"
        ))
        .await;
    let mut anon = follow(&world, &Who::anon(), "docs").await;
    world.run("delete from docs where id = 'open'").await;
    assert_eq!(brief(&world.frames(&mut anon).await), ["DELETE docs \"open\""]);
    world
        .run("begin; delete from docs; select anvilbase_realtime.set_table('public', 'docs', delete_events => false); commit")
        .await;
    only_gaps(&nothing_hidden(&world, &mut anon).await);
    world.stop().await;
}

/// A restrictive policy, a policy of another command, and one of a role that is not the reader's.
#[tokio::test]
async fn policies_that_are_not_the_readers() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, word text); alter table docs enable row level security;
             create policy a on docs for insert to authenticated with check (true);
             create policy b on docs for update to authenticated using (true);
             create policy c on docs for delete to authenticated using (true);
             create policy d on docs for select to service_role using (true);
             create policy e on docs for select to anvilbase_realtime_prober using (true);
             create policy f on docs for select to postgres using (true);
             create policy g on docs as restrictive for select to authenticated using (true)",
        )
        .await;
    let (mut one, mut anon) = (
        follow(&world, &Who::u1(), "docs").await,
        follow(&world, &Who::anon(), "docs").await,
    );
    world
        .run(&format!(
            "insert into docs values (1, '{HUSH}'); update docs set word = word"
        ))
        .await;
    for socket in [&mut one, &mut anon] {
        assert_eq!(brief(&nothing_hidden(&world, socket).await), Vec::<String>::new());
    }
    world.stop().await;
}
