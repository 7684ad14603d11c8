//! The way of a change from its match to the outboxes: at once for service_role, through the
//! gate for everybody else, in the feed's order for each channel.
//!
//! Must never deliver without a verdict, and must turn every loss into a gap notice to whoever it
//! may concern: after the match, that is every channel with a binding on the table, matched or
//! not, because a notice to the matched alone would tell the values of rows that they may not see.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::Claims;
use realtime_core::code::{GapReason, Hint};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::verdict::{DropReason, Grant, Readable, Verdict};
use realtime_core::view::NoView;
use rustc_hash::FxHashSet;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::encode::Encoder;
use super::gate::{Verdicts, judge};
use super::hint_text;
use super::subscribers::{Match, Serial, Subscriber, Subscribers};
use crate::authz::{Authz, Judgement};
use crate::metrics::GatewayMetrics;
use crate::session::outbox::Pushed;

/// Events of one project that are judged at the same time; further ones wait in order.
const IN_FLIGHT_MAX: usize = 32;

/// How long a gap notice waits for further losses of the same burst.
const GAP_WINDOW: Duration = Duration::from_millis(250);

/// The same while losses go on and nothing is delivered in between.
const GAP_WINDOW_LASTING: Duration = Duration::from_millis(1_500);

/// How often one channel is told of a policy's error.
const POLICY_HINT_EVERY: Duration = Duration::from_secs(60);

/// The two lanes of one project.
pub struct Lanes {
    project: ProjectId,
    authz: Authz,
    gate_events_max: usize,
    gate_deadline: Duration,
    metrics: GatewayMetrics,
    /// The channels.
    pub subscribers: Subscribers,
    gated: FuturesOrdered<BoxFuture<'static, Item>>,
    in_flight: Arc<Semaphore>,
    /// Losses behind the last event in the gate.
    tail: Option<(Scope, GapReason)>,
    /// What waits in the gate must come down to so many before further events are taken.
    dropping_above: Option<usize>,
    gap_due: Option<Instant>,
    gap_window: Duration,
    /// Tables whose gated channels all owe a notice already: a lasting outage costs one walk
    /// over a table's channels for each notice, not for each event.
    noted: FxHashSet<TableRef>,
}

/// Whom a loss may concern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every channel.
    All,
    /// Channels with a binding on one of these tables.
    Tables(BTreeSet<TableRef>),
}

/// Something that leaves the gate.
pub enum Item {
    /// A judged event.
    Event {
        /// The event.
        event: Arc<ChangeEvent>,
        /// Whom it concerns.
        matches: Vec<Match>,
        /// What they may see.
        verdicts: Verdicts,
        /// It was not asked about: it had waited for too long, for a place among these.
        late: Option<Arc<Semaphore>>,
    },
    /// Events are missing at this place.
    Gap(Scope, GapReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Direct,
    Gated,
}

impl Lanes {
    /// Lanes without channels.
    pub fn new(
        project: ProjectId,
        authz: Authz,
        gate_events_max: usize,
        gate_deadline: Duration,
        metrics: GatewayMetrics,
    ) -> Self {
        Self {
            project,
            authz,
            gate_events_max,
            gate_deadline,
            metrics,
            subscribers: Subscribers::default(),
            gated: FuturesOrdered::new(),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            tail: None,
            dropping_above: None,
            gap_due: None,
            gap_window: GAP_WINDOW,
            noted: FxHashSet::default(),
        }
    }

    /// Takes an event. `facts` is the last change of tables that was heard of.
    pub fn route(&mut self, event: &Arc<ChangeEvent>, facts: Position) {
        let matches = self.subscribers.matches(event);
        let is_service = |one: &Match| {
            self.subscribers
                .get(one.serial)
                .is_some_and(|subscriber| lane_of(subscriber) == Lane::Direct)
        };
        let (direct, gated): (Vec<Match>, Vec<Match>) = matches.into_iter().partition(is_service);
        if !direct.is_empty() {
            self.deliver(event, &direct, Lane::Direct, |subscriber| {
                // No other role has this verdict: whoever were here by mistake would get nothing.
                let verdict = Verdict::for_service(subscriber.claims.role());
                let verdict = verdict.unwrap_or(Verdict::Drop(DropReason::AuthzUnavailable));
                Judgement {
                    verdict,
                    sqlstate: None,
                }
            });
        }
        if !gated.is_empty() {
            self.enter_gate(event, gated, facts);
        }
    }

