//! Frames, topics, references and addresses that are somebody else's, or nobody's.

use realtime_testkit::ws::Client;
use realtime_tests::world::{Socket, U1, Who, World, binding, filtered};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{HUSH, brief, follow, half_open, nothing_hidden};

/// A heartbeat and its answer: the socket lives, and all that was sent before was taken in.
async fn lives(socket: &mut Socket) -> Vec<Value> {
    socket
        .client
        .send_json(&json!([null, "alive", "phoenix", "heartbeat", {}]))
        .await;
    socket
        .client
        .until("the heartbeat's reply", |frame| frame[1] == "alive")
        .await
        .1
}

async fn insert_own(world: &World, id: i32) {
    world
        .run(&format!("insert into notes (id, owner) values ({id}, '{U1}')"))
        .await;
}

#[tokio::test]
async fn frames_that_only_a_server_sends() {
    let world = World::start().await;
    let mut victim = follow(&world, &Who::u1(), "notes").await;
    let mut forger = follow(&world, &Who::anon(), "notes").await;
    let data = json!({ "schema": "public", "table": "notes", "type": "INSERT", "commit_timestamp": "2026-01-01T00:00:00Z",
        "columns": [], "errors": null, "record": { "title": HUSH }, "new": { "title": HUSH } });
    for (event, payload) in [
        ("postgres_changes", json!({ "ids": [1, 2, 3], "data": data })),
        (
            "system",
            json!({ "status": "error", "message": HUSH, "extension": "postgres_changes", "channel": "test" }),
        ),
        (
            "phx_reply",
            json!({ "status": "ok", "response": { "title": HUSH } }),
        ),
        ("phx_close", json!({})),
        ("phx_error", json!({})),
        ("presence_state", json!({ HUSH: {} })),
        ("*", json!({ "title": HUSH })),
    ] {
        forger.send("realtime:test", event, payload).await;
    }
    lives(&mut forger).await;
    insert_own(&world, 1).await;
    assert_eq!(
        brief(&nothing_hidden(&world, &mut victim).await),
        ["INSERT notes 1"]
    );
    world.stop().await;
}

#[tokio::test]
async fn a_leave_a_close_and_a_join_for_the_channel_of_another_socket() {
    let world = World::start().await;
    let mut victim = follow(&world, &Who::u1(), "notes").await;
    let mut other = world.socket(&Who::anon()).await;
    for reference in ["realtime:test", "1", "2"] {
        for event in ["phx_leave", "phx_close"] {
            let frame = json!([reference, "9", "realtime:test", event, {}]);
            other.client.send_json(&frame).await;
        }
    }
    let bindings = [binding("*", "notes")];
    other.join("realtime:test", &bindings, None).await.unwrap();
    other.push("realtime:test", "phx_leave", json!({})).await.unwrap();
    lives(&mut other).await;
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut victim).await), ["INSERT notes 1"]);
    world.stop().await;
}

#[tokio::test]
async fn a_token_for_the_channel_of_another_socket() {
    let world = World::start().await;
    let mut victim = follow(&world, &Who::anon(), "notes").await;
    let mut other = world.socket(&Who::u1()).await;
    let token = json!({ "access_token": Who::u1().token() });
    let refused = other
        .push("realtime:test", "access_token", token)
        .await
        .unwrap_err();
    assert_eq!(refused["reason"], "unmatched topic");
    insert_own(&world, 1).await;
    assert_eq!(world.frames(&mut victim).await, Vec::<Value>::new());
    world.stop().await;
}

/// The first join is looked up for U1; the channel that stands in the end is anon's.
#[tokio::test]
async fn a_join_that_a_later_one_overtakes() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    let bindings = json!([binding("*", "notes")]);
    let config = json!({ "postgres_changes": bindings });
    for round in 0..20 {
        let first = json!({ "config": config, "access_token": Who::u1().token() });
        let topic = format!("realtime:{round}");
        socket
            .client
            .send_json(&json!(["a", "1", topic, "phx_join", first]))
            .await;
        socket
            .client
            .send_json(&json!(["b", "2", topic, "phx_join", { "config": config }]))
            .await;
        // What comes late for the first must not touch the second.
        socket
            .client
            .send_json(&json!(["a", "3", topic, "access_token", { "access_token": Who::u1().token() }]))
            .await;
        socket.subscribed(&topic).await;
    }
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut socket).await), Vec::<String>::new());
    world.stop().await;
}

