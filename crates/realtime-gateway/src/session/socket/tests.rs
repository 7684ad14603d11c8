//! Sockets over channels, on a clock of their own: pings, silence, stuck readers, the drain.

use std::pin::Pin;
use std::task::{Poll, ready};

use realtime_core::claims::Role;
use realtime_node::admin::Readiness;
use realtime_node::bus::Bus;
use realtime_node::catalog::{Catalog, Listen, ProjectConfig, TokenConfig};
use realtime_node::metrics::Metrics;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use realtime_testkit::tokens;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use super::*;
use crate::Config;
use crate::authz::Authz;
use crate::limits::Limits;

const SECRET: &str = "a secret of at least thirty-two bytes";

/// A time that no test comes near, in seconds since 1970.
const FAR_SECONDS: u64 = 200_000_000_000;

/// The server's end of a socket: what it sends waits in a short queue, as in a kernel's buffer.
struct Pipe {
    from_peer: mpsc::Receiver<Message>,
    to_peer: PollSender<Message>,
}

#[derive(Debug)]
struct Gone;

impl Stream for Pipe {
    type Item = Result<Message, Gone>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        self.from_peer.poll_recv(cx).map(|message| message.map(Ok))
    }
}

impl Sink<Message> for Pipe {
    type Error = Gone;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Result<(), Gone>> {
        Poll::Ready(ready!(self.to_peer.poll_reserve(cx)).map_err(|_| Gone))
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Gone> {
        self.to_peer.send_item(message).map_err(|_| Gone)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Result<(), Gone>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Result<(), Gone>> {
        self.to_peer.close();
        Poll::Ready(Ok(()))
    }
}

/// The peer's end.
struct Peer {
    to_server: mpsc::Sender<Message>,
    from_server: mpsc::Receiver<Message>,
}

fn gateway(tasks: &Tasks) -> Gateway {
    gateway_with(tasks, Duration::from_secs(30))
}

fn gateway_with(tasks: &Tasks, drain: Duration) -> Gateway {
    let project = ProjectConfig {
        id: ProjectId::parse("p").unwrap(),
        listen: Listen::Demand,
        roles: vec![Role::new("anon")],
        database: None,
        tokens: Some(TokenConfig::by_secret(Secret::new(SECRET))),
    };
    let config = Config {
        catalog: Catalog::from_projects(vec![project]),
        bus: Bus::local(),
        authz: Authz::new([]),
        limits: Limits::defaults(),
        metrics: Metrics::new(),
        readiness: Readiness::default(),
        name: "g".into(),
        drain,
        operator_token: None.into(),
    };
    Gateway::new(config, tasks)
}

fn connect(gateway: &Gateway, tasks: &Tasks, queue: usize) -> Peer {
    let (to_server, from_peer) = mpsc::channel(16);
    let (to_peer, from_server) = mpsc::channel(queue);
    let project = ProjectId::parse("p").unwrap();
    let (id, open) = gateway.open_session().unwrap();
    let verifier = gateway.verifier(&project).unwrap();
    let key = tokens::mint(SECRET, &json!({ "role": "anon", "exp": FAR_SECONDS }));
    let admitted = Admitted {
        id,
        identity: verifier.verify(&key, gateway.now_ms()).unwrap(),
        verifier,
        project,
        serializer: Serializer::V2,
    };
    let pipe = Pipe {
        from_peer,
        to_peer: PollSender::new(to_peer),
    };
    let session = serve(gateway.clone(), admitted, pipe);
    tasks.spawn("session", async move {
        session.await;
        drop(open);
    });
    Peer {
        to_server,
        from_server,
    }
}

async fn close_code(peer: &mut Peer) -> Option<u16> {
    while let Some(message) = peer.from_server.recv().await {
        if let Message::Close(frame) = message {
            return frame.map(|frame| frame.code);
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_quiet_peer_is_pinged_and_one_that_never_answers_is_let_go() {
    let tasks = Tasks::new();
    let gateway = gateway(&tasks);
    let mut quiet = connect(&gateway, &tasks, 16);
    let mut silent = connect(&gateway, &tasks, 16);
    let began = Instant::now();
    for n in 1..=4u64 {
        let ping = quiet.from_server.recv().await.unwrap();
        assert!(matches!(ping, Message::Ping(_)), "{ping:?}");
        assert_eq!(began.elapsed().as_secs(), 25 * n);
        quiet
            .to_server
            .send(Message::Pong(Default::default()))
            .await
            .unwrap();
    }
    assert_eq!(close_code(&mut silent).await, Some(1013));
    let heartbeat = r#"[null,"1","phoenix","heartbeat",{}]"#;
    quiet
        .to_server
        .send(Message::Text(heartbeat.into()))
        .await
        .unwrap();
    let reply = quiet.from_server.recv().await.unwrap();
    assert!(reply.to_text().unwrap().contains("phx_reply"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_bytes_is_given_up_after_the_write_deadline() {
    let tasks = Tasks::new();
    let gateway = gateway(&tasks);
    let peer = connect(&gateway, &tasks, 1);
    let began = Instant::now();
    for _ in 0..10 {
        let heartbeat = r#"[null,"1","phoenix","heartbeat",{}]"#;
        peer.to_server
            .send(Message::Text(heartbeat.into()))
            .await
            .unwrap();
    }
    // The server's end of the queue is dropped, though nothing was ever read from it.
    peer.to_server.closed().await;
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(20),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn closes_are_spread_over_the_drain_window() {
    let tasks = Tasks::new();
    let gateway = gateway(&tasks);
    let mut peers: Vec<Peer> = (0..100).map(|_| connect(&gateway, &tasks, 16)).collect();
    let heartbeat = r#"[null,"1","phoenix","heartbeat",{}]"#;
    for peer in &mut peers {
        peer.to_server
            .send(Message::Text(heartbeat.into()))
            .await
            .unwrap();
        peer.from_server.recv().await.unwrap();
    }
    tasks.cancel();
    let began = Instant::now();
    let closing = peers.iter_mut().map(async |peer| {
        let code = close_code(peer).await;
        (began.elapsed().as_secs_f64(), code)
    });
    let mut closes = futures_util::future::join_all(closing).await;
    assert!(closes.iter().all(|(_, code)| *code == Some(1012)));
    closes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (closes[0].0, closes[99].0);
    assert!(last - first >= 0.7 * 30.0 && last <= 30.0, "{first} {last}");
    let widest = closes
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .fold(0.0, f64::max);
    assert!(widest < 1.5, "{widest}");
}

#[tokio::test(start_paused = true)]
async fn peers_that_answer_no_close_do_not_outlast_the_drain_window() {
    let tasks = Tasks::new();
    let window = Duration::from_millis(2_500);
    let gateway = gateway_with(&tasks, window);
    let peers: Vec<Peer> = (0..100).map(|_| connect(&gateway, &tasks, 16)).collect();
    assert!(tasks.drain(window).await);
    drop(peers);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_held_from_before_the_handshake() {
    let gateway = gateway(&Tasks::new());
    let max = gateway.limits().sockets_max as usize;
    let mut places: Vec<_> = (0..max).map(|_| gateway.open_session().unwrap()).collect();
    assert!(gateway.open_session().is_none());
    places.pop();
    assert!(gateway.open_session().is_some());
}
