//! One project's feed: takes it, carries it, takes it again when it breaks, and lets it go.
//!
//! Must never publish after its session has ended (invariant 5): each session's messages carry the session's epoch,
//! and what a broken session left unread is dropped and announced.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::code::GapReason;
use realtime_core::envelope::{self, Message, TableMark};
use realtime_core::id::ProjectId;
use realtime_node::backoff::Backoff;
use realtime_node::postgres::Dsn;
use realtime_node::tasks::Tasks;
use realtime_proto::v1::DownReason;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::config::ListenerConfig;
use crate::metrics::ListenerMetrics;
use crate::publish::Publisher;
use crate::session::{self, Heart, Opened, Session, SessionError};
use crate::source::{Item, NotifySource, Source};

/// Most time for a last word on the bus.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(2);

/// The server's queue above this share is worth a warning: at 1, every commit that notifies fails.
const QUEUE_USAGE_WARNING: f64 = 0.1;

/// What came of the first attempt to take a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAttempt {
    /// The feed is up.
    Taken,
    /// Another listener holds it.
    HeldElsewhere,
    /// It failed, and is tried again.
    Failed,
}

/// What is known of a feed from outside.
#[derive(Debug)]
pub struct FeedState {
    /// When a gateway last said that it has sessions of the project.
    pub interest: Instant,
    /// Held whether or not anybody is interested.
    pub pinned: bool,
    /// The epoch of the session; 0 while there is none.
    pub epoch: u64,
    /// The last position's sequence number.
    pub seq: u64,
    /// Sessions lost since the feed was taken on.
    pub reconnects: u64,
}

/// A feed, before it runs.
pub struct Feed {
    /// Which project.
    pub project: ProjectId,
    /// The listener's login at its database.
    pub dsn: Dsn,
    /// The listener's settings.
    pub config: Arc<ListenerConfig>,
    /// Where its messages go.
    pub publisher: Publisher,
    /// What it counts.
    pub metrics: ListenerMetrics,
    /// Shared with whoever looks after it.
    pub state: Arc<Mutex<FeedState>>,
    /// Connections that the process may open.
    pub connections: Arc<Semaphore>,
    /// The group that it runs in; cancelled, it says `Down` and ends.
    pub tasks: Tasks,
}

/// Why a session ended.
enum End {
    /// The process stops, or the project is no longer ours to hold.
    Stopped,
    /// No gateway has had sessions of the project for the whole linger.
    NoInterest,
    /// The session broke.
    Broken(SessionError),
}

impl Feed {
    /// Runs until stopped, uninteresting, or held by another listener. `first` hears of the first attempt.
    pub async fn run(mut self, first: oneshot::Sender<FirstAttempt>) {
        let mut first = Some(first);
        let mut report = move |outcome| {
            if let Some(first) = first.take() {
                // Nobody may be waiting any more.
                let _ = first.send(outcome);
            }
        };
        let mut backoff = Backoff::new(self.config.reopen_steps);
        let mut taken_before = false;
        loop {
            let (end, was_up) = match self.open().await {
                None => return,
                Some(Ok(Opened::HeldElsewhere)) => {
                    tracing::info!(project = %self.project, "another listener holds the feed");
                    report(FirstAttempt::HeldElsewhere);
                    return;
                }
                Some(Ok(Opened::Taken(session))) => {
                    backoff.reset();
                    self.begin(session.epoch, taken_before).await;
                    taken_before = true;
                    report(FirstAttempt::Taken);
                    (self.carry(*session).await, true)
                }
                Some(Err(error)) => (End::Broken(error), false),
            };
            self.state.lock().epoch = 0;
            let End::Broken(error) = end else { return };
            report(FirstAttempt::Failed);
            if !self.pause(&error, was_up, &mut backoff).await {
                return;
            }
        }
    }

    /// None: stopped meanwhile.
    async fn open(&self) -> Option<Result<Opened, SessionError>> {
        let opening = async {
            // A failed acquire means that the semaphore is closed, which nobody does.
            let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
            let spare = self.connections.try_acquire();
            let opened = session::open(
                &self.dsn,
                self.project.as_str(),
                &self.config,
                spare.is_ok(),
                &self.tasks,
            )
            .await;
            opened.map(|opened| opened.holding(permit))
        };
        tokio::select! {
            opened = opening => Some(opened),
            () = self.tasks.cancelled() => None,
        }
    }

    async fn begin(&mut self, epoch: u64, again: bool) {
        tracing::info!(project = %self.project, epoch, "the feed is up");
        self.metrics.sessions.inc();
        self.publisher.begin_epoch(epoch);
        if again {
            self.state.lock().reconnects += 1;
            self.publisher.gap(GapReason::ListenerReconnect, 0, None).await;
        }
        self.publisher.up().await;
        self.note_position();
    }