/// The token comes while the join before it is still looked up.
#[tokio::test]
async fn tokens_that_change_faster_than_they_are_looked_up() {
    let world = World::start().await;
    let mut socket = follow(&world, &Who::anon(), "notes").await;
    for _ in 0..20 {
        for token in [
            json!(Who::u1().token()),
            json!(null),
            json!(Who::service().token()),
            json!(null),
        ] {
            socket
                .send("realtime:test", "access_token", json!({ "access_token": token }))
                .await;
        }
    }
    // The last word was anon's: once that is live, nothing of the others' is left.
    lives(&mut socket).await;
    let live = |frame: &Value| {
        frame[2] == "realtime:test"
            && frame[4]["message"] == "Subscribed to PostgreSQL"
            && frame[4]["role"] == "anon"
    };
    let before = world.frames(&mut socket).await;
    if !before.iter().any(live) {
        socket.client.until("anon is live", live).await;
    }
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut socket).await), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_frames() {
    let world = World::start().await;
    let mut socket = follow(&world, &Who::u1(), "notes").await;
    let deep = "[".repeat(100_000);
    for text in [
        "",
        "null",
        "[]",
        "{}",
        "[null]",
        "\"x\"",
        "[1,2,3]",
        "{\"topic\":\"realtime:test\",\"event\":\"phx_leave\",\"payload\":{},\"ref\":\"1\"}",
        "[\"realtime:test\",\"1\",\"realtime:test\",\"phx_leave\"]",
        "[{},null,\"realtime:test\",\"phx_leave\",{}]",
        "[\"realtime:test\",\"1\",\"realtime:test\",\"phx_leave\",{}] trailing",
        "[\"\\ud800\",\"1\",\"realtime:test\",\"phx_leave\",{}]",
        &deep,
    ] {
        socket.client.send(text).await;
    }
    for bytes in [
        &b""[..],
        b"\x00",
        b"\x03",
        b"\x03\xff\xff\xff\xff\xff\x00",
        b"\x04\x00\x00\x00\x00",
        b"\x03\x00\x00\x01\x00\x00\x00\xff",
        b"\xff\xff",
    ] {
        socket.client.send_binary(bytes.to_vec()).await;
    }
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut socket).await), ["INSERT notes 1"]);
    world.stop().await;
}

