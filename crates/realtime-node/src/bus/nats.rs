//! The bus over NATS core: no JetStream, any server from 2.9 on.
//!
//! Must never hide a loss: a reconnect and a slow consumer are told to the subscriptions they
//! may concern.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, RequestErrorKind, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::watch;

use super::{BusError, BusMessage, Delivery, FLUSH_DEADLINE};
use crate::backoff::jittered;
use crate::fetch::is_loopback;
use crate::secret::Secret;
use crate::tasks::Tasks;

/// How to reach NATS.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Servers, such as `nats://127.0.0.1:4222`.
    pub servers: Vec<String>,
    /// The connection's name at the server.
    pub name: String,
    /// User and password, if the server asks.
    pub user: Option<String>,
    /// See `user`.
    pub password: Option<Secret>,
    /// Certificate authority of the server.
    pub ca_file: Option<PathBuf>,
    /// Messages that one subscription may hold unread.
    pub subscription_capacity: usize,
}

/// A connection to NATS. Cloning shares it.
#[derive(Clone)]
pub struct NatsBus {
    client: Client,
    losses: watch::Receiver<Losses>,
    connected: Arc<AtomicBool>,
}

/// Counts of the events after which messages may be missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Losses {
    reconnects: u64,
    slow: u64,
}

/// A subscription on a [`NatsBus`].
#[derive(Debug)]
pub struct NatsSubscription {
    subscriber: Subscriber,
    losses: watch::Receiver<Losses>,
    seen: Losses,
}

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const PUBLISH_DEADLINE: Duration = Duration::from_secs(5);

impl NatsBus {
    pub(super) async fn connect(options: NatsOptions, tasks: &Tasks) -> Result<Self, BusError> {
        let (sender, losses) = watch::channel(Losses::default());
        let connected = Arc::new(AtomicBool::new(false));
        let connect = connect_options(&options, sender, Arc::clone(&connected));
        let servers = options.servers.clone();
        let client = tokio::time::timeout(CONNECT_DEADLINE, connect.connect(servers))
            .await
            .map_err(|_| BusError::Timeout(CONNECT_DEADLINE))?
            // The source may hold the URL, and that a password: only the kind is shown.
            .map_err(|error| BusError::Unavailable(format!("{:?}", error.kind())))?;
        let bus = Self {
            client,
            losses,
            connected,
        };
        let stop = tasks.cancelled();
        let closing = bus.client.clone();
        tasks.spawn("nats drain", async move {
            stop.await;
            // Sends what waits, such as a listener's last words.
            let flushed = tokio::time::timeout(FLUSH_DEADLINE, closing.flush()).await;
            tracing::debug!(flushed = flushed.is_ok(), "bus flushed at the end");
        });
        Ok(bus)
    }

    /// Whether the connection is up just now.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(super) async fn publish(&self, subject: &str, body: Bytes) -> Result<(), BusError> {
        let sent = self.client.publish(subject.to_owned(), body);
        tokio::time::timeout(PUBLISH_DEADLINE, sent)
            .await
            .map_err(|_| BusError::Timeout(PUBLISH_DEADLINE))?
            .map_err(|error| BusError::Unavailable(format!("{:?}", error.kind())))
    }

    pub(super) async fn subscribe(&self, subject: &str) -> Result<NatsSubscription, BusError> {
        let subscriber = self.client.subscribe(subject.to_owned()).await;
        Ok(self.subscription(subscriber.map_err(|error| BusError::Unavailable(error.to_string()))?))
    }

    pub(super) async fn queue_subscribe(
        &self,
        subject: &str,
        group: &str,
    ) -> Result<NatsSubscription, BusError> {
        let subscriber = self
            .client
            .queue_subscribe(subject.to_owned(), group.to_owned())
            .await;
        Ok(self.subscription(subscriber.map_err(|error| BusError::Unavailable(error.to_string()))?))
    }

    pub(super) async fn request(
        &self,
        subject: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, BusError> {
        match tokio::time::timeout(deadline, self.client.request(subject.to_owned(), body)).await {
            Ok(Ok(answer)) => Ok(answer.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => BusError::NoResponders,
                RequestErrorKind::TimedOut => BusError::Timeout(deadline),
                kind => BusError::Unavailable(format!("{kind:?}")),
            }),
            Err(_) => Err(BusError::Timeout(deadline)),
        }
    }

    /// The client's own flush only empties its buffer. A message to ourselves comes back after
    /// the server has handled all that this connection sent before it.
    pub(super) async fn flush(&self) -> Result<(), BusError> {
        let inbox = self.client.new_inbox();
        let round_trip = async {
            let mut echo = self.subscribe(&inbox).await?;
            self.publish(&inbox, Bytes::new()).await?;
            match echo.subscriber.next().await {
                Some(_) => Ok(()),
                None => Err(BusError::Unavailable("closed".to_owned())),
            }
        };
        tokio::time::timeout(FLUSH_DEADLINE, round_trip)
            .await
            .map_err(|_| BusError::Timeout(FLUSH_DEADLINE))?
    }

    fn subscription(&self, subscriber: Subscriber) -> NatsSubscription {
        let losses = self.losses.clone();
        let seen = *losses.borrow();
        NatsSubscription {
            subscriber,
            losses,
            seen,
        }
    }
}

