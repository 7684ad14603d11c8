//! A project's key set on the network: fetched when it is first needed, again every now and then,
//! and once more when a token names a key that is not in it.
//!
//! Must never be made to hammer the endpoint: all who ask share one fetch, and after one that was
//! asked for none is asked for again for a while. Must never lose a good set to a bad answer; nor keep one for ever
//! that nobody confirms: whoever can keep us from the endpoint would keep a withdrawn key alive.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::catalog::TokenConfig;
use realtime_node::fetch::{self, FetchError, FetchLimits, FetchUrl};
use realtime_node::tasks::Tasks;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::keys::{self, Key, KeySetError, Origin};
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;

/// What a fetch that somebody asked for came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// The key set is as the endpoint had it after the question.
    Fetched,
    /// The endpoint gave no key set that can be used.
    Failed,
    /// The last fetch is too short a time ago.
    NotNow,
}

/// A project's key set. Cloning shares it.
#[derive(Clone)]
pub struct Jwks(Arc<Inner>);

struct Inner {
    project: ProjectId,
    url: FetchUrl,
    ca_file: Option<std::path::PathBuf>,
    limits: Arc<Limits>,
    metrics: GatewayMetrics,
    tasks: Tasks,
    state: Mutex<State>,
    /// The next fetch is due at another time than before.
    rescheduled: Notify,
    /// Told when the keys are others than before.
    changed: watch::Sender<u64>,
}

struct State {
    keys: Arc<[Key]>,
    /// When the last good answer came; `None`: never, or so long ago that it no longer counts.
    good_at: Option<Instant>,
    /// Failures since.
    failures: u32,
    /// Before this nobody's question starts a fetch.
    not_before: Instant,
    /// When the set is fetched without anybody asking; never before it was asked for.
    due: Option<Instant>,
    flight: Option<watch::Receiver<Option<Refresh>>>,
}

/// Why a key set could not be renewed. Shows neither address nor content.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the key set is not text")]
    Text,
    #[error(transparent)]
    Set(#[from] KeySetError),
}

impl Jwks {
    /// The key set that a project's tokens name, if they do. `changed` is told of other keys; the
    /// fetches are a group within `tasks`, which ends with the last clone of this.
    pub fn new(
        project: &ProjectId,
        tokens: &TokenConfig,
        limits: Arc<Limits>,
        metrics: GatewayMetrics,
        tasks: &Tasks,
        changed: watch::Sender<u64>,
    ) -> Option<Self> {
        let jwks = Self(Arc::new(Inner {
            project: project.clone(),
            url: tokens.jwks_url.clone()?,
            ca_file: tokens.jwks_ca_file.clone(),
            limits,
            metrics,
            tasks: tasks.child(),
            state: Mutex::new(State {
                keys: Arc::from([]),
                good_at: None,
                failures: 0,
                not_before: Instant::now(),
                due: None,
                flight: None,
            }),
            rescheduled: Notify::new(),
            changed,
        }));
        let group = jwks.0.tasks.clone();
        group.spawn("key set renewal", jwks.clone().renew());
        Some(jwks)
    }

