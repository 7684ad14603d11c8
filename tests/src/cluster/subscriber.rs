//! A subscriber as an application should be: it comes back when its socket breaks, and takes
//! every notice, and every break of its own, for a hole.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_testkit::ws::{Client, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::journal::{Kind, Reader, Seen};
use super::ledger::{IDS, user_id};
use crate::world::Who;

/// Without a frame for so long, the socket counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How often it says that it lives, and so is answered.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A subscriber that runs.
pub struct Subscriber {
    /// Who it is.
    pub reader: Reader,
    state: Arc<Mutex<State>>,
    progress: watch::Receiver<Progress>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    notices: Vec<Value>,
}

/// How far it has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    live: bool,
    /// The greatest `seq` seen of each writer.
    latest: Vec<i64>,
}

impl Subscriber {
    /// Starts one that goes to the gateways at `ports` in turn, from the `first` on.
    pub fn start(reader: Reader, ports: Vec<u16>, first: usize) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (sender, progress) = watch::channel(Progress::default());
        let follower = Follower {
            token: token(reader),
            ports,
            state: Arc::clone(&state),
            progress: sender,
        };
        let task = tokio::spawn(follower.run(first));
        Self {
            reader,
            state,
            progress,
            task,
        }
    }

    /// Waits until its channel is live.
    pub async fn live(&mut self) {
        let live = self.progress.wait_for(|progress| progress.live);
        tokio::time::timeout(Duration::from_secs(30), live)
            .await
            .expect("a subscriber goes live")
            .unwrap();
    }

    /// Waits until it has seen a change of each writer with a greater `seq`; false where that takes longer.
    pub async fn passes(&mut self, seqs: &[i64], deadline: Duration) -> bool {
        let passed = self.progress.wait_for(|progress| {
            let latest = |writer: usize| progress.latest.get(writer).copied().unwrap_or_default();
            seqs.iter().enumerate().all(|(writer, seq)| latest(writer) > *seq)
        });
        tokio::time::timeout(deadline, passed).await.is_ok()
    }

    /// Ends it and gives what it saw, and every notice as it was sent.
    pub fn finish(self) -> (Vec<Seen>, Vec<Value>) {
        self.task.abort();
        let mut state = self.state.lock();
        (
            std::mem::take(&mut state.seen),
            std::mem::take(&mut state.notices),
        )
    }
}

fn token(reader: Reader) -> String {
    match reader {
        Reader::Service => Who::service().token(),
        Reader::User(user) => Who::user(&user_id(user), "00000000-0000-4000-8000-0000000000a1").token(),
    }
}

/// A socket at a gateway of 127.0.0.1, joined to all changes of the ledger; `None` where there is none to be had.
pub async fn join(port: u16, token: &str) -> Option<Client> {
    let url = format!("ws://127.0.0.1:{port}/realtime/v1/websocket?vsn=2.0.0&apikey={token}");
    let mut client = tokio::time::timeout(Duration::from_secs(3), Client::open(&url))
        .await
        .ok()??;
    let config = json!({ "postgres_changes": [{ "event": "*", "schema": "public", "table": "ledger" }] });
    let join = json!(["1", "1", "realtime:ledger", "phx_join", { "config": config }]);
    client.try_send(&join).await.then_some(client)
}

struct Follower {
    token: String,
    ports: Vec<u16>,
    state: Arc<Mutex<State>>,
    progress: watch::Sender<Progress>,
}

impl Follower {
    async fn run(self, first: usize) {
        for turn in first.. {
            let port = self.ports[turn % self.ports.len()];
            if let Some(client) = join(port, &self.token).await {
                self.follow(client).await;
                self.see(Seen::Hole("the socket broke".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(50..300))).await;
        }
    }

    /// Until the socket or the channel ends.
    async fn follow(&self, mut client: Client) {
        let mut beat = tokio::time::interval(HEARTBEAT);
        let mut heard = tokio::time::Instant::now();
        loop {
            let frame = tokio::select! {
                frame = client.next_unbounded() => frame,
                _ = beat.tick() => {
                    let alive = heard.elapsed() < SILENCE_MAX
                        && client.try_send(&json!([null, "h", "phoenix", "heartbeat", {}])).await;
                    if alive {
                        continue;
                    }
                    return;
                }
            };
            heard = tokio::time::Instant::now();
            let Frame::Text(text) = frame else { return };
            let frame: Value = serde_json::from_str(&text).unwrap();
            if !self.take(&frame) {
                return;
            }
        }
    }

    /// False: the channel has ended.
    fn take(&self, frame: &Value) -> bool {
        let payload = &frame[4];
        match frame[3].as_str().unwrap_or_default() {
            "postgres_changes" => self.see(change(&payload["data"])),
            "system" => {
                if payload["message"] == "Subscribed to PostgreSQL" {
                    self.progress.send_modify(|progress| progress.live = true);
                } else {
                    self.state.lock().notices.push(payload.clone());
                }
                if payload["code"] == "gap" {
                    self.see(Seen::Hole(payload["reason"].to_string()));
                }
                return payload["status"] == "ok";
            }
            "phx_reply" => return payload["status"] == "ok",
            "phx_close" | "phx_error" => return false,
            _ => {}
        }
        true
    }

    fn see(&self, seen: Seen) {
        self.progress.send_modify(|progress| {
            if let Seen::Change { id, seq, .. } = &seen {
                let writer = usize::try_from(id / IDS).unwrap();
                if progress.latest.len() <= writer {
                    progress.latest.resize(writer + 1, 0);
                }
                progress.latest[writer] = progress.latest[writer].max(*seq);
            }
        });
        self.state.lock().seen.push(seen);
    }
}

fn change(data: &Value) -> Seen {
    let (kind, row) = match data["type"].as_str().unwrap() {
        "INSERT" => (Kind::Insert, &data["new"]),
        "UPDATE" => (Kind::Update, &data["new"]),
        _ => (Kind::Delete, &data["old"]),
    };
    let seq = if kind == Kind::Delete {
        0
    } else {
        row["seq"].as_i64().unwrap()
    };
    Seen::Change {
        kind,
        id: row["id"].as_i64().unwrap(),
        seq,
    }
}