    fn enter_gate(&mut self, event: &Arc<ChangeEvent>, matches: Vec<Match>, facts: Position) {
        if self.dropping_above.is_some() || self.gated.len() >= self.gate_events_max {
            self.dropping_above.get_or_insert(self.gate_events_max / 2);
            self.metrics.drops(DropReasonLabel::GateBacklog, matches.len());
            self.lose_behind(Scope::table(&event.table), GapReason::GateBacklog);
            return;
        }
        if let Some((scope, reason)) = self.tail.take() {
            self.gated
                .push_back(Box::pin(async move { Item::Gap(scope, reason) }));
        }
        let subjects = self.subjects(&matches);
        let (authz, project) = (self.authz.clone(), self.project.clone());
        let (in_flight, event) = (Arc::clone(&self.in_flight), Arc::clone(event));
        let now = Instant::now();
        // Half of the time is the verdict's: asked later, most would come too late, and asking would
        // keep those behind waiting as long, for ever.
        let (ask_until, until) = (now + self.gate_deadline / 2, now + self.gate_deadline);
        self.gated.push_back(Box::pin(async move {
            let permit = tokio::time::timeout_at(ask_until, in_flight.acquire()).await;
            let (verdicts, late) = match permit {
                Ok(Ok(_permit)) => {
                    let left = until.duration_since(Instant::now());
                    let judged = judge(&authz, &project, &event, &subjects, facts, left).await;
                    (judged, None)
                }
                _ => {
                    let dropped = Verdicts::all_dropped(&subjects, DropReason::Deadline);
                    (dropped, Some(Arc::clone(&in_flight)))
                }
            };
            Item::Event {
                event,
                matches,
                verdicts,
                late,
            }
        }));
    }

    /// The distinct identities among matches.
    fn subjects(&self, matches: &[Match]) -> Vec<Claims> {
        let mut seen = FxHashSet::default();
        let claims = matches
            .iter()
            .filter_map(|one| Some(&self.subscribers.get(one.serial)?.claims));
        claims
            .filter(|claims| seen.insert(claims.fingerprint()))
            .cloned()
            .collect()
    }

    /// The next thing that leaves the gate, in the order in which it came; waits while there is none.
    pub async fn next(&mut self) -> Item {
        match self.gated.next().await {
            Some(item) => item,
            None => std::future::pending().await,
        }
    }

    /// How many events are in the gate.
    pub fn waiting(&self) -> usize {
        self.gated.len()
    }

    /// Delivers what left the gate.
    pub fn release(&mut self, item: Item) {
        match item {
            Item::Event {
                event,
                matches,
                verdicts,
                late,
            } => {
                self.deliver(&event, &matches, Lane::Gated, |subscriber| {
                    verdicts.of(subscriber.claims.fingerprint())
                });
                // Those that gave up with an earlier one are no reason to give up what came since.
                if late.is_some_and(|places| Arc::ptr_eq(&places, &self.in_flight)) {
                    self.give_up_waiting();
                }
            }
            Item::Gap(scope, reason) => self.note(&scope, Lane::Gated, reason),
        }
        if self.dropping_above.is_some_and(|most| self.gated.len() <= most) {
            self.dropping_above = None;
        }
        if self.gated.is_empty()
            && let Some((scope, reason)) = self.tail.take()
        {
            self.note(&scope, Lane::Gated, reason);
        }
    }

    /// More comes than can be judged: all that waits is dropped together, as one hole, and new events
    /// are taken once those that are being judged are nearly through. Whoever comes then is judged in time.
    fn give_up_waiting(&mut self) {
        self.in_flight.close();
        self.in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        self.dropping_above = Some(IN_FLIGHT_MAX / 2);
    }

    /// Events of the feed are missing here, before whatever comes next.
    pub fn lose(&mut self, scope: Scope, reason: GapReason) {
        self.note(&scope, Lane::Direct, reason);
        if self.gated.is_empty() {
            self.note(&scope, Lane::Gated, reason);
        } else {
            self.lose_behind(scope, reason);
        }
    }

    fn lose_behind(&mut self, scope: Scope, reason: GapReason) {
        match &mut self.tail {
            Some((known, _)) => known.merge(scope),
            none => *none = Some((scope, reason)),
        }
    }

