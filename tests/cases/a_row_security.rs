//! Rows and columns reach those who may read them, and nobody else.

use realtime_tests::world::{ORG_A, ORG_B, Socket, U1, U2, Who, World, binding, filtered};
use serde_json::{Value, json};

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

#[tokio::test]
async fn a01_one_bad_token_silences_nobody_else() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, org uuid); alter table docs enable row level security;
             create policy own on docs for select to authenticated
               using (org = (auth.jwt() -> 'app_metadata' ->> 'org')::uuid)",
        )
        .await;
    // A text that is no uuid: the policy raises 22P02 for it.
    let mut bad = world
        .subscriber(&Who::user(U2, "null"), &[binding("*", "docs")])
        .await;
    let mut good = world.subscriber(&Who::u1(), &[binding("*", "docs")]).await;
    world
        .run(&format!("insert into docs values (1, '{ORG_A}')"))
        .await;
    let seen = world.changes(&mut good).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["new"], json!({ "id": 1, "org": ORG_A }));
    let frames = world.frames(&mut bad).await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0][3], "system");
    assert_eq!(frames[0][4]["status"], "ok");
    assert_eq!(frames[0][4]["code"], "policy_error");
    assert_eq!(frames[0][4]["sqlstate"], "22P02");
    assert!(
        !frames[0].to_string().contains(ORG_A),
        "the notice holds row data"
    );

    // Told once, and still nobody else's affair.
    world
        .run(&format!(
            "insert into docs values (2, '{ORG_A}'); update docs set id = 3 where id = 2"
        ))
        .await;
    assert_eq!(world.changes(&mut good).await.len(), 2);
    assert_eq!(world.frames(&mut bad).await, Vec::<Value>::new());
    world.stop().await;
}

#[tokio::test]
async fn a03_columns_that_the_role_may_not_read_stay_behind() {
    let world = World::start().await;
    world
        .run(
            "create table cp (id int primary key, pub text, secret text); alter table cp enable row level security;
             create policy everybody on cp for select using (true);
             revoke select on cp from authenticated; grant select (id, pub) on cp to authenticated",
        )
        .await;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "cp")]).await;
    let mut other = world.socket(&Who::u1()).await;
    for filter in [
        "secret=eq.hush-1",
        "secret=neq.hush-1",
        "secret=in.(hush-1,y)",
        "pub=eq.a,secret=gt.hush-1",
    ] {
        let reason = other.refused(&[filtered("*", "cp", filter)]).await;
        assert!(
            reason.contains("secret") && !reason.contains("hush"),
            "{filter}: {reason}"
        );
    }
    world
        .run(
            "insert into cp values (1, 'a', 'hush-1'); update cp set pub = 'b', secret = 'hush-2';
             delete from cp",
        )
        .await;
    let seen = world.changes(&mut one).await;
    let public = |text: &str| json!({ "id": 1, "pub": text });
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0]["new"], public("a"));
    assert_eq!(seen[0]["record"], public("a"));
    assert_eq!((&seen[1]["new"], &seen[1]["old"]), (&public("b"), &public("a")));
    assert_eq!(seen[1]["old_record"], public("a"));
    assert_eq!(seen[2]["old"], json!({ "id": 1 }));
    for change in &seen {
        let columns = change["columns"].as_array().unwrap();
        assert!(
            columns.iter().all(|column| column["name"] != "secret"),
            "{change}"
        );
        assert!(!change.to_string().contains("hush"), "{change}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a05_a_filter_on_a_delete_uses_the_key_or_nothing() {
    let world = World::start().await;
    world
        .run(&format!(
            "insert into notes (id, owner, room) values (7, '{U1}', 1), (8, '{U1}', 1)"
        ))
        .await;
    let bindings = [
        filtered("DELETE", "notes", "room=eq.1"),
        filtered("DELETE", "notes", "id=eq.7"),
        filtered("DELETE", "notes", "id=eq.7,room=eq.1"),
    ];
    let mut user = world.socket(&Who::u1()).await;
    let ids = joined(&mut user, &bindings).await;
    let mut service = world.socket(&Who::service()).await;
    let service_ids = joined(&mut service, &bindings).await;
    world
        .run("delete from notes where id = 7; delete from notes where id = 8")
        .await;

    let seen = changes_with_ids(&world, &mut user).await;
    assert_eq!(seen, [(vec![ids[1]], json!({ "id": 7 }))]);
    let seen = changes_with_ids(&world, &mut service).await;
    let matched: Vec<&[u64]> = seen.iter().map(|(ids, _)| ids.as_slice()).collect();
    assert_eq!(matched, [&service_ids[..], &service_ids[..1]]);
    world.stop().await;
}

#[tokio::test]
async fn a08_the_word_null_in_a_filter_is_a_text() {
    let world = World::start().await;
    for (filter, column) in [
        ("owner=eq.null", "owner"),
        ("id=eq.null", "id"),
        ("room=in.(1,null)", "room"),
        ("done=eq.null", "done"),
        ("at=gt.null", "at"),
    ] {
        let mut service = world.socket(&Who::service()).await;
        let reason = service.refused(&[filtered("*", "notes", filter)]).await;
        assert!(reason.contains(column), "{filter}: {reason}");
    }
    let filters = [
        "title=eq.null",
        "title=neq.x",
        "title=in.(null,x)",
        "room=neq.5",
        "room=lt.5",
        "room=gt.-5",
        "room=in.(1,5)",
    ];
    let bindings = filters.map(|filter| filtered("INSERT", "notes", filter));
    let mut service = world.socket(&Who::service()).await;
    let ids = joined(&mut service, &bindings).await;
    world.run("insert into notes (id) values (1)").await;
    assert_eq!(world.changes(&mut service).await, Vec::<Value>::new());
    world
        .run("insert into notes (id, title) values (2, 'null')")
        .await;
    let seen = changes_with_ids(&world, &mut service).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].0, ids[..3]);
    world.stop().await;
}