#[tokio::test]
async fn payloads_nested_without_end() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let deep = format!("{}{}", "{\"config\":".repeat(50_000), "1");
    let closed = format!("{deep}{}", "}".repeat(50_000));
    let list = format!(
        "{{\"config\":{{\"postgres_changes\":{}{}}}}}",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    for payload in [&deep, &closed, &list] {
        socket
            .client
            .send(format!("[\"d\",\"d\",\"realtime:deep\",\"phx_join\",{payload}]"))
            .await;
    }
    lives(&mut socket).await;
    assert_eq!(world.frames(&mut socket).await.len(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_query_that_says_who_one_is() {
    let world = World::start().await;
    let (anon, service) = (Who::anon().token(), Who::service().token());
    let forged = format!("{}x", &service[..service.len() - 1]);
    for more in [
        "&role=service_role".to_owned(),
        format!("&access_token={service}"),
        format!("&token={service}"),
        format!("&apikey={forged}"),
        format!("&APIKEY={service}"),
        "&project=other&ref=other&sub=x".to_owned(),
        "#&apikey=x".to_owned(),
    ] {
        let url = format!(
            "ws://127.0.0.1:{}/realtime/v1/websocket?vsn=2.0.0&apikey={anon}{more}",
            world.port
        );
        let mut client = Client::connect(&url).await;
        let payload = json!({ "config": { "postgres_changes": [binding("*", "notes")] } });
        client
            .send_json(&json!(["1", "1", "realtime:who", "phx_join", payload]))
            .await;
        let (live, _) = client
            .until("it is live", |frame| {
                frame[4]["message"] == "Subscribed to PostgreSQL"
            })
            .await;
        assert_eq!(live[4]["role"], "anon", "{more}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_token_that_names_another_project() {
    let world = World::start().await;
    let url = |key: &str| {
        format!(
            "ws://127.0.0.1:{}/realtime/v1/websocket?vsn=2.0.0&apikey={key}",
            world.port
        )
    };
    for named in [
        "other",
        "DEV",
        "dev ",
        "../dev",
        "dev/../other",
        "",
        "*",
        "dev\u{0}",
    ] {
        for claim in ["ref", "project"] {
            let who = Who::claims(json!({ "role": "service_role", claim: named }));
            assert_eq!(
                Client::try_connect(&url(&who.token())).await.err(),
                Some(404),
                "{claim} {named:?}"
            );
        }
    }
    // The same where the key is checked already: as a channel's token, at its join and afterwards.
    let mut socket = follow(&world, &Who::anon(), "notes").await;
    let other = Who::claims(json!({ "role": "authenticated", "sub": U1, "ref": "other" })).token();
    let refused = socket
        .join("realtime:second", &[binding("*", "notes")], Some(&other))
        .await
        .unwrap_err();
    assert!(
        refused["reason"]
            .as_str()
            .unwrap()
            .starts_with("InvalidJWTToken: "),
        "{refused}"
    );
    socket
        .send("realtime:test", "access_token", json!({ "access_token": other }))
        .await;
    let (closed, _) = socket
        .client
        .until("the channel's end", |frame| frame[3] == "phx_close")
        .await;
    assert_eq!(closed[2], "realtime:test");
    let own = Who::claims(json!({ "role": "authenticated", "sub": U1, "ref": "dev" })).token();
    socket
        .join("realtime:test", &[binding("*", "notes")], Some(&own))
        .await
        .unwrap();
    socket.subscribed("realtime:test").await;
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut socket).await), ["INSERT notes 1"]);
    world.stop().await;
}

#[tokio::test]
async fn ids_that_a_client_brings_along() {
    let world = World::start().await;
    let mut victim = world.socket(&Who::u1()).await;
    let joined = victim
        .join("realtime:test", &[binding("*", "notes")], None)
        .await
        .unwrap();
    victim.subscribed("realtime:test").await;
    let id = joined["postgres_changes"][0]["id"].clone();
    let mut other = world.socket(&Who::anon()).await;
    let bring = json!({ "event": "INSERT", "schema": "public", "table": "sentinel", "id": id, "ids": [id] });
    let answer = other.join("realtime:test", &[bring], None).await.unwrap();
    assert_ne!(answer["postgres_changes"][0]["id"], id);
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut other).await), Vec::<String>::new());
    assert_eq!(brief(&world.frames(&mut victim).await), ["INSERT notes 1"]);
    world.stop().await;
}

