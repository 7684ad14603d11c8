//! Values and names that are made to be taken for something else.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding};
use serde_json::{Value, json};

use crate::support::{HUSH, brief, follow, nothing_hidden};

/// Table `t` with a key, an owner and further columns, and what U1 gets of it.
async fn owned(world: &World, columns: &str) -> Socket {
    world
        .run(&format!(
            "create table t (id int primary key, owner uuid, {columns}); alter table t enable row level security;
             create policy own on t for select to authenticated using (owner = auth.uid())"
        ))
        .await;
    follow(world, &Who::u1(), "t").await
}

/// That the frame of the latest row holds it exactly as PostgreSQL prints it.
async fn as_printed(world: &World, socket: &mut Socket) -> String {
    let texts = world.texts(socket).await;
    assert_eq!(texts.len(), 1, "{texts:?}");
    let row = world
        .column("select row_to_json(t)::text from t order by id desc limit 1")
        .await
        .remove(0);
    assert_eq!(texts[0].matches(&row).count(), 2, "{row} in {}", texts[0]);
    texts[0].clone()
}

#[tokio::test]
async fn documents_nested_deeper_than_any_parser_likes() {
    let world = World::start().await;
    let mut one = owned(&world, "doc json").await;
    for (id, depth) in [100, 127, 128, 129, 1000, 3600].iter().enumerate() {
        world
            .run(&format!(
                "insert into t values ({id}, '{U1}', (repeat('[', {depth}) || repeat(']', {depth}))::json)"
            ))
            .await;
        as_printed(&world, &mut one).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn columns_named_like_the_keys_of_a_frame() {
    let world = World::start().await;
    let mut one = owned(
        &world,
        "new text, old text, record text, old_record text, ids text, data text, errors text, columns text, \"eventType\" text,
         type text, schema text, \"table\" text, commit_timestamp text, status text, response text, \"__proto__\" text, \"constructor\" text,
         \"toString\" text, \"\"\"new\"\"\" text",
    )
    .await;
    world.run(&format!("insert into t (id, owner, errors, data, new, \"__proto__\") values (1, '{U1}', 'e', 'd', 'n', 'p')")).await;
    let text = as_printed(&world, &mut one).await;
    let frame: Value = serde_json::from_str(&text).unwrap();
    let data = &frame[4]["data"];
    assert_eq!(
        (&data["errors"], &data["schema"], &data["table"], &data["type"]),
        (&json!(null), &json!("public"), &json!("t"), &json!("INSERT"))
    );
    assert_eq!(frame[4]["ids"].as_array().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn column_names_that_need_escapes() {
    let world = World::start().await;
    let mut one = owned(
        &world,
        "\"\"\",\"\"owner\"\":\"\"x\" text, \"\\\" text, \"\\\\u0022\" text, \"}\" text, \"]\" text, \"\t\" text, \"\n\" text, \"\u{1}\" text, \"\u{2028}\" text,
         \"日付\" text, \"\u{feff}\" text, \"owner \" text, \"OWNER\" text, \"\u{202e}renwo\" text",
    )
    .await;
    world.run("revoke select on t from authenticated; grant select (id, owner, \"\\\", \"日付\", \"\n\") on t to authenticated").await;
    world
        .run(&format!(
            "insert into t values (1, '{U1}', '{HUSH}', 'b', '{HUSH}', '{HUSH}', '{HUSH}', '{HUSH}', 'g', '{HUSH}', '{HUSH}', 'j', '{HUSH}', '{HUSH}', '{HUSH}', '{HUSH}')"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    assert_eq!(
        frames[0][4]["data"]["new"],
        json!({ "id": 1, "owner": U1, "\\": "b", "\n": "g", "日付": "j" })
    );
    // Somebody else's, whatever it says of its owner.
    world.run(&format!("insert into t (id, owner, \"owner \", \"OWNER\", \"\"\",\"\"owner\"\":\"\"x\") values (2, '{U2}', '{U1}', '{U1}', '{U1}')")).await;
    assert_eq!(world.frames(&mut one).await, Vec::<Value>::new());
    world.stop().await;
}

#[tokio::test]
async fn documents_that_repeat_their_keys_and_ours() {
    let world = World::start().await;
    let mut one = owned(&world, "doc json").await;
    for (id, doc) in [
        format!("{{\"owner\":\"{U1}\",\"owner\":\"{U2}\",\"id\":9,\"id\":10}}"),
        "{\"a\":1,\"a\":2,\"a\":{\"a\":1,\"a\":2}}".to_owned(),
        "{\"ids\":[1],\"data\":{\"record\":{}},\"errors\":[\"payload_too_large\"]}".to_owned(),
        "{\"\":{\"\":{\"\":null}}}".to_owned(),
        "[\"]\",\"}\",\"\\\"\",\"\\\\\"]".to_owned(),
        " { \"a\" : \n [ 1 ,\t2 ] } ".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        world
            .run(&format!("insert into t values ({id}, '{U1}', $doc${doc}$doc$)"))
            .await;
        as_printed(&world, &mut one).await;
    }
    // A document that says whose row it is does not make it so.
    world
        .run(&format!(
            "insert into t values (99, '{U2}', '{{\"owner\":\"{U1}\",\"id\":99}}')"
        ))
        .await;
    assert_eq!(world.frames(&mut one).await, Vec::<Value>::new());
    world.stop().await;
}

/// JSON that is well-formed and no text: half a surrogate pair, in a value and in a key.
#[tokio::test]
async fn halves_of_surrogate_pairs() {
    let world = World::start().await;
    let mut one = owned(&world, "doc json").await;
    for (id, doc) in [
        r#""\ud800""#,
        r#""\udc00x""#,
        r#"{"\ud800":1}"#,
        r#"{"a":"\ud83d\ud83d\ude00"}"#,
        r#""\u0000""#,
    ]
    .iter()
    .enumerate()
    {
        world
            .run(&format!("insert into t values ({id}, '{U1}', '{doc}')"))
            .await;
        as_printed(&world, &mut one).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn texts_and_labels_that_break_out() {
    let world = World::start().await;
    world
        .run(r#"create type label as enum ('a","owner":"x', '\', '"', '},{', '<script>', E'\n', 'null', 'true')"#)
        .await;
    let mut one = owned(&world, "word text, label label, labels label[]").await;
    let words = [
        "\",\"owner\":\"x\"",
        "\\",
        "\\\"",
        "\\u0022",
        "</script><script>",
        "\u{2028}\u{2029}",
        "\u{1}\u{1f}\u{7f}",
        "\r\n\t\u{8}\u{c}",
        "\u{feff}\u{fffe}",
        "\u{1f600}\u{10ffff}",
        "null",
        "{}",
    ];
    for (id, word) in words.iter().enumerate() {
        let id = id as i32;
        world
            .sql
            .execute(
                "insert into t select $1, $2::text::uuid, $3, l, array[l, l] from unnest(enum_range(null::label)) with ordinality as e(l, n) where n = $1 % 8 + 1",
                &[&id, &U1, word],
            )
            .await
            .unwrap();
        as_printed(&world, &mut one).await;
    }
    world.stop().await;
}

/// A cast of the owner's own prints its type: as more than a value, and as another value than it is.
#[tokio::test]
async fn a_cast_to_json_that_prints_what_it_likes() {
    let world = World::start().await;
    for (n, printed) in [
        "'  {\"a\":1}\n '",
        "'{\"owner\":\"x\",\"owner\":\"y\"}'",
        "'\"a\",\"owner\":\"x\"'",
        "'1}'",
        "null",
        "'[[[[]]]]'",
        "'\"\\u0000\"'",
        "(select '\"' || current_user || '\"')",
    ]
    .iter()
    .enumerate()
    {
        world
            .run(&format!(
                "create type m{n} as enum ('a', 'b');
                 create function print(m{n}) returns json language plpgsql as $$ begin return {printed}; end $$;
                 create cast (m{n} as json) with function print(m{n});
                 create table c{n} (id int primary key, owner uuid, m m{n}); alter table c{n} enable row level security;
                 create policy own on c{n} for select to authenticated using (owner = auth.uid() and m = 'a')"
            ))
            .await;
        let bindings = [binding("*", &format!("c{n}"))];
        let mut one = world.subscriber(&Who::u1(), &bindings).await;
        let mut two = world.subscriber(&Who::u2(), &bindings).await;
        world
            .run(&format!(
                "insert into c{n} values (1, '{U1}', 'a'), (2, '{U2}', 'a'), (3, '{U1}', 'b')"
            ))
            .await;
        for (socket, own) in [(&mut one, 1), (&mut two, 2)] {
            for frame in world.frames(socket).await {
                if frame[3] == "postgres_changes" {
                    assert_eq!(frame[4]["data"]["new"]["id"], own, "{printed}: {frame}");
                    assert_eq!(
                        frame[4]["data"]["new"].as_object().unwrap().len(),
                        3,
                        "{printed}: {frame}"
                    );
                }
            }
        }
    }
    world.stop().await;
}

/// Nobody can ask whether such a row may be seen.
/// Nobody can ask whether such a row may be seen.
#[tokio::test]
async fn a_key_too_large_to_be_referred_to() {
    let world = World::start().await;
    world
        .run(
            "create table t (id text primary key, owner uuid); alter table t enable row level security;
             create policy own on t for select to authenticated using (owner = auth.uid())",
        )
        .await;
    let (mut one, mut service) = (
        follow(&world, &Who::u1(), "t").await,
        follow(&world, &Who::service(), "t").await,
    );
    let small = "k".repeat(4_500);
    world
        .run(&format!(
            "insert into t values ('{small}', '{U1}'); update t set id = repeat('{HUSH}', 500)"
        ))
        .await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut one).await),
        [format!("INSERT t \"{small}\"")]
    );
    let seen = nothing_hidden(&world, &mut service).await;
    let large = &seen[1][4]["data"];
    assert_eq!(
        (&large["new"], &large["errors"]),
        (&json!({}), &json!(["payload_too_large"]))
    );
    world.stop().await;
}

#[tokio::test]
async fn names_as_long_as_names_can_be() {
    let world = World::start().await;
    let long = "日".repeat(21);
    world
        .run(&format!(
            "create table \"{long}\" (\"{long}\" int primary key, owner uuid, body text); alter table \"{long}\" enable row level security;
             create policy \"{long}\" on \"{long}\" for select to authenticated using (owner = auth.uid())"
        ))
        .await;
    let (mut one, mut two) = (
        follow(&world, &Who::u1(), &long).await,
        follow(&world, &Who::u2(), &long).await,
    );
    world
        .run(&format!("insert into \"{long}\" values (1, '{U1}', 'x'), (2, '{U1}', repeat('{HUSH}', 900)), (3, '{U2}', 'x')"))
        .await;
    let rows: Vec<_> = nothing_hidden(&world, &mut one)
        .await
        .iter()
        .map(|frame| frame[4]["data"]["new"][&long].clone())
        .collect();
    assert_eq!(rows, [json!(1), json!(2)]);
    assert_eq!(nothing_hidden(&world, &mut two).await.len(), 1);
    world.stop().await;
}