/// Keys whose text is easily taken for something else: each row arrives by its image, and by its
/// key where it is too large, and nobody else's row does.
#[tokio::test]
async fn a10_keys_of_every_shape_find_their_row() {
    let world = World::start().await;
    world
        .run(
            "create domain folded as text check (length(value) < 40);
             create domain positive as int check (value > 0)",
        )
        .await;
    let odd = [
        "a'b", "x\"y", " padded ", "-1", "1e5", "Ünï", "\\", "{}", "$1", "null", "",
    ];
    let tables: [(&str, &[&str]); 9] = [
        ("varchar(12)", &odd),
        ("char(5)", &["a'b", "x\"y", " p", "-1", "1e5", "\\"]),
        ("folded", &odd),
        ("positive", &["1", "2147483647"]),
        ("date", &["2026-02-28", "infinity", "0044-03-15 BC"]),
        (
            "numeric",
            &["1.50", "-0.0000001", "NaN", "12345678901234567890.5"],
        ),
        ("uuid", &["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
        ("inet", &["10.0.0.1/8", "::1", "192.168.0.0/16"]),
        ("timestamptz", &["2026-02-28 12:00:00.000001+05:30", "-infinity"]),
    ];
    let bindings: Vec<Value> = (0..tables.len())
        .map(|n| binding("*", &format!("k{n}")))
        .collect();
    for (n, (kind, _)) in tables.iter().enumerate() {
        world
            .run(&format!(
                "create table k{n} (id {kind} primary key, owner uuid, body text);
                 alter table k{n} enable row level security;
                 create policy own on k{n} for select to authenticated using (owner = auth.uid())"
            ))
            .await;
    }
    let mut one = world.subscriber(&Who::u1(), &bindings).await;
    let mut two = world.subscriber(&Who::u2(), &bindings).await;
    for (n, (kind, keys)) in tables.iter().enumerate() {
        for key in *keys {
            let insert = format!("insert into k{n} values ($1::text::{kind}, $2::text::uuid, 'small')");
            world.sql.execute(&insert, &[key, &U1]).await.unwrap();
        }
        let expected: Vec<String> = world
            .column(&format!("select to_json(id)::text from k{n} order by ctid"))
            .await
            .iter()
            .map(|id| serde_json::from_str::<Value>(id).unwrap().to_string())
            .collect();
        let seen = world.changes(&mut one).await;
        assert_eq!(expected, ids_of(&seen), "{kind}: by image");
        world
            .run(&format!("update k{n} set body = repeat('x', 9000)"))
            .await;
        let seen = world.changes(&mut one).await;
        assert!(
            seen.iter()
                .all(|change| change["errors"] == json!(["payload_too_large"])),
            "{kind}"
        );
        let mut by_key = ids_of(&seen);
        by_key.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(expected, by_key, "{kind}: by key");
        assert_eq!(world.changes(&mut two).await, Vec::<Value>::new(), "{kind}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a11_a_type_with_capitals_and_a_blank_in_its_schema_stops_nothing() {
    let world = World::start().await;
    world
        .run(
            "create schema \"My Types\"; create type \"My Types\".\"OrderState\" as enum ('New', 'Done');
             create table \"Orders\" (id int primary key, owner uuid, state \"My Types\".\"OrderState\",
               states \"My Types\".\"OrderState\"[], body text);
             alter table \"Orders\" enable row level security;
             create policy own on \"Orders\" for select to authenticated
               using (owner = auth.uid() and state <= 'Done'::\"My Types\".\"OrderState\")",
        )
        .await;
    let bindings = [
        binding("*", "Orders"),
        filtered("*", "Orders", "state=eq.Done"),
        filtered("*", "Orders", "state=in.(New)"),
    ];
    let mut one = world.socket(&Who::u1()).await;
    let ids = joined(&mut one, &bindings).await;
    let mut two = world.subscriber(&Who::u2(), &bindings).await;
    world
        .run(&format!(
            "insert into \"Orders\" values (1, '{U1}', 'New', '{{New,Done}}'); update \"Orders\" set state = 'Done';
             update \"Orders\" set body = repeat('x', 9000)"
        ))
        .await;
    let seen = changes_with_ids(&world, &mut one).await;
    let row = |state: &str| json!({ "id": 1, "owner": U1, "state": state, "states": ["New", "Done"], "body": null });
    assert_eq!(
        seen,
        [
            (vec![ids[0], ids[2]], row("New")),
            (vec![ids[0], ids[1]], row("Done")),
            (vec![ids[0]], json!({ "id": 1 })),
        ]
    );
    assert_eq!(world.changes(&mut two).await, Vec::<Value>::new());
    world.stop().await;
}

/// REST's own answer is the oracle.
#[tokio::test]
async fn a16_policies_through_joins_functions_and_subselects_say_what_rest_says() {
    let world = World::start().await;
    world
        .run(&format!(
            "create table members (member uuid, room int, primary key (member, room));
             alter table members enable row level security;
             create policy own on members for select to authenticated using (member = auth.uid());
             insert into members values ('{U1}', 1), ('{U2}', 2);
             create schema hidden;
             create function hidden.may(room int) returns boolean language sql stable security definer
               set search_path = '' as $$ select exists (
                 select from public.members m where m.room = may.room and m.member = auth.uid()) $$;
             create table by_join (id int primary key, room int, org text, body text);
             create table by_function (like by_join including all);
             create table by_claim (like by_join including all);
             create table by_email (like by_join including all);
             alter table by_join enable row level security; alter table by_function enable row level security;
             alter table by_claim enable row level security; alter table by_email enable row level security;
             create policy p on by_join for select to authenticated
               using (exists (select from members where members.room = by_join.room));
             create policy p on by_function for select to authenticated using (hidden.may(room));
             create policy p on by_claim for select to authenticated
               using (org = (select auth.jwt() -> 'app_metadata' ->> 'org'));
             create policy p on by_email for select to authenticated
               using (body is not null and split_part(auth.email(), '@', 2) = 'a.test' and auth.jwt() ->> 'session_id' = 's1')"
        ))
        .await;
    let user = |sub: &str, org: &str, email: &str, session: &str| {
        Who::claims(
            json!({ "role": "authenticated", "sub": sub, "app_metadata": { "org": org },
            "email": email, "session_id": session }),
        )
    };
    let people = [
        user(U1, ORG_A, "one@a.test", "s1"),
        user(U2, ORG_B, "two@b.test", "s1"),
        user(U2, ORG_A, "three@a.test", "s2"),
        Who::anon(),
    ];
    let tables = ["by_join", "by_function", "by_claim", "by_email"];
    let bindings = tables.map(|table| binding("INSERT", table));
    let mut sockets = Vec::new();
    for who in &people {
        sockets.push(world.subscriber(who, &bindings).await);
    }
    for table in tables {
        world
            .run(&format!(
                "insert into {table} values (1, 1, '{ORG_A}', 'x'), (2, 2, '{ORG_B}', 'x'), (3, null, null, null),
                   (4, 3, 'elsewhere', repeat('x', 9000))"
            ))
            .await;
        let mut visible = Vec::new();
        for (who, socket) in people.iter().zip(&mut sockets) {
            let rest = world
                .rest(who, &format!("select id::text from {table} order by id"))
                .await;
            let seen = world.changes(socket).await;
            assert_eq!(ids_of(&seen), rest, "{table}");
            visible.push(rest.len());
        }
        assert!(
            visible[0] > 0 && visible[0] < 4,
            "{table}: one row seen and one hidden"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a18_without_the_privilege_there_is_a_hint_and_no_hollow_frame() {
    let world = World::start().await;
    world
        .run(
            "create schema aside; create table aside.t (id int primary key); alter table aside.t enable row level security;
             create policy p on aside.t for select using (true); grant select on aside.t to authenticated;
             select anvilbase_realtime.set_table('aside', 't', emit_events => true);
             revoke select on notes from authenticated",
        )
        .await;
    let of_schema = json!({ "event": "*", "schema": "aside", "table": "t" });
    let mut one = world.socket(&Who::u1()).await;
    let bindings = [binding("*", "notes"), of_schema];
    one.join("realtime:test", &bindings, None).await.unwrap();
    let mut frames = one.subscribed("realtime:test").await;
    let write = |id: i32| {
        format!(
            "insert into notes (id, owner, title) values ({id}, '{U1}', 'mine'); insert into aside.t values ({id})"
        )
    };
    world.run(&write(1)).await;
    frames.extend(world.frames(&mut one).await);
    let hints: Vec<_> = frames
        .iter()
        .map(|frame| {
            (
                frame[4]["code"].clone(),
                frame[4]["binding"].clone(),
                frame[4]["status"].clone(),
            )
        })
        .collect();
    let hint = |binding: u64| (json!("no_privilege"), json!(binding), json!("ok"));
    assert_eq!(hints, [hint(0), hint(1)]);

    // What is granted counts from the next event on, and only that.
    world.run("grant select on notes to authenticated").await;
    world.run(&write(2)).await;
    let seen = world.changes(&mut one).await;
    assert_eq!(ids_of(&seen), ["2"]);
    assert_eq!(seen[0]["new"]["title"], "mine");
    world.run("grant usage on schema aside to authenticated").await;
    world.run(&write(3)).await;
    assert_eq!(ids_of(&world.changes(&mut one).await), ["3", "3"]);
    world
        .run("revoke select on notes from authenticated; revoke usage on schema aside from authenticated")
        .await;
    world.run(&write(4)).await;
    assert_eq!(world.changes(&mut one).await, Vec::<Value>::new());
    world.stop().await;
}

/// Joins `realtime:test` and gives the ids of its bindings, once it is live.
async fn joined(socket: &mut Socket, bindings: &[Value]) -> Vec<u64> {
    let response = socket.join("realtime:test", bindings, None).await.unwrap();
    let ids = response["postgres_changes"].as_array().unwrap();
    let ids = ids
        .iter()
        .map(|binding| binding["id"].as_u64().unwrap())
        .collect();
    socket.subscribed("realtime:test").await;
    ids
}

/// Each change's binding ids, and the row after it or else the row before.
async fn changes_with_ids(world: &World, socket: &mut Socket) -> Vec<(Vec<u64>, Value)> {
    let frames = world.frames(socket).await;
    let changes = frames.iter().filter(|frame| frame[3] == "postgres_changes");
    changes
        .map(|frame| {
            let ids = frame[4]["ids"].as_array().unwrap();
            let data = &frame[4]["data"];
            let row = if data["new"].is_null() {
                &data["old"]
            } else {
                &data["new"]
            };
            (ids.iter().map(|id| id.as_u64().unwrap()).collect(), row.clone())
        })
        .collect()
}

/// The key `id` of each change's row, as JSON text.
fn ids_of(changes: &[Value]) -> Vec<String> {
    changes
        .iter()
        .map(|change| change["new"]["id"].to_string())
        .collect()
}
