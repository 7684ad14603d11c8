//! Filters mean what they say, in PostgreSQL's terms, or are refused.

use realtime_node::bus::Bus;
use realtime_tests::world::{Socket, U1, Who, World, binding, filtered};
use serde_json::{Value, json};

/// `realtime:<name>` for each filter on a table, live.
async fn follow(socket: &mut Socket, table: &str, filters: &[(&str, &str)]) {
    for (name, filter) in filters {
        let topic = format!("realtime:{name}");
        let joined = socket.join(&topic, &[filtered("*", table, filter)], None).await;
        joined.unwrap_or_else(|reason| panic!("{filter}: {reason}"));
        socket.subscribed(&topic).await;
    }
}

/// The names of the channels that got a change before the next sentinel, sorted, one for each change.
async fn heard(world: &World, socket: &mut Socket) -> Vec<String> {
    let frames = world.frames(socket).await;
    assert!(frames.iter().all(|frame| frame[4]["code"] != "gap"), "{frames:?}");
    let changes = frames.iter().filter(|frame| frame[3] == "postgres_changes");
    let topics = changes.map(|frame| frame[2].as_str().unwrap());
    let mut names: Vec<String> = topics
        .map(|topic| topic.trim_start_matches("realtime:").to_owned())
        .collect();
    names.sort();
    names
}

/// Joins, and leaves again, with a filter that must be refused; gives the reason.
async fn refused(socket: &mut Socket, table: &str, filter: &str) -> String {
    socket.refused(&[filtered("*", table, filter)]).await
}

#[tokio::test]
async fn c01_null_passes_no_filter_but_those_that_ask_for_it() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let filters = [
        ("eq", "room=eq.5"),
        ("neq", "room=neq.5"),
        ("lt", "room=lt.5"),
        ("in", "room=in.(5,6)"),
        ("gte", "room=gte.0"),
        ("not-eq", "room=not.eq.5"),
        ("not-in", "room=not.in.(5,6)"),
        ("not-gt", "room=not.gt.5"),
        ("is-null", "room=is.null"),
        ("distinct", "room=isdistinct.5"),
        ("not-null", "room=not.is.null"),
    ];
    follow(&mut socket, "notes", &filters).await;
    let insert =
        |id: i64, room: &str| format!("insert into notes (id, owner, room) values ({id}, '{U1}', {room})");
    world.run(&insert(1, "null")).await;
    assert_eq!(heard(&world, &mut socket).await, ["distinct", "is-null"]);
    world.run(&insert(2, "5")).await;
    assert_eq!(
        heard(&world, &mut socket).await,
        ["eq", "gte", "in", "not-gt", "not-null"]
    );
    world.run(&insert(3, "4")).await;
    assert_eq!(
        heard(&world, &mut socket).await,
        [
            "distinct", "gte", "lt", "neq", "not-eq", "not-gt", "not-in", "not-null"
        ]
    );
    world.stop().await;
}

