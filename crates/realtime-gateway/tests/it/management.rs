//! The management API: who may call it, what it takes, and how it refuses.

use std::time::Duration;

use realtime_testkit::tokens;
use realtime_testkit::wait::within;
use realtime_testkit::ws::{Client, Frame};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{OPERATOR_TOKEN, SECRET, World, is_row, notes, token};

const TABLES: &str = "/api/v1/projects/p/realtime/tables";

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

async fn send(world: &World, head: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let request = format!("{head}\r\nhost: gateway\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    within("the answer", stream.read_to_end(&mut answer))
        .await
        .unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}")),
        head: head.to_lowercase(),
    }
}

async fn call(world: &World, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
    let bearer = token.map_or_else(String::new, |token| format!("\r\nauthorization: Bearer {token}"));
    let head = format!(
        "{method} {path} HTTP/1.1{bearer}\r\ncontent-length: {}",
        body.len()
    );
    send(world, &head, body.as_bytes()).await
}

fn code(answer: &Answer) -> &str {
    answer.body["error"]["code"].as_str().unwrap()
}

/// A world in which nobody calls too often.
async fn world() -> World {
    World::with_limits(|limits| limits.management_calls_per_second_max = 1_000).await
}

#[tokio::test]
async fn tables_are_listed_and_set() {
    let world = world().await;
    let service = token("service_role", "-");
    let listed = call(&world, "GET", TABLES, Some(&service), "").await;
    assert_eq!(listed.status, 200);
    let notes = json!({
        "schema": "public", "table": "notes", "cdc_enabled": true, "rls_enabled": true, "realtime_public": false,
        "delete_events": true, "emit_events": false, "replica_events": false, "emitting": true, "notes": []
    });
    assert_eq!(listed.body, json!({ "tables": [notes] }));
    assert!(listed.head.contains("cache-control: no-store"), "{}", listed.head);

    let many = format!("{TABLES}?schema=many&limit=1&after=a%20b");
    let listed = call(&world, "GET", &many, Some(&service), "").await;
    assert_eq!(listed.body["next"], "notes");
    let asked = world.authz.listings.lock().pop().unwrap();
    assert_eq!(
        (&*asked.project, &*asked.schema, &*asked.after, asked.limit),
        ("p", "many", "a b", 1)
    );

    let path = format!("{TABLES}/Or%2Fders%20%C3%A9?schema=other");
    let body = r#"{"cdc_enabled":false,"realtime_public":true}"#;
    let set = call(&world, "PUT", &path, Some(&service), body).await;
    assert_eq!((set.status, &set.body["cdc_enabled"]), (200, &json!(false)));
    let asked = world.authz.settings.lock().pop().unwrap();
    assert_eq!(
        (&*asked.project, &*asked.schema, &*asked.table),
        ("p", "other", "Or/ders é")
    );
    assert_eq!(
        (asked.cdc_enabled, asked.realtime_public),
        (Some(false), Some(true))
    );
    assert_eq!((asked.delete_events, asked.emit_events), (None, None));
    assert_eq!(
        world.metric(r#"anvilbase_realtime_gateway_management_calls_total{reason="ok"}"#),
        Some(3.0)
    );
}

#[tokio::test]
async fn strangers_learn_nothing_and_others_are_told() {
    let world = world().await;
    let service = |claims: Value| tokens::mint(SECRET, &claims);
    let later = tokens::now() + 3_600;
    let strangers = [
        None,
        Some(String::new()),
        Some("x".to_owned()),
        Some("x".repeat(100_000)),
        Some(tokens::mint(
            "another secret of thirty-two bytes",
            &tokens::claims("service_role"),
        )),
        Some(service(json!({ "role": "service_role", "exp": 1 }))),
        Some(service(json!({ "role": "service_role" }))),
        Some(service(json!({ "exp": later }))),
        Some(service(
            json!({ "role": "service_role", "exp": later, "ref": "q" }),
        )),
        Some(service(
            json!({ "role": "service_role", "exp": later, "ref": "p", "project": "q" }),
        )),
        Some(OPERATOR_TOKEN[1..].to_owned()),
        Some(format!("{OPERATOR_TOKEN}x")),
    ];
    let paths = [
        TABLES.to_owned(),
        TABLES.replace("/p/", "/unknown/"),
        TABLES.replace("/p/", "/%FF/"),
        TABLES.replace("/p/", "/_cluster/"),
        format!("{TABLES}?schema=a&schema=b"),
    ];
    for stranger in &strangers {
        let mut answers = Vec::new();
        for path in &paths {
            answers.push(call(&world, "GET", path, stranger.as_deref(), "").await);
            let (base, _) = path.split_once('?').unwrap_or((path, ""));
            for (table, body) in [
                ("notes", r#"{"cdc_enabled":false}"#),
                ("missing", "{"),
                ("%FF", ""),
            ] {
                answers.push(
                    call(
                        &world,
                        "PUT",
                        &format!("{base}/{table}"),
                        stranger.as_deref(),
                        body,
                    )
                    .await,
                );
            }
        }
        for answer in &answers {
            let shown = stranger.as_deref().map(|token| &token[..token.len().min(40)]);
            if stranger.as_ref().is_some_and(|token| token.len() > 50_000) {
                // Longer than what a request's head may be; before any of it is looked at.
                assert!([401, 431].contains(&answer.status), "{shown:?}: {answer:?}");
                continue;
            }
            assert_eq!(answer.status, 401, "{shown:?}: {answer:?}");
            assert!(answer.head.contains("www-authenticate: bearer"));
            // Word for word the same, so that nothing of the project shows.
            assert_eq!(answer.body, answers[0].body);
        }
    }
    for role in ["anon", "authenticated", "postgres"] {
        let refused = call(&world, "GET", TABLES, Some(&token(role, "-")), "").await;
        assert_eq!((refused.status, code(&refused)), (403, "forbidden"), "{role}");
    }
    // Two headers are none.
    let two = format!(
        "GET {TABLES} HTTP/1.1\r\nauthorization: Bearer {OPERATOR_TOKEN}\r\nauthorization: Bearer {OPERATOR_TOKEN}"
    );
    assert_eq!(send(&world, &two, b"").await.status, 401);
    assert!(world.authz.settings.lock().is_empty() && world.authz.listings.lock().is_empty());
}

#[tokio::test]
async fn the_operator_may_manage_every_project_that_there_is() {
    let world = world().await;
    assert_eq!(
        call(&world, "GET", TABLES, Some(OPERATOR_TOKEN), "").await.status,
        200
    );
    for project in ["unknown", "%FF", "A"] {
        let path = TABLES.replace("/p/", &format!("/{project}/"));
        let refused = call(&world, "GET", &path, Some(OPERATOR_TOKEN), "").await;
        assert_eq!((refused.status, code(&refused)), (404, "not_found"), "{project}");
    }
}

#[tokio::test]
async fn what_breaks_a_rule_is_refused_with_the_rule() {
    let world = World::with_limits(|limits| {
        limits.management_calls_per_second_max = 1_000;
        limits.management_body_bytes_max = 256;
    })
    .await;
    let service = token("service_role", "-");
    let put = async |table: &str, body: &str| {
        call(&world, "PUT", &format!("{TABLES}/{table}"), Some(&service), body).await
    };
    for (body, rule) in [
        ("", "body: is empty"),
        ("{}", "body: must have one of"),
        ("[]", "body: must be a JSON object"),
        (
            r#"{"cdc_enabled":"hunter2"}"#,
            "cdc_enabled: must be true or false",
        ),
        (r#"{"hunter2":true}"#, "body: has an unknown field"),
    ] {
        let refused = put("notes", body).await;
        assert_eq!(
            (refused.status, code(&refused)),
            (400, "invalid_request"),
            "{body}"
        );
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(rule) && !message.contains("hunter2"),
            "{message}"
        );
    }
    let at_limit = format!(r#"{{"cdc_enabled":true{}}}"#, " ".repeat(256 - 20));
    assert_eq!(at_limit.len(), 256);
    assert_eq!(put("notes", &at_limit).await.status, 200);
    let refused = put("notes", &format!("{at_limit} ")).await;
    assert_eq!((refused.status, code(&refused)), (413, "body_too_large"));

    for query in [
        "schema=",
        "limit=0",
        "limit=10001",
        "limit=x",
        "after=",
        "hunter2=1",
        "schema=a&schema=b",
        "%FF=1",
    ] {
        let refused = call(&world, "GET", &format!("{TABLES}?{query}"), Some(&service), "").await;
        assert_eq!(
            (refused.status, code(&refused)),
            (400, "invalid_request"),
            "{query}"
        );
        assert!(!refused.body.to_string().contains("hunter2"));
    }
    let refused = call(&world, "DELETE", TABLES, Some(&service), "").await;
    assert_eq!((refused.status, code(&refused)), (405, "method_not_allowed"));
    assert!(refused.head.contains("allow: get"), "{}", refused.head);
    let refused = call(&world, "GET", "/api/v1/projects/p", Some(&service), "").await;
    assert_eq!((refused.status, code(&refused)), (404, "not_found"));
}

#[tokio::test]
async fn what_authz_says_is_told_without_its_words() {
    let world = World::with_limits(|limits| {
        limits.management_calls_per_second_max = 1_000;
        limits.management_deadline_ms = 500;
    })
    .await;
    let service = token("service_role", "-");
    for (table, status, expected) in [
        ("missing", 404, "table_not_found"),
        ("%FF", 404, "table_not_found"),
        ("busy", 409, "table_busy"),
        ("foreign", 409, "table_not_owned"),
        ("bare", 503, "not_provisioned"),
        ("broken", 503, "unavailable"),
        ("hang", 504, "deadline_exceeded"),
    ] {
        let path = format!("{TABLES}/{table}");
        let refused = call(&world, "PUT", &path, Some(&service), r#"{"cdc_enabled":true}"#).await;
        assert_eq!((refused.status, code(&refused)), (status, expected), "{table}");
        assert!(!refused.body.to_string().contains("hunter2"));
        assert_eq!(
            refused.head.contains("retry-after: 1"),
            !["table_not_found", "table_not_owned", "not_provisioned"].contains(&expected),
            "{table}"
        );
    }
}

#[tokio::test]
async fn a_project_that_calls_too_often_waits_and_no_other() {
    let world = World::with_limits(|limits| limits.management_calls_per_second_max = 2).await;
    let mut another = crate::harness::project();
    another.id = realtime_core::id::ProjectId::parse("q").unwrap();
    world.catalog.replace(vec![crate::harness::project(), another]);
    let service = token("service_role", "-");
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(call(&world, "GET", TABLES, Some(&service), "").await.status);
    }
    assert_eq!(statuses[..2], [200, 200]);
    assert!(statuses[2..].contains(&429), "{statuses:?}");
    let other = TABLES.replace("/p/", "/q/");
    assert_eq!(call(&world, "GET", &other, Some(&service), "").await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_ends_its_connection() {
    let world = world().await;
    let head = format!(
        "PUT {TABLES}/notes HTTP/1.1\r\nauthorization: Bearer {OPERATOR_TOKEN}\r\ncontent-length: 20"
    );
    let started = tokio::time::Instant::now();
    let refused = send(&world, &head, b"{").await;
    assert_eq!((refused.status, code(&refused)), (408, "request_timeout"));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn the_document_is_everybodys() {
    let world = world().await;
    let document = call(
        &world,
        "GET",
        realtime_gateway::management::DOCUMENT_PATH,
        None,
        "",
    )
    .await;
    assert_eq!(document.status, 200);
    assert_eq!(document.body["openapi"], "3.1.0");
}

#[tokio::test]
async fn a_user_is_disconnected_by_the_project_and_by_the_operator_only() {
    const PATH: &str = "/api/v1/projects/p/realtime/disconnect";
    let world = world().await;
    let service = token("service_role", "-");
    for (bearer, body) in [
        (&*service, r#"{"sub":"u1"}"#),
        (OPERATOR_TOKEN, r#"{"sub":"u1"}"#),
    ] {
        let mut meant = Client::connect(&world.url_as("2.0.0", &token("authenticated", "u1"))).await;
        let (mut other, _) = world.joined(&token("authenticated", "u2"), notes()).await;
        for (bad, status) in [
            (None, 401),
            (Some(token("authenticated", "u2")), 403),
            (
                Some(tokens::mint(
                    "another secret of thirty-two bytes",
                    &tokens::claims("service_role"),
                )),
                401,
            ),
        ] {
            let refused = call(&world, "POST", PATH, bad.as_deref(), body).await;
            assert_eq!(refused.status, status);
        }
        let told = call(&world, "POST", PATH, Some(bearer), body).await;
        assert_eq!((told.status, told.body), (200, json!({ "told": true })));
        assert_eq!(
            meant.next().await,
            Frame::Closed(Some((4403, "disconnected by an operator".to_owned())))
        );
        world.insert(json!({ "id": 1 })).await;
        let (_, before) = other.until("a row", |frame| is_row(frame, 1)).await;
        assert!(before.is_empty(), "{before:?}");
    }
    let refused = call(&world, "POST", PATH, Some(&service), r#"{"sub":""}"#).await;
    assert_eq!((refused.status, code(&refused)), (400, "invalid_request"));
    let elsewhere = PATH.replace("/p/", "/q/");
    assert_eq!(
        call(&world, "POST", &elsewhere, Some(&service), "{}")
            .await
            .status,
        401
    );
    assert_eq!(
        call(&world, "POST", &elsewhere, Some(OPERATOR_TOKEN), "{}")
            .await
            .status,
        404
    );
}