    /// Carries one session to its end, and says `Down`.
    async fn carry(&mut self, session: Session) -> End {
        let Session {
            mut source,
            mut heart,
            permit: _permit,
            ..
        } = session;
        let watch = watch_heart(&mut heart, &self.project, &self.config, &self.metrics);
        let stopped = self.tasks.cancelled();
        let end = tokio::select! {
            error = watch => End::Broken(error),
            () = stopped => End::Stopped,
            end = forward(&mut source, &mut self.publisher, &self.project, &self.config, &self.metrics, &self.state) => end,
        };
        let reason = match &end {
            End::Stopped => DownReason::Shutdown,
            End::NoInterest => DownReason::NoInterest,
            End::Broken(_) => DownReason::ConnectionLost,
        };
        self.say_down(reason).await;
        if let End::NoInterest = end {
            tracing::info!(project = %self.project, "nobody is interested in the feed any more");
        }
        if !matches!(end, End::Broken(_)) {
            // After the last word, so that the next owner's first word comes later.
            heart.release().await;
        }
        end
    }

    async fn say_down(&mut self, reason: DownReason) {
        let farewell = async {
            self.publisher.down(reason).await;
            self.publisher.flush().await;
        };
        if timeout(FAREWELL_DEADLINE, farewell).await.is_err() {
            tracing::warn!(project = %self.project, "the bus did not take the feed's last word in time");
        }
    }

    /// Waits before the next attempt. False: there is to be none.
    async fn pause(&mut self, error: &SessionError, was_up: bool, backoff: &mut Backoff) -> bool {
        let (label, reason) = classify(error);
        self.metrics.failure(label);
        tracing::warn!(project = %self.project, %error, "the feed is down");
        if !was_up {
            self.say_down(reason).await;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = self.tasks.cancelled() => return false,
        }
        let state = self.state.lock();
        state.pinned || state.interest.elapsed() < self.config.linger
    }

    fn note_position(&self) {
        note_position(&self.state, &self.publisher);
    }
}

fn note_position(state: &Mutex<FeedState>, publisher: &Publisher) {
    let position = publisher.position();
    let mut state = state.lock();
    state.epoch = position.epoch;
    state.seq = position.seq;
}

/// Forwards until the source ends or nobody is interested any more.
async fn forward(
    source: &mut NotifySource,
    publisher: &mut Publisher,
    project: &ProjectId,
    config: &ListenerConfig,
    metrics: &ListenerMetrics,
    state: &Mutex<FeedState>,
) -> End {
    let mut beat = interval_at(Instant::now() + config.up_every, config.up_every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            item = source.next() => match item {
                Some(item) => pass(item, publisher, project, metrics).await,
                None => return End::Broken(SessionError::Ended),
            },
            _ = beat.tick() => {
                publisher.up().await;
                note_position(state, publisher);
                let state = state.lock();
                if !state.pinned && state.interest.elapsed() >= config.linger {
                    return End::NoInterest;
                }
            }
        }
    }
}

async fn pass(item: Item, publisher: &mut Publisher, project: &ProjectId, metrics: &ListenerMetrics) {
    let text = match item {
        Item::Lost(dropped) => return publisher.gap(GapReason::PublishBacklog, dropped, None).await,
        Item::Envelope(text) => text,
    };
    match envelope::decode(&text) {
        Ok(Message::Change(event)) => publisher.change(event).await,
        Ok(Message::Truncated(mark)) => publisher.truncated(mark).await,
        Ok(Message::TableChanged(mark)) => publisher.table_changed(mark).await,
        Ok(Message::Lost(mark)) => publisher.gap(GapReason::TriggerFailed, 1, named(mark)).await,
        // The source keeps these to itself.
        Ok(Message::Heartbeat(_)) => {}
        Err(error) => {
            metrics.malformed.inc();
            tracing::error!(%project, %error, "a notification on the feed's channel is no envelope of ours");
            publisher.gap(GapReason::TriggerFailed, 1, None).await;
        }
    }
}

/// A loss that names no table may be any table's.
fn named(mark: TableMark) -> Option<TableMark> {
    (mark.relid != 0).then_some(mark)
}

/// Ends with the reason why the session is to be given up.
async fn watch_heart(
    heart: &mut Heart,
    project: &ProjectId,
    config: &ListenerConfig,
    metrics: &ListenerMetrics,
) -> SessionError {
    loop {
        tokio::time::sleep(config.heartbeat_every).await;
        if let Err(error) = heart.beat().await {
            return error;
        }
        match heart.queue_usage().await {
            Ok(ratio) => {
                metrics.queue_usage(project, ratio);
                if ratio > QUEUE_USAGE_WARNING {
                    tracing::warn!(%project, ratio, "the server's notification queue fills: some session does not read");
                }
            }
            Err(error) => return error,
        }
    }
}

/// A metric's label, and what gateways are told.
fn classify(error: &SessionError) -> (&'static str, DownReason) {
    match error {
        SessionError::Connect(_) => ("connect", DownReason::DatabaseUnavailable),
        SessionError::TransactionPooler => ("transaction_pooler", DownReason::DatabaseUnavailable),
        SessionError::Standby => ("standby", DownReason::DatabaseUnavailable),
        SessionError::NotProvisioned(_) => ("not_provisioned", DownReason::NotProvisioned),
        SessionError::Refused(_) => ("refused", DownReason::DatabaseUnavailable),
        SessionError::Deadline(_) => ("deadline", DownReason::DatabaseUnavailable),
        SessionError::NoHeartbeat(_) => ("no_heartbeat", DownReason::ConnectionLost),
        SessionError::Ended => ("ended", DownReason::ConnectionLost),
    }
}