#[tokio::test]
async fn c02_lists_work_for_every_type_and_number_of_items() {
    let world = World::start().await;
    world
        .run(
            "create type mood as enum ('sad', 'ok', 'happy');
             create table listed (id bigint primary key, u uuid, b bool, m mood, at timestamptz);
             alter table listed enable row level security;
             create policy everybody on listed for select to authenticated using (true);",
        )
        .await;
    let mut socket = world.socket(&Who::u1()).await;
    let uuid = |n: u8| format!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a{n:02}");
    let uuids = format!("u=in.({},{},{})", uuid(11), uuid(12).to_uppercase(), uuid(13));
    let filters = [
        ("one", "id=in.(1)"),
        ("three", "id=in.(1,2,3)"),
        ("blanks", "id=in.( 1 , 2 )"),
        ("uuids", uuids.as_str()),
        ("bools", "b=in.(t,true)"),
        ("moods", "m=in.(sad,\"happy\")"),
        ("times", "at=in.(2026-01-01T10:00:00Z,2026-01-01T12:00:00+02:00)"),
    ];
    follow(&mut socket, "listed", &filters).await;
    world
        .run(&format!(
            "insert into listed values (1, '{}', true, 'happy', '2026-01-01 11:00+01')",
            uuid(12)
        ))
        .await;
    let mut all: Vec<&str> = filters.iter().map(|(name, _)| *name).collect();
    all.sort_unstable();
    assert_eq!(heard(&world, &mut socket).await, all);
    world
        .run(&format!(
            "insert into listed values (4, '{}', false, 'ok', '2026-01-01 11:00+00')",
            uuid(14)
        ))
        .await;
    assert!(heard(&world, &mut socket).await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn c05_all_conditions_count() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let filters = [
        ("both", "room=eq.1,done=eq.false"),
        ("turned", "done=eq.false, room=eq.1"),
        ("three", "room=eq.1,done=not.is.true,title=like.a%"),
    ];
    follow(&mut socket, "notes", &filters).await;
    for (id, room, done, expected) in [
        (1, 1, "false", &["both", "three", "turned"][..]),
        (2, 1, "true", &[]),
        (3, 2, "false", &[]),
        (4, 1, "null", &["three"]),
    ] {
        world
            .run(&format!(
                "insert into notes (id, owner, room, done, title) values ({id}, '{U1}', {room}, {done}, 'ab')"
            ))
            .await;
        assert_eq!(heard(&world, &mut socket).await, expected, "{room}, {done}");
    }
    let reason = refused(&mut socket, "notes", "room=eq.1,done").await;
    // By the grammar the comma is part of the value: then it is refused as one, and never left out.
    assert!(reason.contains("the value must be a whole number"), "{reason}");
    let reason = refused(&mut socket, "notes", "room=eq.1,done=1").await;
    assert!(reason.contains("the value must be a whole number"), "{reason}");
    let reason = refused(&mut socket, "notes", "room=in.(1),done").await;
    assert!(reason.contains("filter condition 2"), "{reason}");
    world.stop().await;
}

#[tokio::test]
async fn c06_names_are_exact_whatever_they_are() {
    let world = World::start().await;
    let long = "語".repeat(21);
    world
        .run(&format!(
            r#"create table "Order Items" (id bigint primary key, "Group" int, "select" int, "naïve col" int, "a""b" int, "a.b" int,
                 "a=b" int, "日付" date, "{long}" int);
               alter table "Order Items" enable row level security;
               create policy everybody on "Order Items" for select to authenticated using (true);"#
        ))
        .await;
    let mut socket = world.socket(&Who::u1()).await;
    let long_filter = format!("{long}=eq.7");
    let filters = [
        ("group", "Group=eq.1"),
        ("date", "日付=eq.2026-01-01"),
        ("select", "select=eq.2"),
        ("naive", "naïve col=eq.3"),
        ("quote", "a\"b=eq.4"),
        ("quoted", r#""a\"b"=eq.4"#),
        ("point", "\"a.b\"=eq.5"),
        ("equals", "\"a=b\"=eq.6"),
        ("long", long_filter.as_str()),
    ];
    follow(&mut socket, "Order Items", &filters).await;
    let reason = refused(&mut socket, "Order Items", "group=eq.1").await;
    assert!(
        reason.contains("binding 0") && reason.contains("invalid column \"group\""),
        "{reason}"
    );

    world
        .run(r#"insert into "Order Items" values (1, 1, 2, 3, 4, 5, 6, '2026-01-01', 7)"#)
        .await;
    let frames = world.frames(&mut socket).await;
    assert_eq!(frames.len(), filters.len());
    let record = frames[0][4]["data"]["record"].as_object().unwrap();
    let mut keys: Vec<&str> = record.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut names = vec![
        "id",
        "Group",
        "select",
        "naïve col",
        "a\"b",
        "a.b",
        "a=b",
        "日付",
        &long,
    ];
    names.sort_unstable();
    assert_eq!(keys, names);
    world.stop().await;
}

#[tokio::test]
async fn c08_equality_is_the_types_own() {
    let world = World::start().await;
    world
        .run(
            "alter table notes add code char(5), add f8 float8, add during interval, add ip inet, add doc json, add price money",
        )
        .await;
    let mut socket = world.socket(&Who::u1()).await;
    let owner = format!("owner=eq.{}", U1.to_uppercase());
    let filters = [
        ("numeric", "amount=eq.1"),
        ("uuid", owner.as_str()),
        ("bool", "done=eq.t"),
        ("bool-upper", "done=eq.TRUE"),
        ("padded", "code=eq.ab"),
        ("nan", "f8=eq.NaN"),
        ("instant", "at=eq.2026-01-01T11:00:00+01:00"),
        ("interval", "during=eq.1 day"),
        ("inet", "ip=eq.10.0.0.1/32"),
        ("jsonb", r#"meta=eq.{"b":1,"a":[1.0]}"#),
        ("array", "tags=eq.{x,\"y z\"}"),
        ("above", "amount=gt.9.99"),
        ("exact", "id=eq.9007199254740993"),
    ];
    follow(&mut socket, "notes", &filters).await;
    world
        .run(&format!(
            "insert into notes (id, owner, amount, done, code, f8, at, during, ip, meta, tags) values (9007199254740992, '{U1}', 1.0000, true, \
             'ab', 'NaN', '2026-01-01 10:00Z', '24:00:00', '10.0.0.1', '{{\"a\":[1],\"b\":1.00}}', '{{x,y z}}')"
        ))
        .await;
    let mut expected: Vec<&str> = filters.iter().map(|(name, _)| *name).collect();
    expected.retain(|name| !["above", "exact"].contains(name));
    expected.sort_unstable();
    assert_eq!(heard(&world, &mut socket).await, expected);
    world
        .run(&format!(
            "insert into notes (id, owner, amount) values (9007199254740993, '{U1}', 10)"
        ))
        .await;
    assert_eq!(heard(&world, &mut socket).await, ["above", "exact", "uuid"]);
    for (filter, rule) in [
        ("doc=eq.{}", "eq does not apply to type json"),
        ("doc=is.null", "is does not apply to type json"),
        ("price=eq.1", "eq does not apply to type money"),
        ("meta=gt.1", "gt does not apply to type jsonb"),
        ("meta=eq.null", "the JSON value null"),
    ] {
        let reason = refused(&mut socket, "notes", filter).await;
        assert!(reason.contains(rule), "{filter}: {reason}");
    }
    world.stop().await;
}

#[tokio::test]
async fn c09_a_filter_that_is_not_understood_concerns_its_own_join_alone() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let mut other = world.subscriber(&Who::u1(), &[binding("*", "notes")]).await;
    for (filter, rule) in [
        ("nope=eq.1", "invalid column \"nope\""),
        ("room=foo.1", "this operator is not supported"),
        ("room=fts.1", "operator fts is not supported"),
        ("room=eq.abc", "must be a whole number"),
        ("room=like.1", "like does not apply to type int4"),
        ("title=match.(a)\\1", "a back-reference is not supported"),
        ("title=match.a{1000}", "a bound must be"),
    ] {
        let reason = socket
            .refused(&[binding("*", "notes"), filtered("*", "notes", filter)])
            .await;
        assert!(
            reason.contains(": binding 1: ") && reason.contains(rule),
            "{filter}: {reason}"
        );
    }
    let ok = socket.join("realtime:ok", &[binding("*", "notes")], None).await;
    assert!(ok.is_ok());
    socket.subscribed("realtime:ok").await;
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    assert_eq!(heard(&world, &mut socket).await, ["ok"]);
    assert_eq!(heard(&world, &mut other).await, ["test"]);
    world.stop().await;
}

#[tokio::test]
async fn c10_an_empty_list_or_selection_is_never_everything() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    for filter in [
        "room=in.()",
        "room=in.( )",
        "room=not.in.()",
        "room=in.(1,)",
        "room=eq.1,",
        ",",
    ] {
        refused(&mut socket, "notes", filter).await;
    }
    let select =
        |select: Value| json!({ "event": "*", "schema": "public", "table": "notes", "select": select });
    for (sent, rule) in [
        (json!(","), "binding 0: select: must be a list of column names"),
        (
            json!("id,,title"),
            "binding 0: select: must be a list of column names",
        ),
        (json!([""]), "binding 0: select: must be a list of column names"),
        (json!([1]), "binding 0: select: must be a list of column names"),
        (
            json!(["id", "nope"]),
            "binding 0: select: invalid column \"nope\"",
        ),
    ] {
        let reason = socket.refused(&[select(sent.clone())]).await;
        assert!(reason.contains(rule), "{sent}: {reason}");
    }
    let wild = json!({ "event": "*", "schema": "public", "select": ["id"] });
    assert!(socket.refused(&[wild]).await.contains("select: needs one table"));
    // As documented: an empty list is none, and everything that may be read is shown.
    socket
        .join("realtime:test", &[select(json!([]))], None)
        .await
        .unwrap();
    socket.subscribed("realtime:test").await;
    world
        .run(&format!(
            "insert into notes (id, owner, room) values (1, '{U1}', 7)"
        ))
        .await;
    assert_eq!(world.changes(&mut socket).await[0]["record"]["room"], 7);
    world.stop().await;
}

#[tokio::test]
async fn c11_limits_of_filters_are_settable_and_named() {
    let limits = |limits: &mut realtime_gateway::limits::Limits| {
        limits.filter_items_max = 3;
        limits.filter_conditions_max = 2;
        limits.filter_bytes_max = 60;
        limits.channel_pattern_bytes_max = 8_192;
        limits.socket_pattern_bytes_max = 12_288;
        limits.pattern_bytes_max = 8_192;
        limits.table_patterns_max = 3;
    };
    let world = World::start_with(limits, Bus::local()).await;
    let mut socket = world.socket(&Who::u1()).await;
    let long = |bytes: usize| format!("title=eq.{}", "x".repeat(bytes - 9));
    let regexes = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|n| filtered("*", "notes", &format!("title=match.^{n}")))
            .collect()
    };
    for (at, over, rule) in [
        (
            vec![filtered("*", "notes", "room=in.(1,2,3)")],
            vec![filtered("*", "notes", "room=in.(1,2,3,4)")],
            "more than 3 list items",
        ),
        (
            vec![filtered("*", "notes", "room=eq.1,id=eq.1")],
            vec![filtered("*", "notes", "room=eq.1,id=eq.1,id=eq.1")],
            "more than 2 conditions",
        ),
        (
            vec![filtered("*", "notes", &long(60))],
            vec![filtered("*", "notes", &long(61))],
            "longer than 60 bytes",
        ),
        (
            vec![filtered("*", "notes", "title=match.a[ab]{4}x")],
            vec![filtered("*", "notes", "title=match.a[ab]{12}x")],
            "too complex (at most 8192 bytes once compiled)",
        ),
        (
            regexes(2),
            regexes(3),
            "binding 2: the patterns of all filters of a channel take more than 8192 bytes together",
        ),
    ] {
        socket.join("realtime:test", &at, None).await.unwrap();
        let reason = socket.refused(&over).await;
        assert!(reason.contains(rule), "{reason}");
    }
    // Two channels within the channel's limit, and together over the socket's; a channel that is left gives its part back.
    socket.join("realtime:one", &regexes(2), None).await.unwrap();
    let reason = socket.join("realtime:two", &regexes(2), None).await.unwrap_err();
    let reason = reason["reason"].as_str().unwrap();
    assert!(
        reason.contains("of a socket take more than 12288 bytes together"),
        "{reason}"
    );
    socket.push("realtime:one", "phx_leave", json!({})).await.unwrap();
    socket.join("realtime:two", &regexes(2), None).await.unwrap();
    // All sockets together: the same patterns are no more than they were, others are.
    let mut other = world.socket(&Who::u2()).await;
    other.join("realtime:same", &regexes(2), None).await.unwrap();
    let reason = other
        .refused(&[
            filtered("*", "notes", "title=like.a%"),
            filtered("*", "notes", "title=like.b%"),
        ])
        .await;
    assert!(
        reason.contains("binding 1: the filters of all subscribers of a table have more than 3 different patterns together"),
        "{reason}"
    );
    socket.push("realtime:two", "phx_leave", json!({})).await.unwrap();
    other.push("realtime:same", "phx_leave", json!({})).await.unwrap();
    other
        .join(
            "realtime:other",
            &[
                filtered("*", "notes", "title=like.a%"),
                filtered("*", "notes", "title=like.b%"),
            ],
            None,
        )
        .await
        .unwrap();
    world.stop().await;
}

