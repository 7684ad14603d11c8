//! No key, token or claim is said by any process, whatever is done with it.

use realtime_testkit::jwks::KeySetServer;
use realtime_testkit::process::http_get;
use realtime_testkit::tokens::{self, Signer, key_set};
use realtime_testkit::wait::until;
use realtime_testkit::ws::Client;
use realtime_tests::stack::{JWT_SECRET, Stack};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// `printf %s sb_publishable_marker | sha256sum`
const KEY_SHA256: &str = "a5d42eede860ba435b513f2992b18f9a9f338828e705c11a8a3b16505eb5a125";
const KEY: &str = "sb_publishable_marker";

/// Sends bytes as they are and reads all of the answer.
async fn raw(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    realtime_testkit::wait::within("an answer", stream.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn join(client: &mut Client, token: &str) -> Value {
    let binding =
        json!({ "event": "*", "schema": "public", "table": "nowhere", "filter": "a=eq.filter-marker" });
    let payload = json!({ "config": { "postgres_changes": [binding] }, "access_token": token });
    client
        .send_json(&json!(["1", "1", "realtime:topic", "phx_join", payload]))
        .await;
    let (reply, _) = client.until("a reply", |frame| frame[3] == "phx_reply").await;
    reply[4].clone()
}

#[tokio::test]
async fn b11_keys_tokens_and_claims_reach_neither_logs_nor_metrics_nor_answers() {
    let stack = Stack::start(1).await;
    let good = Signer::ed25519(1, "kid-marker-good");
    let server = KeySetServer::start(key_set(&[&good])).await;
    stack.set_tokens(&format!(
        "[tokens]\njwt_secret = \"{JWT_SECRET}\"\nprevious_jwt_secrets = [\"previous-secret-marker-previous-secret\"]\n\
         jwks_url = \"{}\"\n[[tokens.keys]]\nrole = \"anon\"\nsha256 = \"{KEY_SHA256}\"\n",
        server.url()
    ));
    stack.wait_for_key(KEY).await;
    let (port, admin_port) = (stack.gateways[0].port, stack.gateways[0].admin_port);

    let user = |exp: u64| json!({ "role": "authenticated", "sub": "sub-marker", "email": "email-marker", "exp": exp });
    let later = tokens::now() + 600;
    let unknown = Signer::ed25519(2, "kid-marker-unknown");
    let mut texts = vec![
        KEY.to_owned(),
        "sb_secret_unknown-marker".into(),
        "junk-marker".into(),
        "head-marker.claims-marker.signature-marker".into(),
        tokens::mint(JWT_SECRET, &user(later)),
        tokens::mint(JWT_SECRET, &user(later - 1_200)),
        tokens::mint(
            JWT_SECRET,
            &json!({ "role": "role-marker", "sub": "sub-marker", "exp": later }),
        ),
        tokens::mint(
            JWT_SECRET,
            &json!({ "role": "anon", "ref": "ref-marker", "exp": later }),
        ),
        tokens::mint("another secret of thirty-two bytes", &user(later)),
        good.sign(&user(later)),
        unknown.sign(&user(later)),
        "m".repeat(20_000),
    ];
    // In the query under every name that some client gives it, in the header, and in requests that are none.
    let mut answers = Vec::new();
    for text in &texts {
        for request in [
            format!("GET /realtime/v1/websocket?apikey={text}&vsn=2.0.0 HTTP/1.1"),
            format!("GET /realtime/v1/websocket?token={text}&access_token={text} HTTP/1.1"),
            format!("GET /socket/websocket?vsn=2.0.0 HTTP/1.1\r\nx-api-key: {text}"),
            format!("GET /nowhere?apikey={text} HTTP/1.1\r\nauthorization: Bearer {text}"),
            format!("GET /api/v1/projects/dev/realtime/tables HTTP/1.1\r\nauthorization: Bearer {text}"),
            format!("apikey={text}"),
        ] {
            answers.push(
                raw(
                    port,
                    &format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n"),
                )
                .await,
            );
        }
    }
    let mut client = Client::connect(&format!(
        "ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={KEY}"
    ))
    .await;
    for broken in [false, true] {
        if broken {
            server.fail();
        }
        for text in &texts {
            answers.push(join(&mut client, text).await.to_string());
            let push = json!(["1", "2", "realtime:topic", "access_token", { "access_token": text }]);
            client.send_json(&push).await;
            client.send(format!("[null,null,\"{text}\"")).await;
            client
                .send(format!("[null,\"9\",\"{text}\",\"event-marker\",{{}}]"))
                .await;
            let (reply, before) = client.until("a reply", |frame| frame[1] == "9").await;
            // The client's own topic comes back to it, and nothing else does.
            let reply = reply[4].to_string();
            answers.extend(before.iter().map(|frame| frame[4].to_string()).chain([reply]));
        }
    }
    let service = Stack::key("service_role");
    let body = r#"{"sub":"sub-marker"}"#;
    let told = raw(
        port,
        &format!(
            "POST /api/v1/projects/dev/realtime/disconnect HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {service}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        ),
    )
    .await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    answers.push(told);
    // The keys are withdrawn.
    stack.set_tokens(&format!("[tokens]\njwt_secret = \"{JWT_SECRET}\"\n"));
    until("the socket ends", async || {
        let url = format!("ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={KEY}");
        (Client::try_connect(&url).await.err() == Some(401)).then_some(())
    })
    .await;
    for path in [
        "/metrics",
        "/metrics/projects",
        "/debug/feeds",
        "/readyz",
        "/livez",
    ] {
        answers.push(http_get(admin_port, path).await.unwrap());
    }

    texts.push(service);
    // The binding of a join is echoed to who wrote it; of tokens and claims nothing is.
    for answer in &answers {
        let answer = answer.replace("a=eq.filter-marker", "");
        for text in &texts {
            assert!(!answer.contains(text.as_str()), "an answer repeats a token");
        }
        assert!(!answer.contains("marker"), "{answer}");
    }
    let mut unsaid: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Neither a part of a token.
    unsaid.extend(
        texts
            .iter()
            .flat_map(|text| text.split('.'))
            .filter(|part| part.len() > 30),
    );
    unsaid.extend(["marker", server.marker()]);
    stack.stop(&unsaid).await;
}