/// Checked by one reading of a field, served by another?
#[tokio::test]
async fn bindings_with_a_field_twice() {
    let world = World::start().await;
    half_open(&world).await;
    let mut one = world.socket(&Who::u1()).await;
    let texts = [
        r#"{"event":"*","schema":"public","table":"docs","filter":"word=eq.a","filter":"secret=eq.HUSH"}"#,
        r#"{"event":"*","schema":"public","table":"docs","filter":"secret=eq.HUSH","filter":"word=eq.zzz"}"#,
        r#"{"event":"*","schema":"public","table":"docs","filter":"secret=eq.HUSH","filter":"zzz=eq.HUSH"}"#,
        r#"{"event":"*","schema":"public","table":"sentinel","filter":"n=eq.-1","table":"docs"}"#,
        r#"{"event":"*","schema":"public","table":"docs","filter":"secret=eq.HUSH","\u0066ilter":"word=eq.zzz"}"#,
    ];
    for (n, text) in texts.iter().enumerate() {
        let frame = format!(
            r#"["t","t{n}","realtime:twice{n}","phx_join",{{"config":{{"postgres_changes":[{}]}}}}]"#,
            text.replace("HUSH", HUSH)
        );
        one.client.send(frame).await;
        one.client
            .until("the reply", |frame| frame[1] == format!("t{n}"))
            .await;
    }
    world
        .run(&format!(
            "insert into docs values (1, 'a', '{HUSH}'), (2, 'zzz', 'x')"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    // Only by the last reading of each: the row whose word is zzz.
    let rows = brief(&frames);
    assert!(rows.iter().all(|row| row == "INSERT docs 2"), "{rows:?}");
    world.stop().await;
}

#[tokio::test]
async fn names_that_look_like_a_tables() {
    let world = World::start().await;
    let mut one = world.socket(&Who::u1()).await;
    let names = [
        "Notes",
        "notes ",
        " notes",
        "notes\u{0}",
        "no\u{200b}tes",
        "public.notes",
        "\"notes\"",
        "notes;--",
        "%",
        "_",
        "n_tes",
        "notes*",
        "no*",
        ">",
        "notes.>",
        "ｎotes",
        "notes\n",
    ];
    for (n, name) in names.iter().enumerate() {
        let topic = format!("realtime:{n}");
        if one.join(&topic, &[binding("*", name)], None).await.is_ok() {
            one.subscribed(&topic).await;
        }
    }
    for (n, schema) in [
        "Public",
        "public ",
        "pub*",
        "\"public\"",
        "%",
        "public.notes",
        "pg_catalog",
        "anvilbase_realtime",
    ]
    .iter()
    .enumerate()
    {
        let topic = format!("realtime:s{n}");
        let named = json!({ "event": "*", "schema": schema, "table": "notes" });
        if one
            .join(&topic, &[named, json!({ "event": "*", "schema": schema })], None)
            .await
            .is_ok()
        {
            one.subscribed(&topic).await;
        }
    }
    insert_own(&world, 1).await;
    assert_eq!(brief(&world.frames(&mut one).await), Vec::<String>::new());
    world.stop().await;
}

/// Even for service_role: they hold the channel's name.
#[tokio::test]
async fn our_own_tables_as_a_feed() {
    let world = World::start().await;
    let ours = |table: &str| json!({ "event": "*", "schema": "anvilbase_realtime", "table": table });
    let bindings = [
        ours("settings"),
        ours("tables"),
        json!({ "event": "*", "schema": "anvilbase_realtime" }),
        json!({ "event": "*", "schema": "*" }),
    ];
    let mut service = world.subscriber(&Who::service(), &bindings).await;
    world
        .run(
            "select anvilbase_realtime.set_table('public', 'notes', realtime_public => true);
             update anvilbase_realtime.settings set epoch = epoch; update anvilbase_realtime.tables set emitting = emitting;
             create table another (id int primary key)",
        )
        .await;
    let emits = "select anvilbase_realtime.set_table('anvilbase_realtime', 'settings', emit_events => true)";
    assert!(world.sql.batch_execute(emits).await.is_err());
    let frames = world.frames(&mut service).await;
    let changes: Vec<_> = frames
        .iter()
        .filter(|frame| frame[3] == "postgres_changes")
        .collect();
    // The sentinel's own insert, which every schema's binding sees too.
    assert!(
        changes
            .iter()
            .all(|frame| frame[4]["data"]["table"] == "sentinel"),
        "{changes:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn addresses_that_an_edge_does_not_serve() {
    let world = World::start().await;
    for path in [
        "/metrics",
        "/metrics/projects",
        "/debug/feeds",
        "/readyz",
        "/livez",
        "//metrics",
        "/./metrics",
        "/realtime/v1/../metrics",
        "/realtime/v1/%2e%2e/metrics",
        "/realtime/v1/metrics",
        "/%6detrics",
        "/realtime/v1/websocket/../../../metrics",
        "http://127.0.0.1/metrics",
        "/admin",
        "/debug/pprof",
        "/.env",
        "/api/v1/projects",
        "/api/v1/projects/dev",
        "/api/v1/projects/../dev/realtime/tables",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(
            matches!(status, "404" | "400" | "401" | "405"),
            "{path}: {answer}"
        );
        assert!(
            !answer.contains("anvilbase_realtime_") && !answer.contains("subscribers"),
            "{path}: {answer}"
        );
    }
    world.stop().await;
}

/// Two sockets, one topic, one channel's worth of bindings each: what a socket asked for is its own.
#[tokio::test]
async fn a_topic_that_several_share() {
    let world = World::start().await;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "notes")]).await;
    let mut two = world
        .subscriber(
            &Who::u2(),
            &[binding("*", "notes"), filtered("*", "notes", "room=eq.1")],
        )
        .await;
    let mut anon = world.subscriber(&Who::anon(), &[binding("*", "notes")]).await;
    world
        .run(&format!(
            "insert into notes (id, owner, room, title) values (1, '{U1}', 1, '{HUSH}')"
        ))
        .await;
    assert_eq!(brief(&world.frames(&mut one).await), ["INSERT notes 1"]);
    for socket in [&mut two, &mut anon] {
        assert_eq!(nothing_hidden(&world, socket).await, Vec::<Value>::new());
    }
    world.stop().await;
}
