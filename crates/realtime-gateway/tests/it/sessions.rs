//! The life of a socket, and of the gateway around it.

use std::time::Duration;

use realtime_testkit::tokens;
use realtime_testkit::wait::{until, within};
use realtime_testkit::ws::Frame;
use serde_json::json;

use crate::harness::{SECRET, World, is_row, join, notes, story, subscribed, token};

#[tokio::test]
async fn a_stopping_gateway_is_unready_and_closes_with_1012_spread_over_the_window() {
    let world = World::start().await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(world.joined(&token("authenticated", "u1"), notes()).await.0);
    }
    let began = tokio::time::Instant::now();
    world.tasks.cancel();
    until("unready", async || (!world.readiness.is_ready()).then_some(())).await;
    let mut closes = Vec::new();
    for client in &mut clients {
        let close = loop {
            if let Frame::Closed(close) = client.next().await {
                break close;
            }
        };
        assert_eq!(close.unwrap().0, 1012);
        closes.push(began.elapsed());
    }
    // Read in the order of joining, so that only the last is a time of closing: the window is 2 s.
    let last = closes.last().unwrap();
    assert!(
        *last < Duration::from_secs(3) && *last > Duration::from_millis(800),
        "{last:?}"
    );
    within("all tasks end", async {
        assert!(world.tasks.drain(Duration::from_secs(5)).await)
    })
    .await;
}

#[tokio::test]
async fn changes_go_on_while_the_gateway_drains() {
    let world = World::start().await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(world.joined(&token("service_role", "-"), notes()).await.0);
    }
    world.tasks.cancel();
    world.insert(json!({ "id": 1 })).await;
    let mut served = 0;
    for client in &mut clients {
        if let Frame::Text(text) = client.next().await {
            assert!(is_row(&serde_json::from_str(&text).unwrap(), 1));
            served += 1;
        }
    }
    assert!(served >= 8, "{served}");
}

#[tokio::test]
async fn a_channels_token_ends_the_channel_and_not_the_socket() {
    let world = World::start().await;
    let mut client = world.client().await;
    let short = tokens::mint(
        SECRET,
        &json!({ "role": "authenticated", "sub": "u1", "exp": tokens::now() + 2 }),
    );
    join(&mut client, "short", &short, notes()).await;
    subscribed(&mut client).await;
    join(&mut client, "long", &token("authenticated", "u1"), notes()).await;
    subscribed(&mut client).await;
    let (error, _) = client
        .until("the error", |frame| frame[4]["status"] == "error")
        .await;
    assert_eq!(error[2], "realtime:short");
    assert_eq!(error[4]["extension"], "system");
    assert!(
        error[4]["message"]
            .as_str()
            .unwrap()
            .starts_with("Token has expired ")
    );
    let (close, _) = client.until("the close", |frame| frame[3] == "phx_close").await;
    assert_eq!((&close[0], &close[1]), (&json!("short"), &json!("short")));
    world.insert(json!({ "id": 1 })).await;
    let (frame, _) = client.until("the change", |frame| is_row(frame, 1)).await;
    assert_eq!(frame[2], "realtime:long");
    world.insert(json!({ "id": 2 })).await;
    assert_eq!(story(&mut client, 2).await, ["row:2"]);
}

#[tokio::test]
async fn a_silent_peer_is_let_go() {
    let world = World::with_limits(|limits| limits.silence_seconds_max = 1).await;
    let url = world.url("2.0.0");
    // A peer that does not answer pings: it only ever reads below the protocol.
    let mut raw = raw_socket(&world, &url).await;
    use tokio::io::AsyncReadExt as _;
    let mut all = Vec::new();
    within("the server lets go", raw.read_to_end(&mut all))
        .await
        .unwrap();
    until("the session is gone", async || {
        (world.gateway.open_sessions() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_removed_project_ends_its_sessions() {
    let world = World::start().await;
    let (mut client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
    world.catalog.replace(Vec::new());
    let closed = within("closed", async {
        loop {
            if let Frame::Closed(close) = client.next().await {
                return close;
            }
        }
    })
    .await;
    assert_eq!(closed.unwrap().0, 1012);
}

#[tokio::test]
async fn sockets_that_come_and_go_leave_nothing_behind() {
    let world = World::with_limits(|limits| limits.feed_linger_seconds = 0).await;
    for _ in 0..30 {
        let (client, _) = world.joined(&token("authenticated", "u1"), notes()).await;
        drop(client);
    }
    until("all gone", async || {
        let gone = ["sessions", "channels", "feeds"]
            .map(|name| world.metric(&format!("anvilbase_realtime_gateway_{name}")) == Some(0.0));
        (gone == [true; 3]).then_some(())
    })
    .await;
}

async fn raw_socket(world: &World, url: &str) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let path = url.split_once(&world.address.to_string()).unwrap().1;
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 101");
    stream
}

#[tokio::test]
async fn an_idle_joined_socket_costs_less_than_60_kilobytes() {
    use tokio::io::AsyncWriteExt as _;
    let world = World::start().await;
    let key = token("authenticated", "u1");
    let payload = json!({ "config": { "postgres_changes": notes() } });
    let join = json!(["1", "1", "realtime:room", "phx_join", payload]).to_string();
    // A text frame with a mask of zeros, below the protocol so that the client costs nothing.
    let length = u8::try_from(join.len()).unwrap();
    let mut frame = vec![0x81, 0x80 | 126, 0, length, 0, 0, 0, 0];
    frame.extend_from_slice(join.as_bytes());
    let mut sockets = Vec::new();
    let mut at_100 = 0;
    const SOCKETS: usize = 1_100;
    for n in 1..=SOCKETS {
        let mut socket = raw_socket(&world, &world.url_as("2.0.0", &key)).await;
        socket.write_all(&frame).await.unwrap();
        sockets.push(socket);
        if n == 100 || n == SOCKETS {
            let joined = Some(n as f64);
            until("all joined", async || {
                (world.metric("anvilbase_realtime_gateway_channels") == joined).then_some(())
            })
            .await;
        }
        if n == 100 {
            at_100 = resident_bytes();
        }
    }
    let each = (resident_bytes() - at_100) / (SOCKETS - 100);
    println!("{each} bytes per idle joined socket");
    assert!(each < 60_000, "{each}");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
