//! The two loops of a socket: one that reads and decides, one that writes.
//!
//! Must never read without answering to time: a silent peer, an expired token and the end of
//! the process each end something here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message};
use futures_util::future::{AbortHandle, Aborted, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use realtime_core::claims::Who;
use realtime_core::id::ProjectId;
use realtime_core::wire::phoenix::{Serializer, decode_binary, decode_text};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

use super::SessionId;
use super::channel::ChannelKey;
use super::mail::Mail;
use super::outbox::{Batch, CloseReason, Outbox, OutboxLimits};
use super::state::{Context, Effect, Input, SessionState};
use crate::Gateway;
use crate::auth::{Identity, Verifier};
use crate::feed::prepare::{Share, prepare};
use crate::feed::registry::FeedHandle;
use crate::feed::{Command, SubscriberId, Subscription};

/// Frames that are written before the socket is flushed.
const BATCH_FRAMES_MAX: usize = 128;

/// Bytes that are written before the socket is flushed.
const BATCH_BYTES_MAX: usize = 128 << 10;

/// How long a peer may take to answer a close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Longest sleep where nothing is due.
const FAR: Duration = Duration::from_secs(3_600);

/// A connection that was let in.
#[derive(Debug)]
pub struct Admitted {
    /// The session.
    pub id: SessionId,
    /// Its project.
    pub project: ProjectId,
    /// How its frames are written.
    pub serializer: Serializer,
    /// Who its key speaks for.
    pub identity: Identity,
    /// What verified that.
    pub verifier: Arc<Verifier>,
}

struct Session {
    gateway: Gateway,
    id: SessionId,
    project: ProjectId,
    serializer: Serializer,
    state: SessionState,
    outbox: Arc<Outbox>,
    mail: Arc<Mail>,
    /// What its identities were verified by last. Another one judges them anew.
    verifier: Arc<Verifier>,
    /// Look-ups on their way.
    work: FuturesUnordered<BoxFuture<'static, Result<Input, Aborted>>>,
    /// The channels that they are for, at most one each: with its channel a look-up ends.
    looking_up: BTreeMap<ChannelKey, AbortHandle>,
    /// What its channels share when they are looked up, so that no socket can keep the others from
    /// being answered.
    share: Arc<Share>,
    /// Held while any channel follows the feed.
    feed: Option<Arc<FeedHandle>>,
    subscribed: BTreeMap<ChannelKey, ()>,
    channels_counted: usize,
    heard_at: Instant,
}

/// Serves a socket until either side ends it.
pub async fn serve<S, E>(gateway: Gateway, admitted: Admitted, socket: S)
where
    S: Stream<Item = Result<Message, E>> + Sink<Message, Error = E> + Send + 'static,
    E: Send + 'static,
{
    let (sink, stream) = socket.split();
    let limits = Arc::clone(gateway.limits());
    let outbox = Arc::new(Outbox::new(OutboxLimits {
        frames_max: limits.outbox_frames_max as usize,
        bytes_max: limits.outbox_bytes_max as usize,
    }));
    let writer = Writer {
        outbox: Arc::clone(&outbox),
        gateway: gateway.clone(),
        write_deadline: limits.write_deadline(),
        ping_every: limits.ping(),
    };
    let writer = gateway.session_tasks().spawn("socket writer", writer.run(sink));
    let mut session = Session {
        state: SessionState::new(admitted.serializer, admitted.identity, gateway.now_ms()),
        gateway,
        id: admitted.id,
        project: admitted.project,
        serializer: admitted.serializer,
        outbox,
        mail: Arc::default(),
        verifier: admitted.verifier,
        work: FuturesUnordered::new(),
        looking_up: BTreeMap::new(),
        share: Arc::new(Share::new(&limits)),
        feed: None,
        subscribed: BTreeMap::new(),
        channels_counted: 0,
        heard_at: Instant::now(),
    };
    session.run(stream, writer).await;
    session.leave().await;
}

impl Session {
    async fn run<E>(&mut self, stream: impl Stream<Item = Result<Message, E>>, mut writer: JoinHandle<()>) {
        tokio::pin!(stream);
        let limits = Arc::clone(self.gateway.limits());
        let mut catalog = self.gateway.catalog().changed();
        let mut fetched = self.gateway.verifiers().changed();
        let mut orders = self.gateway.disconnects().orders(&self.project);
        let stop = self.gateway.session_tasks().cancelled();
        tokio::pin!(stop);
        let (mut drain_at, mut written) = (None, false);
        // The keys may have changed since the handshake.
        let mut ends = self.rekey().await;
        while !ends {
            let tick_at = self.tick_at();
            let dead_at = self.heard_at + limits.silence_max();
            ends = tokio::select! {
                message = stream.next() => match message {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => true,
                    Some(Ok(message)) => self.on_message(&message).await,
                },
                news = self.mail.take() => self.on_news(news).await,
                Some(looked_up) = self.work.next() => match looked_up {
                    Ok(input) => self.turn(input).await,
                    Err(Aborted) => false,
                },
                () = sleep_until(tick_at) => self.turn(Input::Tick).await,
                () = sleep_until(dead_at) => self.end(1013, "nothing was heard for too long"),
                () = &mut stop, if drain_at.is_none() => {
                    drain_at = Some(Instant::now() + self.gateway.drain_delay(self.id));
                    false
                }
                () = sleep_until(drain_at.unwrap_or(dead_at)), if drain_at.is_some() => {
                    self.end(1012, "the gateway restarts")
                }
                () = feed_ended(&self.feed) => self.end(1012, "the change feed restarts"),
                Ok(()) = catalog.changed() => self.rekey().await,
                Ok(()) = fetched.changed() => self.rekey().await,
                order = orders.recv() => match order {
                    Ok(who) => self.turn(Input::Disconnect(Who::clone(&who))).await,
                    Err(RecvError::Lagged(_)) => self.end(1012, "an operator's orders were missed"),
                    Err(RecvError::Closed) => self.end(1012, "the gateway restarts"),
                },
                _ = &mut writer => {
                    written = true;
                    true
                }
            };
        }
        self.outbox.close(CloseReason {
            code: 1012,
            reason: "the session is over",
        });
        // The writer sends the close within its own deadlines; then the peer may answer it.
        let deadline = limits.write_deadline() + 2 * CLOSE_DEADLINE;
        if !written && timeout(deadline, &mut writer).await.is_err() {
            writer.abort();
        }
        let patience = match drain_at {
            // Whoever does not answer must not hold up the end of the process.
            Some(_) => CLOSE_DEADLINE.min(self.gateway.drain_rest()),
            None => CLOSE_DEADLINE,
        };
        let answered = timeout(patience, async { while let Some(Ok(_)) = stream.next().await {} });
        let _ = answered.await;
    }

    /// Takes what the client sent. `true`: the session ends.
    async fn on_message(&mut self, message: &Message) -> bool {
        self.heard_at = Instant::now();
        let size = match message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => 0,
        };
        if size > self.gateway.limits().inbound_bytes_max as usize {
            return self.end(1009, "a message is larger than the server takes");
        }
        let decoded = match message {
            Message::Text(text) => decode_text(self.serializer, text),
            Message::Binary(bytes) => decode_binary(self.serializer, bytes),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return false,
        };
        self.gateway.metrics().frames_in.inc();
        self.turn(decoded.map_or_else(Input::Unparsable, Input::Frame))
            .await
    }

    async fn on_news(&mut self, news: BTreeMap<ChannelKey, u64>) -> bool {
        for (channel, generation) in news {
            if self.turn(Input::Live { channel, generation }).await {
                return true;
            }
        }
        false
    }

    /// Looks whether the project's keys are others than before. `true`: the session ends.
    async fn rekey(&mut self) -> bool {
        match self.gateway.verifier(&self.project) {
            None => self.end(1012, "the project's configuration changed"),
            Some(verifier) if Arc::ptr_eq(&verifier, &self.verifier) => false,
            Some(verifier) => {
                self.verifier = verifier;
                self.step(Input::Rekeyed).await
            }
        }
    }

    fn end(&mut self, code: u16, reason: &'static str) -> bool {
        self.gateway.metrics().close(reason);
        self.outbox.close(CloseReason { code, reason });
        true
    }

    /// One turn of the state. `true`: the session ends.
    async fn turn(&mut self, input: Input) -> bool {
        // First, so that nothing is done any more under a key that is gone.
        self.rekey().await || self.step(input).await
    }

    async fn step(&mut self, input: Input) -> bool {
        if let Input::Prepared { channel, .. } = &input {
            self.looking_up.remove(channel);
        }
        let limits = Arc::clone(self.gateway.limits());
        let verifier = Arc::clone(&self.verifier);
        let context = Context {
            now_ms: self.gateway.now_ms(),
            verifier: &verifier,
            limits: &limits,
        };
        let effects = self.state.on(input, &context);
        self.count_channels(self.state.channels());
        for effect in effects {
            if self.carry_out(effect).await {
                return true;
            }
        }
        false
    }

    async fn carry_out(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Send(frame) => self.outbox.push_control(frame),
            Effect::CountUnparsable(error) => {
                self.gateway.metrics().frames_unparsable.inc();
                tracing::debug!(project = %self.project, %error, "a frame was dropped");
            }
            Effect::Close(reason) => return self.end(reason.code, reason.reason),
            Effect::Prepare {
                channel,
                generation,
                claims,
                bindings,
            } => {
                let (gateway, project) = (self.gateway.clone(), self.project.clone());
                let share = Arc::clone(&self.share);
                let (look_up, handle) = abortable(async move {
                    let tables = gateway.registry().tables();
                    let (limits, interner) = (gateway.limits(), gateway.interner());
                    let prepared = prepare(tables, &share, limits, interner, &project, &claims, &bindings);
                    Input::Prepared {
                        channel,
                        generation,
                        result: prepared.await,
                    }
                });
                self.looking_up.insert(channel, handle);
                self.work.push(Box::pin(look_up));
            }
            Effect::FetchKeys => {
                let (gateway, project) = (self.gateway.clone(), self.project.clone());
                self.work.push(Box::pin(async move {
                    Ok(Input::Keys(gateway.verifiers().refresh(&project).await))
                }));
            }
            Effect::Subscribe {
                tag,
                generation,
                claims,
                prepared,
            } => {
                self.subscribed.insert(tag.key, ());
                self.outbox.open(tag.key, generation);
                let command = Command::Subscribe(Box::new(Subscription {
                    session: self.id,
                    tag,
                    outbox: Arc::clone(&self.outbox),
                    mail: Arc::clone(&self.mail),
                    claims,
                    generation,
                    prepared,
                }));
                return self.tell(command).await;
            }
            Effect::Identify {
                channel,
                generation,
                claims,
            } => {
                // Nothing more for the identity before, whenever the feed hears of it.
                self.outbox.open(channel, generation);
                let subscriber = self.subscriber(channel);
                return self
                    .tell(Command::Identify {
                        subscriber,
                        claims,
                        generation,
                    })
                    .await;
            }
            Effect::Suspend { channel } => {
                if self.subscribed.contains_key(&channel) {
                    self.outbox.shut(channel);
                    return self.tell(Command::Suspend(self.subscriber(channel))).await;
                }
            }
            Effect::Unsubscribe { channel } => return self.unsubscribe(channel).await,
        }
        false
    }

    async fn unsubscribe(&mut self, channel: ChannelKey) -> bool {
        self.outbox.shut(channel);
        if let Some(look_up) = self.looking_up.remove(&channel) {
            look_up.abort();
        }
        if self.subscribed.remove(&channel).is_none() {
            return false;
        }
        let ends = self.tell(Command::Unsubscribe(self.subscriber(channel))).await;
        if self.subscribed.is_empty() {
            self.feed = None;
        }
        ends
    }

    /// Tells the feed; a feed that has ended ends the session, so that the client comes back to a new one.
    async fn tell(&mut self, command: Command) -> bool {
        let feed = self
            .feed
            .get_or_insert_with(|| self.gateway.registry().feed(&self.project));
        let told = feed.send(command).await;
        told.is_err() && self.end(1012, "the change feed restarts")
    }

    async fn leave(&mut self) {
        self.count_channels(0);
        for channel in std::mem::take(&mut self.subscribed).into_keys() {
            let command = Command::Unsubscribe(self.subscriber(channel));
            if let Some(feed) = &self.feed
                && feed.send(command).await.is_err()
            {
                break;
            }
        }
        self.feed = None;
    }

    fn subscriber(&self, channel: ChannelKey) -> SubscriberId {
        SubscriberId {
            session: self.id,
            channel,
        }
    }

    fn count_channels(&mut self, channels: usize) {
        let change = channels as i64 - self.channels_counted as i64;
        self.gateway.metrics().channels.inc_by(change);
        self.channels_counted = channels;
    }

    fn tick_at(&self) -> Instant {
        let now_ms = self.gateway.now_ms();
        let due_ms = self.state.next_tick_ms(self.gateway.limits());
        let wait = due_ms.map_or(FAR, |due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
        Instant::now() + wait.min(FAR)
    }
}