    /// Owes these channels a gap notice.
    pub fn owe(&mut self, serials: impl IntoIterator<Item = Serial>, reason: GapReason) {
        for serial in serials {
            let Some(subscriber) = self.subscribers.get_mut(serial) else {
                continue;
            };
            if subscriber.live {
                subscriber.gap.get_or_insert(reason);
                self.gap_due
                    .get_or_insert_with(|| Instant::now() + self.gap_window);
            }
        }
    }

    /// The channels are not the same, or not as live, as when losses were noted last.
    pub fn channels_changed(&mut self) {
        self.noted.clear();
    }

    fn note(&mut self, scope: &Scope, lane: Lane, reason: GapReason) {
        let serials: BTreeSet<Serial> = match scope {
            Scope::All => self.subscribers.serials().into_iter().collect(),
            Scope::Tables(tables) => {
                let fresh = |table: &&TableRef| lane == Lane::Direct || self.noted.insert((*table).clone());
                let fresh: Vec<&TableRef> = tables.iter().filter(fresh).collect();
                fresh
                    .into_iter()
                    .flat_map(|table| self.subscribers.on_table(table))
                    .collect()
            }
        };
        let in_lane = |serial: &Serial| {
            self.subscribers
                .get(*serial)
                .is_some_and(|subscriber| lane_of(subscriber) == lane)
        };
        let serials: Vec<Serial> = serials.into_iter().filter(in_lane).collect();
        self.owe(serials, reason);
    }

    /// A table was emptied: service_role's channels on it are told, in the feed's order. Others are not: it
    /// would tell them of rows that they may not see.
    pub fn truncated(&mut self, table: &TableRef) {
        let names = [&table.schema, &table.table].map(|name| serde_json::Value::from(&**name).to_string());
        let extra = [("schema", names[0].as_str()), ("table", names[1].as_str())];
        let mut changed_identity = Vec::new();
        for serial in self.subscribers.on_table(table) {
            let Some(subscriber) = self.subscribers.get_mut(serial) else {
                continue;
            };
            if lane_of(subscriber) != Lane::Direct {
                continue;
            }
            if send_gap(subscriber, &self.metrics) {
                self.noted.clear();
            }
            let text = hint_text(Hint::Truncated);
            let frame = subscriber.tag.hint(Hint::Truncated, None, text, &extra);
            let pushed = subscriber
                .outbox
                .push_data(&subscriber.tag, subscriber.generation, frame);
            match pushed {
                Pushed::Queued | Pushed::Closed => {}
                Pushed::Dropped => self.metrics.drops(DropReasonLabel::SlowReader, 1),
                Pushed::Stale => changed_identity.push(serial),
            }
        }
        self.owe(changed_identity, GapReason::TokenChanged);
    }

    /// When [`Lanes::flush_gaps`] is due.
    pub fn gap_due(&self) -> Option<Instant> {
        self.gap_due
    }

    /// Makes the notices due that a subscription was added with.
    pub fn gap_on_subscribe(&mut self) {
        self.gap_due
            .get_or_insert_with(|| Instant::now() + self.gap_window);
    }

    /// Sends every gap notice that is owed.
    pub fn flush_gaps(&mut self) {
        self.gap_due = None;
        self.gap_window = GAP_WINDOW_LASTING;
        self.noted.clear();
        for subscriber in self.subscribers.iter_mut() {
            send_gap(subscriber, &self.metrics);
        }
    }

