//! Tokens: whose they are, what they may say, and where they must never be seen.

use std::io::Write;
use std::sync::{Arc, Mutex};

use realtime_core::change::Row;
use realtime_core::claims::{Claims, Role};
use realtime_node::postgres::Dsn;
use realtime_node::secret::Secret;
use realtime_testkit::tokens;
use realtime_tests::stack::JWT_SECRET;
use realtime_tests::world::{U1, U2, Who, World, binding, filtered};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{HUSH, brief, follow};

/// Everything that is logged from now on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(
                "trace,h2=info,hyper=info,hyper_util=info,tower=info,tungstenite=info,tokio_tungstenite=info",
            )
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        tracing_subscriber::util::SubscriberInitExt::try_init(subscriber).unwrap();
        log
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// A session in which everything private carries a mark, and what goes wrong goes wrong.
async fn eventful_session(world: &World) -> Vec<String> {
    let who = Who::claims(
        json!({ "role": "authenticated", "sub": U1, "email": "hush-mail@a.test", "user_metadata": { "x": "hush-claim" } }),
    );
    let key = who.token();
    world
        .run(
            "create table fails (id int primary key, word text); alter table fails enable row level security;
             create function fail(word text) returns boolean language plpgsql as
               $$ begin raise exception 'the word is %, the claims are %', word, current_setting('request.jwt.claims'); end $$;
             create policy p on fails for select to authenticated using (fail(word));
             create table gone (id int primary key, word text); alter table gone enable row level security;
             create policy p on gone for select using (true)",
        )
        .await;
    let bindings = [
        binding("*", "notes"),
        filtered("*", "notes", "title=eq.hush-filter"),
        binding("*", "fails"),
        filtered("*", "gone", "word=neq.hush-filter"),
    ];
    let mut socket = world.socket_with_key(&key).await;
    socket.join("realtime:hush-topic", &bindings, None).await.unwrap();
    socket.subscribed("realtime:hush-topic").await;
    world
        .run(&format!(
            "insert into notes (id, owner, title) values (1, '{U1}', 'hush-row'), (2, '{U2}', 'hush-row');
             update notes set title = 'hush-row-2'; delete from notes where id = 1;
             insert into notes (id, owner, title) values (3, '{U1}', repeat('hush-row', 2000));
             insert into fails values (1, 'hush-row');
             begin; insert into gone values (1, 'hush-row'); drop table gone; commit"
        ))
        .await;
    world.frames(&mut socket).await;
    for filter in [
        "id=eq.hush-filter",
        "nope=eq.hush-filter",
        "title=in.(hush-filter",
    ] {
        socket.refused(&[filtered("*", "notes", filter)]).await;
    }
    let bad = format!("{}x", &key[..key.len() - 1]);
    for token in [&bad, "hush-token", "hush.to.ken", "sb_secret_hush-token"] {
        let _ = socket
            .join("realtime:x", &[binding("*", "notes")], Some(token))
            .await;
    }
    socket
        .send(
            "realtime:hush-topic",
            "access_token",
            json!({ "access_token": bad }),
        )
        .await;
    socket
        .client
        .until("the channel's end", |frame| frame[3] == "phx_close")
        .await;
    socket.client.send("{\"hush-frame\": no json").await;
    socket.client.send_binary(b"\x03hush-frame".to_vec()).await;
    for path in [
        format!("/realtime/v1/websocket?vsn=2.0.0&apikey={bad}"),
        "/realtime/v1/websocket?vsn=hush-vsn&apikey=hush-token".to_owned(),
        "/hush-path?token=hush-token".to_owned(),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: hush-host\r\nx-hush: hush-header\r\nauthorization: Bearer {bad}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(!answer.contains("hush") && !answer.contains(&bad), "{answer}");
    }
    world.frames(&mut socket).await;
    // The signature, too, is enough of a token.
    vec![
        "hush".to_owned(),
        key.rsplit('.').next().unwrap().to_owned(),
        JWT_SECRET.to_owned(),
    ]
}

#[tokio::test]
async fn logs_of_an_eventful_session() {
    let log = Log::start();
    let world = World::start().await;
    let marks = eventful_session(&world).await;
    world.stop().await;
    let text = log.text();
    assert!(
        text.contains("realtime_") || text.contains("tokio_postgres"),
        "nothing was logged: {text}"
    );
    for mark in marks {
        let line = text.lines().find(|line| line.contains(&mark));
        assert_eq!(line, None, "{mark}");
    }
}