async fn feed_ended(feed: &Option<Arc<FeedHandle>>) {
    match feed {
        Some(feed) => feed.ended().await,
        None => std::future::pending().await,
    }
}

struct Writer {
    outbox: Arc<Outbox>,
    gateway: Gateway,
    write_deadline: Duration,
    ping_every: Duration,
}

impl Writer {
    async fn run<E>(self, sink: impl Sink<Message, Error = E>) {
        tokio::pin!(sink);
        let mut ping = interval_at(Instant::now() + self.ping_every, self.ping_every);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                batch = self.outbox.next(BATCH_FRAMES_MAX, BATCH_BYTES_MAX) => batch,
                _ = ping.tick() => {
                    let pinged = sink.send(Message::Ping(Default::default()));
                    match timeout(self.write_deadline, pinged).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(_)) => break,
                        Err(_) => return self.give_up(&mut sink).await,
                    }
                }
            };
            let close = batch.close;
            match timeout(self.write_deadline, self.write(&mut sink, batch)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break,
                Err(_) => return self.give_up(&mut sink).await,
            }
            if let Some(reason) = close {
                return end(&mut sink, reason).await;
            }
        }
        // Whatever the peer is owed, its own close's answer included; it may be gone.
        let _ = timeout(CLOSE_DEADLINE, sink.close()).await;
    }

    async fn write<E>(
        &self,
        sink: &mut (impl Sink<Message, Error = E> + Unpin),
        batch: Batch,
    ) -> Result<(), E> {
        self.gateway
            .metrics()
            .frames_out
            .inc_by(batch.frames.len() as u64);
        for frame in batch.frames {
            sink.feed(Message::Text(frame)).await?;
        }
        sink.flush().await
    }

    /// The peer takes no bytes any more.
    async fn give_up<E>(&self, sink: &mut (impl Sink<Message, Error = E> + Unpin)) {
        self.gateway.metrics().close("stuck");
        end(
            sink,
            CloseReason {
                code: 1013,
                reason: "too slow: try again later",
            },
        )
        .await;
    }
}

async fn end<E>(sink: &mut (impl Sink<Message, Error = E> + Unpin), reason: CloseReason) {
    let frame = CloseFrame {
        code: reason.code,
        reason: reason.reason.into(),
    };
    // A peer that does not take the close gets none: the socket is dropped either way.
    let _ = timeout(CLOSE_DEADLINE, async {
        let _ = sink.send(Message::Close(Some(frame))).await;
        sink.close().await
    })
    .await;
}

#[cfg(test)]
mod tests;
