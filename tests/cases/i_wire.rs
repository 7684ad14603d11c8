//! The wire as the SDKs rely on it: what they compare strictly, and when they are told what.

use realtime_node::bus::Bus;
use realtime_testkit::wait::within;
use realtime_testkit::ws::Client;
use realtime_tests::world::{Socket, U1, Who, World, binding, filtered};
use serde_json::{Value, json};

async fn insert(world: &World, id: i64) {
    world
        .run(&format!("insert into notes (id, owner) values ({id}, '{U1}')"))
        .await;
}

fn ids(response: &Value) -> Vec<u64> {
    let bindings = response["postgres_changes"].as_array().unwrap();
    bindings
        .iter()
        .map(|binding| binding["id"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn i01_bindings_come_back_as_they_were_asked() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let bindings = [
        r#"{"event":"*","schema":"public"}"#,
        r#"{"event":"INSERT","schema":"public","table":"notes"}"#,
        r#"{"event":"insert","schema":"public","table":"notes"}"#,
        r#"{"event":"*","schema":"public","table":"notes","filter":"title=eq.\u00e9\"q\" ,x"}"#,
        r#"{"event":"*","schema":"public","table":"notes","filter":"title=in.(\"a,b\",日)"}"#,
        r#"{ "schema" : "public" , "table":"notes","event":"UPDATE" , "filter" : " room=eq.1 " }"#,
        r#"{"event":"DELETE","schema":"public","table":"notes","filter":"","extra":{"a":[1.0,null]}}"#,
        r#"{"event":"*","schema":"public","table":"notes","filter":null,"select":null}"#,
        r#"{"table":"notes"}"#,
    ];
    let join = |list: String| {
        format!(r#"["1","1","realtime:test","phx_join",{{"config":{{"postgres_changes":[{list}]}}}}]"#)
    };
    socket.client.send(join(bindings.join(","))).await;
    let (reply, _) = socket
        .client
        .until("the reply", |frame| frame[3] == "phx_reply" && frame[1] == "1")
        .await;
    assert_eq!(reply[4]["status"], "ok", "{reply}");
    let answered = reply[4]["response"]["postgres_changes"].as_array().unwrap();
    assert_eq!(answered.len(), bindings.len());
    for (answer, asked) in answered.iter().zip(bindings) {
        let mut without = answer.clone();
        let id = without.as_object_mut().unwrap().remove("id").unwrap();
        assert_eq!(without, serde_json::from_str::<Value>(asked).unwrap());
        assert!(id.as_u64().is_some_and(|id| id > 0 && id < 1 << 53));
    }
    world.stop().await;
}

#[tokio::test]
async fn i03_an_event_names_the_bindings_that_it_matched_and_no_other() {
    let world = World::start_with(
        |limits| limits.socket_joins_per_second_max = 100_000,
        Bus::local(),
    )
    .await;
    world
        .run(
            "create table a (id int primary key); create table b (id int primary key);
             alter table a enable row level security; alter table b enable row level security;
             create policy p on a for select using (true); create policy p on b for select using (true)",
        )
        .await;
    let mut socket = world.socket(&Who::u1()).await;
    let bindings = [
        binding("*", "a"),
        binding("*", "b"),
        binding("*", "a"),
        binding("INSERT", "b"),
        filtered("*", "a", "id=lt.500"),
    ];
    let numbers = ids(&socket.join("realtime:test", &bindings, None).await.unwrap());
    socket.subscribed("realtime:test").await;
    assert_eq!(
        numbers.iter().collect::<std::collections::BTreeSet<_>>().len(),
        5,
        "equal bindings of one channel differ too"
    );
    // Both tables in one transaction, a thousand times, in portions that no queue on the way is too short for.
    for from in (1..1_000).step_by(100) {
        world
            .run(&format!(
                "do $$ begin for n in {from}..{from} + 99 loop insert into a values (n); insert into b values (n); end loop; end $$"
            ))
            .await;
        let frames = world.frames(&mut socket).await;
        assert_eq!(frames.len(), 200);
        for frame in frames {
            let data = &frame[4]["data"];
            let small = data["new"]["id"].as_u64().unwrap() < 500;
            let expected: &[usize] = match (data["table"].as_str().unwrap(), small) {
                ("a", true) => &[0, 2, 4],
                ("a", false) => &[0, 2],
                _ => &[1, 3],
            };
            let expected: Vec<u64> = expected.iter().map(|at| numbers[*at]).collect();
            assert_eq!(frame[4]["ids"], json!(expected), "{frame}");
        }
    }

    // No number ever stands for two things, however often channels come and go.
    let mut meaning = std::collections::HashMap::new();
    for round in 0..1_000 {
        let (one, two) = (format!("id=eq.{}", round % 37), format!("id=eq.{}", round % 41));
        let bindings = [
            filtered("*", "a", &one),
            filtered("INSERT", "b", &two),
            binding("*", ["a", "b"][round % 2]),
        ];
        let response = socket.join("realtime:again", &bindings, None).await.unwrap();
        for (id, binding) in ids(&response).into_iter().zip(&bindings) {
            let known = meaning.entry(id).or_insert_with(|| binding.clone());
            assert_eq!(known, binding, "round {round}");
        }
        socket
            .push("realtime:again", "phx_leave", json!({}))
            .await
            .unwrap();
    }
    world.stop().await;
}

/// What there is of binary frames, broadcasts, is not served yet; the rest of the case is here.
#[tokio::test]
async fn i06_the_version_that_was_asked_for_is_spoken() {
    let world = World::start().await;
    let token = Who::u1().token();
    let url = |vsn: &str| {
        format!(
            "ws://127.0.0.1:{}/realtime/v1/websocket?apikey={token}{vsn}",
            world.port
        )
    };
    for refused in [
        "&vsn=3",
        "&vsn=3.0.0",
        "&vsn=2.1.0",
        "&vsn=0.9.0",
        "&vsn=x",
        "&vsn=",
    ] {
        assert_eq!(
            Client::try_connect(&url(refused)).await.err(),
            Some(400),
            "{refused}"
        );
    }
    let config = json!({ "config": { "postgres_changes": [binding("*", "notes")] } });
    for (id, vsn) in ["", "&vsn=1.0.0"].iter().enumerate() {
        let mut first = Client::connect(&url(vsn)).await;
        first.send_json(&json!({ "topic": "realtime:one", "event": "phx_join", "payload": config, "ref": "1", "join_ref": "1" })).await;
        let live = |frame: &Value| frame["payload"]["message"] == "Subscribed to PostgreSQL";
        let (frame, mut frames) = first.until("it is live", live).await;
        insert(&world, id as i64).await;
        let (change, more) = first
            .until("the row", |frame| frame["event"] == "postgres_changes")
            .await;
        frames.extend(more);
        frames.extend([frame, change]);
        for frame in frames {
            let keys: Vec<&String> = frame.as_object().unwrap().keys().collect();
            assert_eq!(
                keys,
                ["event", "payload", "ref", "topic"],
                "no key beside these: {frame}"
            );
        }
        // Arrays are no frames here, and binary is none at all.
        first
            .send("[\"1\",\"5\",\"realtime:one\",\"phx_leave\",{}]")
            .await;
        first.send_binary(vec![3, 0, 0, 0, 0, 0, 0]).await;
        first
            .send_json(&json!({ "topic": "phoenix", "event": "heartbeat", "payload": {}, "ref": "6" }))
            .await;
        first
            .until("the heartbeat's reply", |frame| frame["ref"] == "6")
            .await;
    }
    let mut second = Client::connect(&url("&vsn=2.0.0")).await;
    second
        .send_json(&json!(["7", "8", "realtime:two", "phx_join", config]))
        .await;
    let (reply, _) = second.until("the reply", |frame| frame[3] == "phx_reply").await;
    assert_eq!(
        (&reply[0], &reply[1], reply.as_array().unwrap().len()),
        (&json!("7"), &json!("8"), 5)
    );
    let (live, _) = second.until("it is live", |frame| frame[3] == "system").await;
    assert_eq!((&live[0], &live[1]), (&json!("7"), &json!(null)));
    second
        .send_json(&json!({ "topic": "realtime:two", "event": "phx_leave", "payload": {}, "ref": "9" }))
        .await;
    insert(&world, 100).await;
    let (change, _) = second
        .until("the row", |frame| frame[3] == "postgres_changes")
        .await;
    assert_eq!((&change[1], change.as_array().unwrap().len()), (&json!(null), 5));
    world.stop().await;
}

#[tokio::test]
async fn i07_every_frame_is_a_sign_of_life_and_heartbeats_pass_the_backlog() {
    let impatient = |limits: &mut realtime_gateway::limits::Limits| {
        limits.silence_seconds_max = 2;
        limits.ping_seconds = 1;
    };
    let world = World::start_with(impatient, Bus::local()).await;
    let mut socket = world.socket(&Who::service()).await;
    socket
        .join("realtime:test", &[binding("*", "notes")], None)
        .await
        .unwrap();
    socket.subscribed("realtime:test").await;
    // Longer than the silence that ends a socket, with frames of another kind only, and no pong: nothing is read here.
    let started = std::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_secs(5) {
        socket
            .send(
                "realtime:test",
                "broadcast",
                json!({ "type": "broadcast", "event": "x", "payload": {} }),
            )
            .await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    for reference in [json!("17"), json!(null), json!(4)] {
        socket
            .client
            .send_json(&json!([null, reference, "phoenix", "heartbeat", {}]))
            .await;
        let (reply, _) = socket
            .client
            .until("the reply", |frame| {
                frame[3] == "phx_reply" && frame[2] == "phoenix"
            })
            .await;
        assert_eq!(
            (&reply[1], &reply[4]),
            (&reference, &json!({ "status": "ok", "response": {} }))
        );
    }
    world.stop().await;

    let roomy = |limits: &mut realtime_gateway::limits::Limits| {
        limits.outbox_frames_max = 20_000;
        limits.outbox_bytes_max = 64 << 20;
    };
    let world = World::start_with(roomy, Bus::local()).await;
    let mut socket = world.subscriber(&Who::service(), &[binding("*", "notes")]).await;
    // A backlog that is not read, in portions that another socket has read: the answer is there before its end.
    let mut other = world.subscriber(&Who::service(), &[binding("*", "notes")]).await;
    for from in (0..10_000).step_by(500) {
        let to = from + 500;
        world
            .run(&format!(
                "insert into notes (id, title) select n, repeat('x', 2000) from generate_series({from} + 1, {to}) n"
            ))
            .await;
        let last = |frame: &Value| frame[4]["data"]["new"]["id"] == to;
        other.client.until("the portion's end", last).await;
    }
    world.run("insert into sentinel values (-1)").await;
    socket
        .client
        .send_json(&json!([null, "hb", "phoenix", "heartbeat", {}]))
        .await;
    let (_, before) = within(
        "the heartbeat's reply",
        socket.client.until("the reply", |frame| frame[1] == "hb"),
    )
    .await;
    let rest = socket
        .client
        .until("the backlog's end", |frame| frame[4]["data"]["new"]["n"] == -1)
        .await
        .1;
    assert_eq!(before.len() + rest.len(), 10_000);
    assert!(!rest.is_empty(), "the reply stood behind the backlog");
    world.stop().await;
}

#[tokio::test]
async fn i08_topics_are_any_text_and_each_sockets_own() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::u1()).await;
    let topics = [
        "realtime:x",
        "realtime:public:notes",
        "realtime:a b/ü:*>",
        "realtime:realtime:x",
        "realtime:public:notes:room=eq.9",
        "realtime:\"",
        "realtime: ",
    ];
    for topic in topics {
        socket
            .join(topic, &[binding("INSERT", "notes")], None)
            .await
            .unwrap();
        socket.subscribed(topic).await;
    }
    insert(&world, 1).await;
    let frames = world.frames(&mut socket).await;
    let got: Vec<&str> = frames.iter().map(|frame| frame[2].as_str().unwrap()).collect();
    assert_eq!(got, topics);
    for topic in ["realtime:", "realtime", "", "x", "Realtime:x", "phoenix"] {
        let refused = socket
            .join(topic, &[binding("*", "notes")], None)
            .await
            .unwrap_err();
        assert!(refused["reason"].is_string(), "{topic}: {refused}");
    }
    // Ten sockets, one topic: one leaves, nine go on.
    let mut ten: Vec<Socket> = Vec::new();
    for _ in 0..10 {
        ten.push(world.subscriber(&Who::u1(), &[binding("INSERT", "notes")]).await);
    }
    ten[4]
        .push("realtime:test", "phx_leave", json!({}))
        .await
        .unwrap();
    insert(&world, 2).await;
    for (at, socket) in ten.iter_mut().enumerate() {
        assert_eq!(
            world.changes(socket).await.len(),
            usize::from(at != 4),
            "socket {at}"
        );
    }
    world.stop().await;
}

/// Every refusal that a client can bring about: an object with a text, which begins with a code of the list.
#[tokio::test]
async fn i10_every_refusal_is_a_code_and_a_sentence() {
    let world = World::start_with(
        |limits| {
            limits.socket_channels_max = 2;
            limits.channel_bindings_max = 3;
            limits.socket_joins_per_second_max = 1_000;
            limits.topic_bytes_max = 64;
        },
        Bus::local(),
    )
    .await;
    let mut socket = world.socket(&Who::u1()).await;
    let good = [binding("*", "notes")];
    let token = |claims: Value| Who::claims(claims).token();
    let of_filter = |filter: &str| vec![filtered("*", "notes", filter)];
    let long = "realtime:x".repeat(9);
    let refused: Vec<(&str, Vec<Value>, Option<String>)> = vec![
        ("realtime:", good.to_vec(), None),
        (&long, good.to_vec(), None),
        ("realtime:t", good.to_vec(), Some("junk".into())),
        ("realtime:t", good.to_vec(), Some(token(json!({ "sub": U1 })))),
        (
            "realtime:t",
            good.to_vec(),
            Some(token(json!({ "role": "nobody" }))),
        ),
        (
            "realtime:t",
            good.to_vec(),
            Some(token(json!({ "role": "anon", "exp": 1 }))),
        ),
        (
            "realtime:t",
            good.to_vec(),
            Some(format!("{}x", token(json!({ "role": "anon" })))),
        ),
        ("realtime:t", vec![json!(7)], None),
        (
            "realtime:t",
            vec![json!({ "event": "NOPE", "schema": "public" })],
            None,
        ),
        ("realtime:t", vec![json!({ "event": "*" })], None),
        (
            "realtime:t",
            vec![json!({ "event": "*", "schema": ["public"] })],
            None,
        ),
        (
            "realtime:t",
            vec![json!({ "event": "*", "schema": "public", "filter": "id=eq.1" })],
            None,
        ),
        ("realtime:t", vec![binding("*", "notes"); 4], None),
        ("realtime:t", of_filter("nope=eq.1"), None),
        ("realtime:t", of_filter("room=foo.1"), None),
        ("realtime:t", of_filter("room=eq.abc"), None),
        ("realtime:t", of_filter("room=in.()"), None),
        ("realtime:t", of_filter("room"), None),
        ("realtime:t", of_filter("room=eq.1,,room=eq.2"), None),
        ("realtime:t", of_filter("meta=gt.1"), None),
    ];
    for (topic, bindings, token) in &refused {
        let response = socket
            .join(topic, bindings, token.as_deref())
            .await
            .expect_err(topic);
        assert_code(&response);
    }
    socket.join("realtime:one", &good, None).await.unwrap();
    assert_code(&socket.join("realtime:two", &good, None).await.unwrap_err());
    // The one refusal without a code is the protocol's own.
    let unmatched = socket
        .push("realtime:nobody", "access_token", json!({}))
        .await
        .unwrap_err();
    assert_eq!(unmatched, json!({ "reason": "unmatched topic" }));
    world.stop().await;
}

fn assert_code(response: &Value) {
    assert_eq!(
        response.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["reason"],
        "{response}"
    );
    let reason = response["reason"].as_str().unwrap();
    let (code, sentence) = reason
        .split_once(": ")
        .unwrap_or_else(|| panic!("no code: {reason}"));
    assert!(
        code.chars().all(|c| c.is_ascii_alphanumeric()) && !sentence.is_empty(),
        "{reason}"
    );
    // Elixir's and Rust's ways to print what is no sentence.
    assert!(!reason.contains("{:") && !reason.contains("Error("), "{reason}");
}