#[tokio::test]
async fn c13_an_update_is_judged_by_its_new_row() {
    let world = World::start().await;
    let mut socket = world
        .subscriber(&Who::u1(), &[filtered("UPDATE", "notes", "room=eq.1")])
        .await;
    world
        .run(&format!(
            "insert into notes (id, owner, room) values (1, '{U1}', 1)"
        ))
        .await;
    world.run("update notes set room = 2 where id = 1").await;
    assert!(world.changes(&mut socket).await.is_empty());
    world.run("update notes set room = 1 where id = 1").await;
    let changes = world.changes(&mut socket).await;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0]["type"], "UPDATE");
    assert_eq!(changes[0]["old"]["room"], 2);
    world.stop().await;
}

#[tokio::test]
async fn c15_what_is_null_is_asked_for_by_is_and_isdistinct() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let filters = [
        ("neq", "done=neq.true"),
        ("null", "done=is.null"),
        ("unknown", "done=is.unknown"),
        ("distinct", "done=isdistinct.true"),
        ("not-true", "done=not.is.true"),
        ("false", "done=is.false"),
    ];
    follow(&mut socket, "notes", &filters).await;
    for (id, done, expected) in [
        (1, "false", &["distinct", "false", "neq", "not-true"][..]),
        (2, "null", &["distinct", "not-true", "null", "unknown"]),
        (3, "true", &[]),
    ] {
        world
            .run(&format!(
                "insert into notes (id, owner, done) values ({id}, '{U1}', {done})"
            ))
            .await;
        assert_eq!(heard(&world, &mut socket).await, expected, "{done}");
    }
    world.stop().await;
}