impl std::fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NatsBus")
    }
}

impl NatsSubscription {
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        loop {
            tokio::select! {
                biased;
                changed = self.losses.changed() => {
                    if changed.is_err() {
                        return self.subscriber.next().await.map(delivery);
                    }
                    let now = *self.losses.borrow_and_update();
                    if now != self.seen {
                        let lost = now.slow - self.seen.slow;
                        self.seen = now;
                        return Some(Delivery::Lost(lost));
                    }
                }
                message = self.subscriber.next() => return message.map(delivery),
            }
        }
    }

    pub(super) async fn unsubscribe(&mut self) {
        if let Err(error) = self.subscriber.unsubscribe().await {
            tracing::debug!(%error, "unsubscribe failed: the connection is closed");
        }
    }
}

fn delivery(message: async_nats::Message) -> Delivery {
    Delivery::Message(BusMessage {
        subject: message.subject.to_string(),
        body: message.payload,
        reply: message.reply.map(|reply| reply.to_string()),
    })
}

fn connect_options(
    options: &NatsOptions,
    losses: watch::Sender<Losses>,
    connected: Arc<AtomicBool>,
) -> ConnectOptions {
    let losses = Arc::new(losses);
    let connects = Arc::new(AtomicU64::new(0));
    let mut connect = ConnectOptions::new()
        .name(&options.name)
        .subscription_capacity(options.subscription_capacity)
        .max_reconnects(None)
        .ping_interval(Duration::from_secs(10))
        .reconnect_delay_callback(|attempts| {
            let step = Duration::from_millis(100) * u32::try_from(attempts.min(50)).unwrap_or(50);
            jittered(step)
        })
        .event_callback(move |event| {
            on_event(&event, &losses, &connects, &connected);
            std::future::ready(())
        });
    if let (Some(user), Some(password)) = (&options.user, &options.password) {
        connect = connect.user_and_password(user.clone(), password.expose().to_owned());
    }
    if let Some(path) = &options.ca_file {
        connect = connect.add_root_certificates(path.clone());
    }
    // Servers that these name later on are spoken to in the same way.
    connect.require_tls(options.ca_file.is_some() || options.servers.iter().all(|url| is_encrypted(url)))
}

/// Whether a server's address asks for TLS by itself.
pub(crate) fn is_encrypted(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme == "tls")
}

/// Whether a server's address is one of this machine.
pub(crate) fn is_on_this_machine(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    is_loopback(name)
}

/// Only counts: a slow consumer raises one event per message, and a line for each would bury
/// its cause.
fn on_event(event: &Event, losses: &watch::Sender<Losses>, connects: &AtomicU64, connected: &AtomicBool) {
    match event {
        Event::Connected => {
            connected.store(true, Ordering::Relaxed);
            if connects.fetch_add(1, Ordering::Relaxed) > 0 {
                tracing::warn!("bus connection is back");
                losses.send_modify(|losses| losses.reconnects += 1);
            }
        }
        Event::Disconnected => {
            connected.store(false, Ordering::Relaxed);
            tracing::warn!("bus connection lost");
        }
        Event::SlowConsumer(_) => losses.send_modify(|losses| losses.slow += 1),
        Event::ServerError(error) => tracing::warn!(%error, "bus server error"),
        Event::ClientError(error) => tracing::warn!(%error, "bus client error"),
        Event::LameDuckMode | Event::Draining | Event::Closed => {
            tracing::info!(event = %event, "bus connection is ending");
        }
    }
}
