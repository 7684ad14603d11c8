//! The management API, by those who may not use it, and for what it may not do.

use realtime_tests::world::{Socket, U1, Who, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{HUSH, brief, follow, nothing_hidden};

const TABLES: &str = "/api/v1/projects/dev/realtime/tables";

/// Calls the API, and gives the status and the body's text.
async fn call(world: &World, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{head}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status, body.unwrap_or_default())
}

/// Calls as fast as they can be made: what is refused here is refused for what it says.
async fn start() -> World {
    let limits = |limits: &mut realtime_gateway::limits::Limits| {
        limits.management_calls_per_second_max = 10_000;
    };
    World::start_with(limits, realtime_node::bus::Bus::local()).await
}

fn bearer(who: &Who) -> String {
    format!("authorization: Bearer {}\r\n", who.token())
}

/// The settings of `notes` as they are.
async fn settings(world: &World) -> Vec<String> {
    world
        .column("select s::text from anvilbase_realtime.table_settings s where s.table_name = 'notes'")
        .await
}

/// That the socket of U1 still gets what U1 may see.
async fn goes_on(world: &World, one: &mut Socket) {
    world
        .run(&format!(
            "delete from notes; insert into notes (id, owner) values (1, '{U1}')"
        ))
        .await;
    let rows = brief(&world.frames(one).await);
    assert_eq!(
        rows.last().map(String::as_str),
        Some("INSERT notes 1"),
        "{rows:?}"
    );
}

#[tokio::test]
async fn callers_that_are_not_the_projects_server() {
    let world = start().await;
    let before = settings(&world).await;
    let public = json!({ "realtime_public": true }).to_string();
    let service = Who::service().token();
    let other = Who::claims(json!({ "role": "service_role", "ref": "other" }));
    let expired = Who::claims(json!({ "role": "service_role", "exp": 1 }));
    let forged = format!("authorization: Bearer {}x\r\n", &service[..service.len() - 1]);
    for head in [
        String::new(),
        bearer(&Who::anon()),
        bearer(&Who::u1()),
        bearer(&other),
        bearer(&expired),
        forged,
        format!("authorization: Basic {service}\r\n"),
        format!("authorization: {service}\r\n"),
        "authorization: Bearer\r\n".to_owned(),
        format!("x-api-key: {service}\r\n"),
        format!("apikey: {service}\r\n"),
        format!("cookie: access_token={service}\r\n"),
        format!("{}{}", bearer(&Who::anon()), bearer(&Who::service())),
    ] {
        for (method, path, body) in [
            ("GET", TABLES.to_owned(), ""),
            ("PUT", format!("{TABLES}/notes"), &*public),
            ("GET", format!("{TABLES}?apikey={service}"), ""),
            ("PUT", format!("{TABLES}/notes?access_token={service}"), &*public),
            (
                "POST",
                "/api/v1/projects/dev/realtime/disconnect".to_owned(),
                &*public,
            ),
        ] {
            let (status, answer) = call(&world, method, &path, &head, body).await;
            assert!(
                matches!(status, 400 | 401 | 403),
                "{head} {method} {path}: {status} {answer}"
            );
            assert!(
                !answer.contains("notes") && !answer.contains(&service),
                "{answer}"
            );
        }
    }
    assert_eq!(settings(&world).await, before);
    world.stop().await;
}

#[tokio::test]
async fn projects_that_are_not_ones_own() {
    let world = start().await;
    let head = bearer(&Who::service());
    let mut answers = Vec::new();
    for project in [
        "other",
        "DEV",
        "dev%00",
        "dev%2f..%2fother",
        "_cluster",
        "*",
        "dev.",
        "%64ev%20",
        "-",
        "dev;x=1",
    ] {
        let path = format!("/api/v1/projects/{project}/realtime/tables");
        let (status, body) = call(&world, "GET", &path, &head, "").await;
        assert!(
            matches!(status, 400 | 401 | 403 | 404),
            "{project}: {status} {body}"
        );
        assert!(!body.contains("notes"), "{project}: {body}");
        answers.push(status);
    }
    // Whether there is such a project is told to nobody who has not shown a token of it.
    let (absent, _) = call(
        &world,
        "GET",
        "/api/v1/projects/other/realtime/tables",
        &bearer(&Who::anon()),
        "",
    )
    .await;
    assert_eq!(answers[0], absent);
    world.stop().await;
}

#[tokio::test]
async fn tables_that_are_not_the_feeds_to_set() {
    let world = start().await;
    world
        .run(
            "create view seen as select 1 as id; create temp table mine (id int); \
              create schema vault; create table vault.users (id int primary key, secret text)",
        )
        .await;
    let head = bearer(&Who::service());
    let body = json!({ "realtime_public": true }).to_string();
    for table in [
        "settings?schema=anvilbase_realtime",
        "tables?schema=anvilbase_realtime",
        "pg_authid?schema=pg_catalog",
        "sql_features?schema=information_schema",
        "seen",
        "mine",
        // service_role may not read it.
        "users?schema=vault",
        "notes?schema=nosuch",
        "Notes",
        "notes%00",
        "notes%20",
        "public.notes",
        "%22notes%22",
        "x'%3B%20drop%20table%20notes%3B%20--",
        "%24%24",
        "..%2fnotes",
        "notes%2f..%2f..",
        "%ff",
        "notes?schema=public%27%3B--",
    ] {
        let (status, answer) = call(&world, "PUT", &format!("{TABLES}/{table}"), &head, &body).await;
        assert!(matches!(status, 400 | 404 | 422), "{table}: {status} {answer}");
        assert!(
            !answer.to_lowercase().contains("syntax") && !answer.contains("anvilbase_rt_"),
            "{table}: {answer}"
        );
    }
    assert_eq!(world.column("select count(*)::text from notes").await, ["0"]);
    let public = "select count(*)::text from anvilbase_realtime.tables where realtime_public";
    assert_eq!(world.column(public).await, ["0"]);
    world.stop().await;
}