#[tokio::test]
async fn metrics_of_an_eventful_session() {
    let world = World::start().await;
    let marks = eventful_session(&world).await;
    for text in [
        world.metrics.encode_process().unwrap(),
        world.metrics.encode_projects().unwrap(),
    ] {
        for mark in marks.iter().map(String::as_str).chain(["notes", "fails", U1, U2]) {
            let line = text.lines().find(|line| line.contains(mark));
            assert_eq!(line, None, "{mark}");
        }
    }
    world.stop().await;
}

#[test]
fn what_is_printed_of_private_things() {
    let claims = Claims::new(Role::new("authenticated"), "{\"sub\":\"hush\"}");
    let row = Row::new("{\"a\":\"hush\"}");
    let secret = Secret::new("hush");
    let dsn = Dsn::parse("postgres://user:hush@127.0.0.1:1/db").unwrap();
    for text in [
        format!("{claims:?}"),
        format!("{:?}", claims.fingerprint()),
        format!("{row:?}"),
        format!("{secret:?}"),
        format!("{dsn:?}"),
        format!("{:?}", Dsn::parse("postgres://user:hush@@@:x/hush?hush=hush")),
        format!("{:?}", Dsn::parse("host=hush passwort=hush")),
    ] {
        assert!(!text.contains("hush"), "{text}");
    }
}