    /// The keys as they were fetched last.
    pub fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.0.state.lock().keys)
    }

    /// Ends the renewal: the project has another key set, or none.
    pub fn end(&self) {
        self.0.tasks.cancel();
    }

    /// Fetches the set for somebody who misses a key, unless that was done a moment ago; whoever
    /// asks meanwhile waits for the same answer.
    pub async fn refresh(&self) -> Refresh {
        let mut flight = {
            let mut state = self.0.state.lock();
            match &state.flight {
                Some(flight) => flight.clone(),
                None if Instant::now() < state.not_before => return Refresh::NotNow,
                None => self.begin(&mut state, true),
            }
        };
        let landed = flight.wait_for(Option::is_some).await;
        landed
            .ok()
            .and_then(|outcome| *outcome)
            .unwrap_or(Refresh::Failed)
    }

    /// Fetches the set whenever it is due.
    async fn renew(self) {
        loop {
            let due = self.0.state.lock().due;
            tokio::select! {
                () = self.0.tasks.cancelled() => return,
                () = self.0.rescheduled.notified() => continue,
                () = due_at(due) => {}
            }
            let mut flight = {
                let mut state = self.0.state.lock();
                match &state.flight {
                    Some(flight) => flight.clone(),
                    None => self.begin(&mut state, false),
                }
            };
            // Its end reschedules; a fetch that ended without one ends the group too.
            let _ = flight.wait_for(Option::is_some).await;
        }
    }

    fn begin(&self, state: &mut State, asked: bool) -> watch::Receiver<Option<Refresh>> {
        let (landed, flight) = watch::channel(None);
        state.flight = Some(flight.clone());
        let (jwks, group) = (self.clone(), self.0.tasks.clone());
        group.clone().spawn("key set fetch", async move {
            // However it ends, the next may begin.
            let flying = Flying(jwks.clone());
            tokio::select! {
                () = group.cancelled() => {}
                keys = jwks.fetch() => {
                    let outcome = jwks.land(keys, asked);
                    drop(flying);
                    let _ = landed.send(Some(outcome));
                }
            }
        });
        flight
    }

    async fn fetch(&self) -> Result<Vec<Key>, RenewError> {
        let limits = &self.0.limits;
        let fetch_limits = FetchLimits {
            bytes_max: limits.jwks_bytes_max as usize,
            deadline: Duration::from_millis(limits.jwks_deadline_ms),
        };
        let body = fetch::get(&self.0.url, self.0.ca_file.as_deref(), fetch_limits).await?;
        let text = std::str::from_utf8(&body).map_err(|_| RenewError::Text)?;
        Ok(keys::parse(text, Origin::Url, limits.jwks_keys_max as usize)?)
    }

    fn land(&self, fetched: Result<Vec<Key>, RenewError>, asked: bool) -> Refresh {
        let cool_down = Duration::from_secs(self.0.limits.jwks_cool_down_seconds);
        let now = Instant::now();
        let mut state = self.0.state.lock();
        let outcome = match fetched {
            Ok(keys) => {
                // The first set is no answer to a missing key: a key that came since may be asked for.
                if asked && state.good_at.is_some() {
                    state.not_before = now + cool_down;
                }
                if state.failures > 0 {
                    tracing::info!(project = %self.0.project, "the key set can be fetched again");
                }
                (state.good_at, state.failures) = (Some(now), 0);
                let ttl = Duration::from_secs(self.0.limits.jwks_ttl_seconds);
                state.due = Some(now + ttl.min(self.stale_after()));
                self.replace(&mut state, keys);
                Refresh::Fetched
            }
            Err(error) => {
                let (project, host) = (&self.0.project, self.0.url.host());
                tracing::warn!(%project, host, %error, "the key set cannot be fetched, the last good one stays for the time being");
                // A second, two, four, up to the cool-down.
                let wait = Duration::from_secs(1 << state.failures.min(10)).min(cool_down);
                state.failures = state.failures.saturating_add(1);
                state.not_before = state.not_before.max(now + wait);
                let stale_at = state.good_at.map(|good_at| good_at + self.stale_after());
                if stale_at.is_some_and(|stale_at| now >= stale_at) {
                    tracing::error!(%project, host, "the key set could not be fetched for too long: its keys no longer count");
                    state.good_at = None;
                    self.replace(&mut state, Vec::new());
                }
                state.due = match (state.good_at, stale_at) {
                    (Some(_), Some(stale_at)) => Some((now + wait).min(stale_at)),
                    _ => None,
                };
                Refresh::Failed
            }
        };
        drop(state);
        self.0.metrics.key_set_fetch(outcome == Refresh::Fetched);
        self.0.rescheduled.notify_one();
        outcome
    }

    /// How long keys count that cannot be fetched again.
    fn stale_after(&self) -> Duration {
        Duration::from_secs(self.0.limits.jwks_stale_seconds_max)
    }

    /// Puts other keys in place; the same ones are left, so that nobody looks at them anew.
    fn replace(&self, state: &mut State, keys: Vec<Key>) {
        if *state.keys != *keys {
            state.keys = keys.into();
            self.0.changed.send_modify(|changes| *changes += 1);
        }
    }
}

/// A fetch on its way.
struct Flying(Jwks);

impl Drop for Flying {
    fn drop(&mut self) {
        self.0.0.state.lock().flight = None;
    }
}

async fn due_at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jwks({})", self.0.project)
    }
}