    fn deliver(
        &mut self,
        event: &ChangeEvent,
        matches: &[Match],
        lane: Lane,
        judgement: impl Fn(&Subscriber) -> Judgement,
    ) {
        let mut encoder = Encoder::new(event);
        let mut loss = None;
        let mut changed_identity = Vec::new();
        let mut delivered = 0;
        for one in matches {
            let Some(subscriber) = self.subscribers.get_mut(one.serial) else {
                continue;
            };
            if subscriber.generation != one.generation {
                changed_identity.push(one.serial);
                continue;
            }
            let judgement = judgement(subscriber);
            let readable = match &judgement.verdict {
                Verdict::Deliver(Grant {
                    readable: Readable::Only(columns),
                    ..
                }) => Some(&**columns),
                _ => None,
            };
            for shown in &subscriber.shown(one, readable) {
                let error = match encoder.frame(&judgement.verdict, &subscriber.tag, shown) {
                    Ok(frame) => {
                        if send_gap(subscriber, &self.metrics) {
                            self.noted.clear();
                        }
                        match subscriber
                            .outbox
                            .push_data(&subscriber.tag, subscriber.generation, frame)
                        {
                            Pushed::Queued => delivered += 1,
                            Pushed::Dropped => self.metrics.drops(DropReasonLabel::SlowReader, 1),
                            // What its session decided of it is still on its way here.
                            Pushed::Stale => changed_identity.push(one.serial),
                            Pushed::Closed => {}
                        }
                        continue;
                    }
                    Err(error) => error,
                };
                match (error, &judgement.verdict) {
                    (NoView::Row(_), _) => {
                        self.metrics
                            .drops(DropReasonLabel::Verdict(DropReason::ImageUnreadable), 1);
                        loss = loss.or(Some(GapReason::RowUnreadable));
                    }
                    (NoView::Dropped, Verdict::Deliver(_)) => {}
                    (NoView::Dropped, Verdict::Drop(reason)) => {
                        self.metrics.drops(DropReasonLabel::Verdict(*reason), 1);
                        loss = loss.or_else(|| gap_reason(*reason));
                        // Behind a filter the hint would tell the values of a row that nobody judged.
                        if *reason == DropReason::PolicyError && one.unfiltered {
                            tell_policy_error(subscriber, judgement.sqlstate.as_deref());
                        }
                    }
                }
                // So it is with every other selection.
                break;
            }
        }
        if delivered > 0 {
            self.gap_window = GAP_WINDOW;
            self.metrics.delivered(event, delivered, encoder.made());
        }
        self.owe(changed_identity, GapReason::TokenChanged);
        if let Some(reason) = loss {
            self.note(&Scope::table(&event.table), lane, reason);
        }
    }
}

/// Why a delivery did not take place, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReasonLabel {
    /// By verdict, or for want of one.
    Verdict(DropReason),
    /// Too many events waited for a verdict.
    GateBacklog,
    /// The socket's reader is slow.
    SlowReader,
}

impl DropReasonLabel {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verdict(reason) => reason.as_str(),
            Self::GateBacklog => GapReason::GateBacklog.as_str(),
            Self::SlowReader => GapReason::SlowReader.as_str(),
        }
    }
}

impl Scope {
    /// One table.
    pub fn table(table: &TableRef) -> Self {
        Self::Tables(BTreeSet::from([table.clone()]))
    }

    fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Tables(tables), Self::Tables(more)) => tables.extend(more),
            (_, Self::All) => *self = Self::All,
            (Self::All, _) => {}
        }
    }
}

fn lane_of(subscriber: &Subscriber) -> Lane {
    if subscriber.claims.role().is_service() {
        Lane::Direct
    } else {
        Lane::Gated
    }
}

/// Sends the notice that a channel is owed. `false`: it is owed none.
fn send_gap(subscriber: &mut Subscriber, metrics: &GatewayMetrics) -> bool {
    let Some(reason) = subscriber.gap.take() else {
        return false;
    };
    metrics.gap(reason);
    subscriber.outbox.push_gap(&subscriber.tag, reason);
    true
}

fn tell_policy_error(subscriber: &mut Subscriber, sqlstate: Option<&str>) {
    let now = Instant::now();
    if subscriber
        .policy_hint_at
        .is_some_and(|at| now.duration_since(at) < POLICY_HINT_EVERY)
    {
        return;
    }
    subscriber.policy_hint_at = Some(now);
    let sqlstate = sqlstate.map(|state| format!("\"{state}\""));
    let extra: Vec<(&str, &str)> = sqlstate
        .iter()
        .map(|state| ("sqlstate", state.as_str()))
        .collect();
    let hint = subscriber
        .tag
        .hint(Hint::PolicyError, None, hint_text(Hint::PolicyError), &extra);
    subscriber.outbox.push_control(hint);
}

/// The reason of the gap notice that a drop becomes; `None` where it is no loss.
fn gap_reason(reason: DropReason) -> Option<GapReason> {
    let gap = match reason {
        DropReason::PoolSaturated => GapReason::PoolSaturated,
        DropReason::Deadline => GapReason::Deadline,
        DropReason::ImageUnreadable => GapReason::RowUnreadable,
        _ => GapReason::AuthzUnavailable,
    };
    reason.is_loss().then_some(gap)
}

#[cfg(test)]
mod tests;