/// A token of another algorithm than the project's, put together from a good one.
#[tokio::test]
async fn headers_that_choose_how_they_are_checked() {
    let world = World::start().await;
    let good = Who::anon().token();
    let parts: Vec<&str> = good.split('.').collect();
    let service = Who::service().token();
    let service_payload = service.split('.').nth(1).unwrap();
    let mut socket = world.socket(&Who::anon()).await;
    let mut tokens = vec![
        // The good signature under another payload.
        format!("{}.{service_payload}.{}", parts[0], parts[2]),
        format!("{}.{service_payload}.", parts[0]),
        format!("{}.{service_payload}", parts[0]),
        format!(".{service_payload}."),
        format!("{good}.{}", parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], "A".repeat(parts[2].len())),
    ];
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None","typ":"JWT"}"#,
        r#"{"alg":"NONE"}"#,
        r#"{"alg":""}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}"#,
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"HS256","kid":"../../../../dev/null"}"#,
        r#"{"alg":"HS256","jku":"http://127.0.0.1:1/keys"}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","crit":["x"]}"#,
        r#"{"alg":"HS256","zip":"DEF"}"#,
    ] {
        let header = base64_url(header.as_bytes());
        for signature in [parts[2], "", "AA"] {
            tokens.push(format!("{header}.{service_payload}.{signature}"));
        }
    }
    for token in tokens {
        let refused = socket
            .join("realtime:test", &[binding("*", "notes")], Some(&token))
            .await;
        let response = refused.expect_err(&token);
        let reason = response["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("MalformedJWT: ") || reason.starts_with("JwtSignatureError: "),
            "{token}: {reason}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn roles_and_times_of_the_wrong_kind() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    let now = tokens::now();
    for claims in [
        json!({ "role": ["service_role"] }),
        json!({ "role": { "service_role": true } }),
        json!({ "role": 1 }),
        json!({ "role": null }),
        json!({ "role": "" }),
        json!({ "role": "service_role " }),
        json!({ "role": " service_role" }),
        json!({ "role": "SERVICE_ROLE" }),
        json!({ "role": "service_role\u{0}" }),
        json!({ "role": "anon,service_role" }),
        json!({ "role": "postgres" }),
        json!({ "role": "anvilbase_realtime_prober" }),
        json!({ "role": "none" }),
        json!({ "role": "public" }),
        json!({ "Role": "service_role" }),
        json!({ "roles": ["service_role"] }),
        json!({ "sub": U1 }),
        json!({ "role": "anon", "exp": now - 100_000 }),
        json!({ "role": "anon", "exp": "9999999999" }),
        json!({ "role": "anon", "exp": [9_999_999_999_u64] }),
        json!({ "role": "anon", "exp": null }),
        json!({ "role": "anon", "exp": -1 }),
        json!({ "role": "anon", "exp": 1e300 }),
        json!({ "role": "anon", "exp": true }),
        json!({ "role": "anon", "nbf": now + 100_000 }),
        json!({ "role": "anon", "nbf": "soon" }),
        json!({ "role": "anon", "nbf": {} }),
    ] {
        let token = Who::claims(claims.clone()).token();
        let refused = socket
            .join("realtime:test", &[binding("*", "notes")], Some(&token))
            .await;
        let response = refused.expect_err(&claims.to_string());
        let reason = response["reason"].as_str().unwrap();
        assert!(
            ["InvalidJWTToken: ", "MalformedJWT: ", "Unauthorized: "]
                .iter()
                .any(|code| reason.starts_with(code)),
            "{claims}: {reason}"
        );
    }
    world.stop().await;
}

/// What users may write into their own tokens.
#[tokio::test]
async fn metadata_that_says_more_than_its_token() {
    let world = World::start().await;
    let who = Who::claims(json!({
        "role": "authenticated", "sub": U2, "user_metadata": { "role": "service_role", "sub": U1, "claims": { "role": "service_role" } },
        "app_metadata": { "role": "service_role", "roles": ["service_role"], "org": U1 }, "user_role": "service_role", "is_super_admin": true,
        "request.jwt.claims": { "sub": U1 }, "aud": "service_role", "amr": [{ "role": "service_role" }],
    }));
    let mut two = follow(&world, &who, "notes").await;
    world
        .run(&format!(
            "insert into notes (id, owner) values (1, '{U1}'), (2, '{U2}')"
        ))
        .await;
    assert_eq!(brief(&world.frames(&mut two).await), ["INSERT notes 2"]);
    world.stop().await;
}

/// Claims that the database cannot read, or that end a text early.
#[tokio::test]
async fn claims_that_are_made_to_break_out() {
    let world = World::start().await;
    let mut good = follow(&world, &Who::u1(), "notes").await;
    for extra in [
        json!("'; select pg_sleep(10); --"),
        json!("\u{0}"),
        json!("\\"),
        json!("$1"),
        json!("\u{2028}\u{feff}"),
        json!("x".repeat(5_000)),
        json!({ "sub": U1 }),
        json!([[[[[[[[]]]]]]]]),
    ] {
        let who = Who::claims(
            json!({ "role": "authenticated", "sub": U2, "extra": extra, "user_metadata": { "sub": U1 } }),
        );
        let mut other = follow(&world, &who, "notes").await;
        world
            .run(&format!(
                "delete from notes; insert into notes (id, owner, title) values (1, '{U1}', '{HUSH}')"
            ))
            .await;
        let rows = brief(&crate::support::nothing_hidden(&world, &mut other).await);
        assert!(rows.iter().all(|row| row == "DELETE notes 1"), "{rows:?}");
    }
    assert!(brief(&world.frames(&mut good).await).contains(&"INSERT notes 1".to_owned()));
    world.stop().await;
}

/// No more of U1 than U1's own token gave, after it was taken back.
#[tokio::test]
async fn a_channel_after_its_token_was_given_back() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    socket
        .join(
            "realtime:test",
            &[binding("*", "notes")],
            Some(&Who::u1().token()),
        )
        .await
        .unwrap();
    socket.subscribed("realtime:test").await;
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    assert_eq!(brief(&world.frames(&mut socket).await), ["INSERT notes 1"]);
    for back in [
        json!(null),
        json!(""),
        json!(7),
        json!({}),
        json!("sb_publishable_x"),
    ] {
        socket
            .send("realtime:test", "access_token", json!({ "access_token": back }))
            .await;
        // Either the connection's own identity from here on, or the channel's end.
        socket
            .client
            .until("anon is live, or the channel over", |frame| {
                frame[2] == "realtime:test" && (frame[4]["role"] == "anon" || frame[3] == "phx_close")
            })
            .await;
        world.run(&format!("update notes set title = '{HUSH}'")).await;
        assert_eq!(
            brief(&crate::support::nothing_hidden(&world, &mut socket).await),
            Vec::<String>::new(),
            "{back}"
        );
        world.run("update notes set title = 'x'").await;
        socket
            .join(
                "realtime:test",
                &[binding("*", "notes")],
                Some(&Who::u1().token()),
            )
            .await
            .unwrap();
        socket.subscribed("realtime:test").await;
    }
    world.stop().await;
}

fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            out.push(char::from(LETTERS[(group >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}