#[tokio::test]
async fn bodies_that_say_more_or_say_it_twice() {
    let world = start().await;
    let before = settings(&world).await;
    let head = bearer(&Who::service());
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let large = format!("{{\"realtime_public\":true,\"x\":\"{}\"}}", "x".repeat(2_000_000));
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "true",
        "{\"realtime_public\":1}",
        "{\"realtime_public\":\"true\"}",
        "{\"realtime_public\":[true]}",
        "{\"realtime_public\":true,\"realtime_public\":true}",
        "{\"realtime_public\":true,\"realtime_publi\\u0063\":false}",
        "{\"realtime_public\":true,\"relid\":1}",
        "{\"realtime_public\":true,\"schema\":\"anvilbase_realtime\"}",
        "{\"Realtime_Public\":true}",
        "{\"realtime_public\":true} {\"cdc_enabled\":false}",
        "{\"realtime_public\":true",
        "{'realtime_public':true}",
        "{\"emit_events\":true,\"database_oid\":1}",
        "{\"realtime_public\":true,\"table_name\":\"x\"}",
        "\u{feff}{\"realtime_public\":true}",
        &deep,
        &large,
    ] {
        let (status, answer) = call(&world, "PUT", &format!("{TABLES}/notes"), &head, body).await;
        assert!(
            matches!(status, 400 | 413 | 422),
            "{}: {status} {answer}",
            &body[..body.len().min(80)]
        );
    }
    for (method, more) in [
        ("POST", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "x-http-method-override: PUT\r\n"),
        ("POST", "x-http-method: PUT\r\n"),
        ("TRACE", ""),
    ] {
        let (status, answer) = call(
            &world,
            method,
            &format!("{TABLES}/notes"),
            &format!("{head}{more}"),
            "{\"realtime_public\":true}",
        )
        .await;
        assert!(matches!(status, 404 | 405), "{method}: {status} {answer}");
    }
    assert_eq!(settings(&world).await, before);
    world.stop().await;
}

#[tokio::test]
async fn disconnects_that_are_nobodys_to_ask_for() {
    let world = start().await;
    let mut one = follow(&world, &Who::u1(), "notes").await;
    let path = "/api/v1/projects/dev/realtime/disconnect";
    let body = json!({ "sub": U1 }).to_string();
    for who in [Who::anon(), Who::u1(), Who::u2()] {
        let (status, _) = call(&world, "POST", path, &bearer(&who), &body).await;
        assert!(matches!(status, 401 | 403), "{status}");
    }
    // What the project's own server may ask, and means somebody else or nobody.
    let upper = U1.replace('a', "A");
    for sub in [
        "*",
        "%",
        "",
        ">",
        "_",
        "00000000-0000-4000-8000-00000000000_",
        &format!("{U1} "),
        &format!("{U1}\u{0}"),
        &upper.replace("0001", "000A"),
        "null",
    ] {
        let (status, answer) = call(
            &world,
            "POST",
            path,
            &bearer(&Who::service()),
            &json!({ "sub": sub }).to_string(),
        )
        .await;
        assert!(status < 500, "{sub:?}: {answer}");
        let (status, answer) = call(
            &world,
            "POST",
            path,
            &bearer(&Who::service()),
            &json!({ "session_id": sub }).to_string(),
        )
        .await;
        assert!(status < 500, "{sub:?}: {answer}");
    }
    for body in [
        json!({ "sub": null }),
        json!({ "sub": [U1] }),
        json!({ "sub": { "like": "%" } }),
        json!({}),
        json!({ "sub": U1, "role": "x" }),
        Value::Null,
    ] {
        let (status, answer) = call(&world, "POST", path, &bearer(&Who::service()), &body.to_string()).await;
        assert!(matches!(status, 400 | 422), "{body}: {status} {answer}");
    }
    goes_on(&world, &mut one).await;
    world.stop().await;
}

/// What a table is set to counts for the rows of its own transaction, and for open channels at once.
#[tokio::test]
async fn a_table_that_is_made_public_by_the_api_and_back() {
    let world = start().await;
    world
        .run("create table docs (id int primary key, word text)")
        .await;
    let mut anon = follow(&world, &Who::anon(), "docs").await;
    let head = bearer(&Who::service());
    for (public, id) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
        let body = json!({ "realtime_public": public }).to_string();
        let (status, answer) = call(&world, "PUT", &format!("{TABLES}/docs"), &head, &body).await;
        assert_eq!(status, 200, "{answer}");
        let word = if public { "open" } else { HUSH };
        world
            .run(&format!("insert into docs values ({id}, '{word}')"))
            .await;
        let rows = brief(&nothing_hidden(&world, &mut anon).await);
        let expected: Vec<String> = public.then(|| format!("INSERT docs {id}")).into_iter().collect();
        assert_eq!(rows, expected);
    }
    world.stop().await;
}
