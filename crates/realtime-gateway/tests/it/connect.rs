//! Who is let in, and how a refusal reads.

use realtime_testkit::tokens;
use realtime_testkit::ws::{Client, Frame};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{SECRET, World, token};

/// The status and body of an upgrade request.
async fn request(world: &World, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let status = head[9..12].parse().unwrap();
            let length = head
                .to_lowercase()
                .lines()
                .find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
            if status == 101 || body.len() >= length.unwrap_or(0) {
                return (
                    status,
                    if status == 101 {
                        head.to_owned()
                    } else {
                        body.to_owned()
                    },
                );
            }
        }
        assert!(read > 0, "closed early: {text}");
    }
}

async fn refusal(world: &World, query: &str) -> (u16, String, Value) {
    let (status, body) = request(world, &format!("/realtime/v1/websocket?{query}"), "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    (
        status,
        body["error"].as_str().unwrap().to_owned(),
        body["code"].clone(),
    )
}

#[tokio::test]
async fn b10_refusals_say_why_before_the_upgrade() {
    let world = World::start().await;
    let good = token("anon", "-");
    let expired = tokens::mint(SECRET, &json!({ "role": "anon", "exp": tokens::now() - 9 }));
    let foreign = tokens::mint("another secret of thirty-two bytes", &tokens::claims("anon"));
    let nobody = token("nobody", "-");
    let named = tokens::mint(
        SECRET,
        &json!({ "role": "anon", "exp": tokens::now() + 9, "ref": "other" }),
    );
    for (query, status, code, text) in [
        (
            "vsn=1.0.0".to_owned(),
            401,
            json!("InvalidApiKey"),
            "API key is missing",
        ),
        (
            "apikey=&vsn=1.0.0".to_owned(),
            401,
            json!("InvalidApiKey"),
            "API key is missing",
        ),
        (
            "apikey=junk".to_owned(),
            401,
            json!("MalformedJWT"),
            "The token provided is not a valid JWT",
        ),
        (
            "apikey=sb_publishable_junk".to_owned(),
            401,
            json!("InvalidApiKey"),
            "The API key is not known",
        ),
        (
            format!("apikey={expired}"),
            401,
            json!("InvalidJWTToken"),
            "Token has expired 9 seconds ago",
        ),
        (
            format!("apikey={foreign}"),
            401,
            json!("JwtSignatureError"),
            "Failed to validate JWT signature",
        ),
        (
            format!("apikey={nobody}"),
            403,
            json!("Unauthorized"),
            "The token's role is not allowed in this project",
        ),
        (
            format!("apikey={named}"),
            404,
            json!("TenantNotFound"),
            "Tenant not found",
        ),
        (
            format!("apikey={good}&vsn=3.0.0"),
            400,
            Value::Null,
            "vsn: must be 1.0.x or 2.0.x",
        ),
    ] {
        let (got, said, named) = refusal(&world, &query).await;
        assert_eq!((got, named), (status, code), "{query}");
        // The seconds may have moved on.
        assert_eq!(said.replace("10 seconds", "9 seconds"), text);
    }
    assert_eq!(world.metric("anvilbase_realtime_gateway_sessions"), Some(0.0));
}

#[tokio::test]
async fn both_paths_serve_and_compression_is_declined() {
    let world = World::start().await;
    let key = token("anon", "-");
    for path in ["/realtime/v1/websocket", "/socket/websocket"] {
        let (status, head) = request(&world, &format!("{path}?apikey={key}&log_level=warn&x=%20"), "").await;
        assert_eq!(status, 101);
        assert!(!head.to_lowercase().contains("permessage-deflate"), "{head}");
    }
    let (status, body) = request(&world, "/metrics", "").await;
    assert_eq!((status, body.as_str()), (404, r#"{"error":"Not found"}"#));
}

#[tokio::test]
async fn the_header_wins_over_the_query() {
    let world = World::start().await;
    let header = format!("x-api-key: {}\r\n", token("anon", "-"));
    assert_eq!(
        request(&world, "/socket/websocket?apikey=junk", &header).await.0,
        101
    );
    let query = format!("/socket/websocket?apikey={}", token("anon", "-"));
    assert_eq!(request(&world, &query, "x-api-key: junk\r\n").await.0, 401);
}

#[tokio::test]
async fn sockets_are_limited() {
    let world = World::with_limits(|limits| limits.sockets_max = 1).await;
    let first = world.client().await;
    let refused = async || Client::try_connect(&world.url("2.0.0")).await.err();
    realtime_testkit::wait::until("the second is refused", async || {
        (refused().await == Some(429)).then_some(())
    })
    .await;
    first.close().await;
    realtime_testkit::wait::until("there is room again", async || {
        refused().await.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_message_beyond_the_limit_ends_the_socket() {
    let world = World::with_limits(|limits| limits.inbound_bytes_max = 2_048).await;
    let heartbeat = |bytes: usize| {
        let frame = |padding: usize| {
            format!(
                "[null,\"1\",\"phoenix\",\"heartbeat\",\"{}\"]",
                "x".repeat(padding)
            )
        };
        frame(bytes - frame(0).len())
    };
    for (bytes, closed) in [(2_048, false), (2_049, true), (4_097, true), (100_000, true)] {
        let mut client = world.client().await;
        client.send(heartbeat(bytes)).await;
        match client.next().await {
            Frame::Text(text) => assert!(!closed && text.contains("phx_reply"), "{bytes}: {text}"),
            Frame::Closed(close) if bytes == 2_049 => {
                let said = "a message is larger than the server takes".to_owned();
                assert_eq!(close, Some((1009, said)));
            }
            other => assert!(closed && matches!(other, Frame::Closed(_)), "{bytes}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn b10_a_browser_is_refused_by_a_close_where_that_is_asked_for() {
    let world = World::with_limits(|limits| {
        limits.refuse_by_close = true;
        limits.sockets_max = 1;
    })
    .await;
    let nobody = token("nobody", "-");
    let _first = world.client().await;
    let good = token("anon", "-");
    for (key, code, reason) in [
        (
            "junk",
            4401,
            "MalformedJWT: The token provided is not a valid JWT",
        ),
        ("sb_junk", 4401, "InvalidApiKey: The API key is not known"),
        ("", 4401, "InvalidApiKey: API key is missing"),
        (
            &nobody,
            4403,
            "Unauthorized: The token's role is not allowed in this project",
        ),
        (
            &good,
            4429,
            "ConnectionRateLimitReached: Too many connected users (at most 1 sockets on a gateway)",
        ),
    ] {
        let mut client = Client::connect(&world.url_as("2.0.0", key)).await;
        assert_eq!(
            client.next().await,
            Frame::Closed(Some((code, reason.to_owned())))
        );
    }
    assert_eq!(world.metric("anvilbase_realtime_gateway_sessions"), Some(1.0));
    // What is no upgrade is answered as ever.
    let (status, _) = plain(&world, "/socket/websocket?apikey=junk").await;
    assert_eq!(status, 401);
}

/// The status and body of a request that asks for no upgrade.
async fn plain(world: &World, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    realtime_testkit::wait::within("the answer", stream.read_to_string(&mut answer))
        .await
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}