/// The operators beyond the first seven, and `select`, as the SDKs write them.
#[tokio::test]
async fn patterns_and_column_lists_work_end_to_end() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let filters = [
        ("like", "title=like.%Deploy_"),
        ("ilike", "title=ilike.%dePLOY_"),
        ("match", r#"title=match."^[A-Z][a-z]+ (Deploy|Fix)!$""#),
        ("imatch", "title=imatch.^REL"),
        ("not-like", "title=not.like.%Deploy_"),
        ("not-imatch", "title=not.imatch.^rel"),
    ];
    follow(&mut socket, "notes", &filters).await;
    let note = |id: i64, title: &str| {
        format!("insert into notes (id, owner, room, title) values ({id}, '{U1}', 1, {title})")
    };
    world.run(&note(1, "'Release Deploy!'")).await;
    assert_eq!(
        heard(&world, &mut socket).await,
        ["ilike", "imatch", "like", "match"]
    );
    world.run(&note(2, "'other'")).await;
    assert_eq!(heard(&world, &mut socket).await, ["not-imatch", "not-like"]);
    world.run(&note(3, "null")).await;
    assert!(heard(&world, &mut socket).await.is_empty());

    world.run("revoke select on notes from authenticated; grant select (id, owner, room, title) on notes to authenticated").await;
    let select =
        |columns: Value| json!({ "event": "*", "schema": "public", "table": "notes", "select": columns });
    let mut narrow = world.socket(&Who::u1()).await;
    let reason = narrow.refused(&[select(json!(["title", "meta"]))]).await;
    assert!(reason.contains("select: invalid column \"meta\""), "{reason}");
    let bindings = [
        select(json!(["title"])),
        select(json!("room,\"title\"")),
        select(json!(["title"])),
        binding("*", "notes"),
    ];
    let response = narrow.join("realtime:test", &bindings, None).await.unwrap();
    narrow.subscribed("realtime:test").await;
    let ids: Vec<&Value> = (0..4).map(|at| &response["postgres_changes"][at]["id"]).collect();
    world.run("update notes set title = 'x' where id = 2").await;
    let frames = world.frames(&mut narrow).await;
    // One frame for each distinct list of columns.
    assert_eq!(frames.len(), 3, "{frames:?}");
    let of = |at: usize| {
        let frame = frames
            .iter()
            .find(|frame| frame[4]["ids"].as_array().unwrap().contains(ids[at]));
        frame.unwrap()[4].clone()
    };
    assert_eq!(of(0)["ids"], json!([ids[0], ids[2]]));
    let data = &of(0)["data"];
    assert_eq!(data["record"], json!({ "id": 2, "title": "x" }));
    assert_eq!(data["new"], data["record"]);
    assert_eq!(data["old_record"], json!({ "id": 2, "title": "other" }));
    let columns: Vec<&Value> = data["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(columns, ["id", "title"]);
    assert_eq!(
        of(1)["data"]["record"],
        json!({ "id": 2, "room": 1, "title": "x" })
    );
    assert_eq!(
        of(3)["data"]["record"],
        json!({ "id": 2, "owner": U1, "room": 1, "title": "x" })
    );
    world.run("delete from notes where id = 2").await;
    let deleted = world.changes(&mut narrow).await;
    assert_eq!(deleted.len(), 3);
    assert!(deleted.iter().all(|data| data["old"] == json!({ "id": 2 })));
    world.stop().await;
}

#[tokio::test]
async fn e02_nan_and_infinities_are_texts_and_keep_their_order() {
    let world = World::start().await;
    world
        .run(
            "create table odd (id bigint primary key, f4 float4, f4i float4, f8 float8, f8i float8, n numeric, ni numeric);
             alter table odd enable row level security;
             create policy everybody on odd for select to authenticated using (true);",
        )
        .await;
    let mut socket = world.socket(&Who::u1()).await;
    let filters = [
        ("all", "id=gt.0"),
        ("f8-nan", "f8=gt.1e308"),
        ("f8-inf", "f8i=gt.1e308"),
        ("inf-below-nan", "f8i=lt.NaN"),
        ("f4-nan", "f4=gt.Infinity"),
        ("f4-low", "f4i=lt.-3e38"),
        ("numeric-nan", "n=eq.nan"),
        ("numeric-low", "ni=eq.-Infinity"),
        ("never", "f8=lt.Infinity"),
    ];
    follow(&mut socket, "odd", &filters).await;
    world
        .run("insert into odd values (1, 'NaN', '-Infinity', 'NaN', 'Infinity', 'NaN', '-Infinity')")
        .await;
    // Frames come as text and are parsed strictly: a bare NaN would have failed here.
    let frames = world.frames(&mut socket).await;
    let frame = frames.iter().find(|frame| frame[2] == "realtime:all").unwrap();
    let expected = json!({
        "id": 1, "f4": "NaN", "f4i": "-Infinity", "f8": "NaN", "f8i": "Infinity", "n": "NaN", "ni": "-Infinity"
    });
    assert_eq!(frame[4]["data"]["record"], expected);
    let mut heard: Vec<&str> = frames
        .iter()
        .map(|frame| frame[2].as_str().unwrap().trim_start_matches("realtime:"))
        .collect();
    heard.sort_unstable();
    assert_eq!(
        heard,
        [
            "all",
            "f4-low",
            "f4-nan",
            "f8-inf",
            "f8-nan",
            "inf-below-nan",
            "numeric-low",
            "numeric-nan"
        ]
    );
    world.stop().await;
}
