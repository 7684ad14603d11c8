//! The one task that follows a project's feed: what comes from the bus, what sessions want, and
//! what leaves the gate, each in its order.
//!
//! Must never wait for a session, nor for the gate, while the bus has something; and must never
//! match an event by facts that an earlier event has outdated.

mod binder;
mod intake;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use prost::Message as _;
use realtime_core::change::{ChangeEvent, Position};
use realtime_core::code::{GapReason, Hint};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::subject::{self, Kind};
use realtime_node::backoff::jittered;
use realtime_node::bus::{BusMessage, Delivery};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::feed_status::{Kind as Status, TableChanged};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::attach::{
    ATTACH_EVERY, ATTACH_SPREAD, Attached, BEAT_AGE_MAX, INTEREST_EVERY, attach, tell_interest,
};
use super::lanes::{Lanes, Scope};
use super::owners::Owners;
use super::registry::{FeedPage, Shared};
use super::tables::Tables;
use super::track::{Continuity, Track};
use super::{Command, Subscription, hint_text};
use binder::{Binder, Facts};
use intake::{BusEvent, BusState};

/// Commands that wait for a feed; beyond that sessions wait.
pub const COMMANDS_MAX: usize = 1_024;

/// How soon a bus that refused is asked again, less jitter.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// A project's feed in this gateway.
pub struct Feed {
    project: ProjectId,
    shared: Shared,
    lanes: Lanes,
    commands: mpsc::Receiver<Command>,
    bus: BusState,
    track: Track,
    health: Health,
    binder: Binder,
    /// An event that waits for facts about its table, and nothing behind it is taken meanwhile.
    held: Option<(Arc<ChangeEvent>, BoxFuture<'static, Facts>)>,
    page: Arc<FeedPage>,
}

/// Whether the feed is alive, and the wishes that keep it so.
struct Health {
    /// `Up` was seen on the present subscription, and its beat is not overdue.
    live: bool,
    /// The feed was interrupted: with the next `Up` everybody is told again that it is live.
    announce: bool,
    deferred: bool,
    beat_at: Instant,
    /// Who said `Up`; `None` once its silence was acted on.
    owner: Option<Box<str>>,
    attach_at: Instant,
    attaching: Option<BoxFuture<'static, Attached>>,
    interest_at: Instant,
    telling: Option<BoxFuture<'static, ()>>,
    unused_since: Option<Instant>,
}

impl Feed {
    /// A feed that nobody follows yet.
    pub fn new(
        project: ProjectId,
        shared: Shared,
        commands: mpsc::Receiver<Command>,
        page: Arc<FeedPage>,
    ) -> Self {
        let now = Instant::now();
        let lanes = Lanes::new(
            project.clone(),
            shared.authz.clone(),
            shared.limits.gate_events_max as usize,
            shared.limits.gate_deadline(),
            shared.metrics.clone(),
        );
        let bus = BusState::open(&shared, &project, Duration::ZERO);
        Self {
            binder: Binder::new(project.clone(), shared.tables.clone()),
            project,
            shared,
            lanes,
            commands,
            bus,
            track: Track::default(),
            health: Health::new(now),
            held: None,
            page,
        }
    }

    /// Follows the feed until nobody has wanted it for the linger time, or the process stops.
    pub async fn run(mut self, tasks: Tasks) {
        let stop = tasks.cancelled();
        tokio::pin!(stop);
        loop {
            let due = self.next_due();
            tokio::select! {
                () = &mut stop => break,
                Some(command) = self.commands.recv() => self.on_command(command),
                item = self.lanes.next() => self.lanes.release(item),
                facts = held_facts(&mut self.held) => self.on_facts(facts),
                delivery = self.bus.next(), if self.held.is_none() => self.on_bus(delivery),
                attached = optional(&mut self.health.attaching) => self.on_attached(attached),
                () = optional(&mut self.health.telling) => self.health.telling = None,
                () = tokio::time::sleep_until(due) => {
                    if self.on_time() {
                        break;
                    }
                }
            }
            self.show();
        }
        self.shared.tables.forget(&self.project);
        if self.health.deferred {
            self.shared.metrics.feeds_deferred.dec();
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Subscribe(subscription) => self.on_subscribe(*subscription),
            Command::Identify {
                subscriber,
                claims,
                generation,
            } => {
                let subscriber = self.lanes.subscribers.identify(subscriber, claims, generation);
                let Some(subscriber) = subscriber else { return };
                // What was decided for the old identity and was not sent yet is not sent any more.
                if subscriber.outbox.purge(subscriber.tag.key) > 0 {
                    self.shared.metrics.gap(GapReason::TokenChanged);
                    subscriber
                        .outbox
                        .push_gap(&subscriber.tag, GapReason::TokenChanged);
                }
                if subscriber.live {
                    subscriber.mail.live(subscriber.id.channel, generation);
                }
            }
            // The session has shut its outbox to both already.
            Command::Suspend(subscriber) => self.lanes.subscribers.suspend(subscriber),
            Command::Unsubscribe(subscriber) => {
                self.lanes.subscribers.remove(subscriber);
            }
        }
        self.lanes.channels_changed();
        let unused = self.lanes.subscribers.is_empty();
        self.health.unused_since = unused.then(|| self.health.unused_since.unwrap_or_else(Instant::now));
    }

    fn on_subscribe(&mut self, subscription: Subscription) {
        self.binder.on_subscribe(&subscription);
        let serial = self.lanes.subscribers.insert(subscription);
        let Some(subscriber) = self.lanes.subscribers.get_mut(serial) else {
            return;
        };
        if self.health.live {
            subscriber.live = true;
            subscriber.mail.live(subscriber.id.channel, subscriber.generation);
        } else if self.health.deferred {
            tell_deferred(subscriber);
        }
        if subscriber.gap.is_some() {
            self.lanes.gap_on_subscribe();
        }
    }

    fn on_bus(&mut self, delivery: BusEvent) {
        match delivery {
            BusEvent::Opened(subscription) => {
                self.bus = BusState::Open(subscription);
                self.health.attach_at = Instant::now();
                self.health.interest_at = Instant::now();
            }
            BusEvent::Closed => {
                if matches!(self.bus, BusState::Open(_)) {
                    // What is published meanwhile is lost, and so is the knowledge of being live.
                    self.on_lost();
                    self.health.live = false;
                    self.health.announce = true;
                }
                self.bus = BusState::open(&self.shared, &self.project, REOPEN_AFTER);
            }
            BusEvent::Delivery(Delivery::Lost(_)) => self.on_lost(),
            BusEvent::Delivery(Delivery::Message(message)) => {
                match subject::kind(&self.project, &message.subject) {
                    Kind::Change => self.on_change_message(&message),
                    Kind::Control => self.on_status_message(&message),
                    Kind::Other => {}
                }
            }
        }
    }

    fn on_lost(&mut self) {
        self.track.lost();
        self.binder.doubt();
        self.lanes.lose(Scope::All, GapReason::BusOverflow);
    }

    fn on_change_message(&mut self, message: &BusMessage) {
        let event = v1::ChangeEvent::decode(message.body.clone()).ok();
        let event = event.and_then(|event| ChangeEvent::try_from(event).ok());
        let Some(event) = event else {
            self.shared.metrics.events_malformed.inc();
            return;
        };
        if !self.reach(event.position, GapReason::FeedInterrupted) {
            return;
        }
        self.shared.metrics.events.inc();
        let event = Arc::new(event);
        match self.binder.look_up(&event, &self.lanes.subscribers) {
            Some(facts) => self.held = Some((event, facts)),
            None => self.route(&event),
        }
    }

    /// The facts that an event waited for have come, or the time for them is over.
    fn on_facts(&mut self, facts: Facts) {
        let Some((event, _)) = self.held.take() else {
            return;
        };
        let rebound = self.binder.bind(&event, &facts, &mut self.lanes.subscribers);
        for (serial, binding) in rebound.outdated {
            let Some(subscriber) = self.lanes.subscribers.get(serial) else {
                continue;
            };
            let hint = Hint::FilterOutdated;
            let frame = subscriber.tag.hint(hint, Some(binding), hint_text(hint), &[]);
            subscriber.outbox.push_control(frame);
        }
        self.route(&event);
    }

    fn route(&mut self, event: &Arc<ChangeEvent>) {
        let unjudged = self.binder.without_facts(&event.table);
        self.lanes.owe(unjudged, GapReason::FactsUnavailable);
        self.lanes
            .route(event, self.shared.tables.changed_at(&self.project));
    }

    fn on_status_message(&mut self, message: &BusMessage) {
        let status = v1::FeedStatus::decode(message.body.clone()).ok();
        let parts = status.and_then(|status| Some((status.kind?, status.position?.into(), status.owner)));
        let Some((kind, position, owner)) = parts else {
            self.shared.metrics.events_malformed.inc();
            return;
        };
        match kind {
            Status::Up(_) => self.on_up(position, owner.into()),
            Status::Down(_) => self.on_down(position),
            Status::Gap(gap) => {
                let reason = GapReason::parse(&gap.reason).unwrap_or(GapReason::FeedInterrupted);
                let all = gap.schema.is_empty() && gap.table.is_empty();
                if self.reach(position, reason) {
                    let table = TableRef::new(gap.schema, gap.table);
                    self.lanes
                        .lose(if all { Scope::All } else { Scope::table(&table) }, reason);
                }
            }
            Status::TableChanged(changed) => {
                if self.reach(position, GapReason::FeedInterrupted) {
                    self.on_table_changed(changed, position);
                }
            }
            Status::Truncated(truncated) => {
                if self.reach(position, GapReason::FeedInterrupted) {
                    self.lanes
                        .truncated(&TableRef::new(truncated.schema, truncated.table));
                }
            }
        }
    }

    fn on_table_changed(&mut self, changed: TableChanged, position: Position) {
        self.shared.tables.changed(&self.project, position);
        if changed.relid == 0 {
            self.binder.changed_all();
        } else {
            self.binder.changed(&TableRef::new(changed.schema, changed.table));
        }
    }

    /// Takes note of a message's place. `false`: it is to be ignored.
    fn reach(&mut self, position: Position, reason: GapReason) -> bool {
        let epoch = self.track.epoch();
        let continuity = self.track.message(position);
        if continuity == Continuity::Stale {
            return false;
        }
        self.health.announce |= epoch.is_some_and(|epoch| epoch != position.epoch);
        self.after(continuity, position, reason);
        true
    }

    /// What follows from a hole: it is announced, and tables may have changed within it.
    fn after(&mut self, continuity: Continuity, position: Position, reason: GapReason) {
        if continuity == Continuity::Hole {
            self.lanes.lose(Scope::All, reason);
            self.binder.doubt();
        }
        if self.binder.settle_doubt() {
            self.shared.tables.changed(&self.project, position);
        }
    }

    fn on_up(&mut self, last_used: Position, owner: Box<str>) {
        let epoch = self.track.epoch();
        let was_down = self.track.is_down();
        let continuity = self.track.up(last_used);
        if continuity == Continuity::Stale {
            return;
        }
        if epoch.is_none() {
            // What was looked up before the feed was followed may be outdated by what was not heard.
            self.binder.doubt();
        }
        self.after(continuity, last_used, GapReason::FeedInterrupted);
        let announce = std::mem::take(&mut self.health.announce)
            || was_down
            || epoch.is_some_and(|epoch| epoch != last_used.epoch);
        self.health.beat_at = Instant::now();
        self.health.owner = Some(owner);
        self.health.live = true;
        self.lanes.channels_changed();
        self.set_deferred(false);
        for subscriber in self.lanes.subscribers.iter_mut() {
            if announce || !subscriber.live {
                subscriber.live = true;
                subscriber.mail.live(subscriber.id.channel, subscriber.generation);
            }
        }
    }

    fn on_down(&mut self, last_used: Position) {
        let continuity = self.track.down(last_used);
        if continuity == Continuity::Stale {
            return;
        }
        self.after(continuity, last_used, GapReason::FeedInterrupted);
        self.health.live = false;
        self.health.attach_at = Instant::now() + jittered(REOPEN_AFTER);
    }

    fn on_attached(&mut self, attached: Attached) {
        self.health.attaching = None;
        self.health.attach_at = Instant::now() + jittered(ATTACH_EVERY);
        match attached {
            Attached::Soon => self.set_deferred(false),
            Attached::Deferred => self.set_deferred(true),
            Attached::UnknownProject => {
                tracing::warn!(project = %self.project, "no listener knows the project");
            }
            Attached::Failed => {}
        }
    }

    fn set_deferred(&mut self, deferred: bool) {
        if self.health.deferred != deferred {
            self.health.deferred = deferred;
            self.shared
                .metrics
                .feeds_deferred
                .inc_by(if deferred { 1 } else { -1 });
        }
        for subscriber in self.lanes.subscribers.iter_mut() {
            if !deferred {
                subscriber.deferred_told = false;
            } else if !self.health.live {
                tell_deferred(subscriber);
            }
        }
    }

    /// When time alone next asks for something.
    fn next_due(&self) -> Instant {
        let health = &self.health;
        let mut due = health.interest_at;
        if health.live {
            due = due.min(health.overdue_at(&self.shared.owners));
        } else if health.attaching.is_none() {
            due = due.min(health.attach_at);
        }
        let linger = health
            .unused_since
            .map(|since| since + self.shared.limits.feed_linger());
        [self.lanes.gap_due(), linger]
            .into_iter()
            .flatten()
            .fold(due, Instant::min)
    }

    /// Does what is due. `true`: the feed is over.
    fn on_time(&mut self) -> bool {
        let now = Instant::now();
        if self.lanes.gap_due().is_some_and(|due| now >= due) {
            self.lanes.flush_gaps();
        }
        if self.health.live && now >= self.health.overdue_at(&self.shared.owners) {
            self.health.live = false;
            self.health.owner = None;
            // All feeds of a dead listener come due at once.
            self.health.attach_at = now + ATTACH_SPREAD.mul_f64(fastrand::f64());
        }
        let open = matches!(self.bus, BusState::Open(_));
        if now >= self.health.attach_at && !self.health.live {
            self.health.attach_at = now + jittered(ATTACH_EVERY);
            if open && self.health.attaching.is_none() {
                let (bus, project) = (self.shared.bus.clone(), self.project.clone());
                self.health.attaching = Some(Box::pin(attach(bus, project, self.shared.gateway.clone())));
            }
        }
        if now >= self.health.interest_at {
            self.health.interest_at = now + jittered(INTEREST_EVERY);
            let sessions = self.lanes.subscribers.len();
            if open && sessions > 0 {
                let (bus, project) = (self.shared.bus.clone(), self.project.clone());
                let telling = tell_interest(bus, project, self.shared.gateway.clone(), sessions);
                self.health.telling = Some(Box::pin(telling));
            }
        }
        let linger = self.shared.limits.feed_linger();
        let unused = self
            .health
            .unused_since
            .is_some_and(|since| now >= since + linger);
        if unused && self.shared.end_if_unused(&self.project) {
            return true;
        }
        if unused {
            self.health.unused_since = Some(now);
        }
        false
    }

    fn show(&self) {
        self.page.show(
            self.health.live,
            self.health.deferred,
            self.lanes.subscribers.len(),
            self.lanes.waiting(),
        );
    }
}

impl Health {
    /// When the feed's owner must be looked for, unless it is heard of before.
    fn overdue_at(&self, owners: &Owners) -> Instant {
        let silent_at = self.owner.as_deref().and_then(|owner| owners.silent_at(owner));
        let beat_overdue_at = self.beat_at + BEAT_AGE_MAX;
        silent_at.map_or(beat_overdue_at, |silent_at| silent_at.min(beat_overdue_at))
    }

    fn new(now: Instant) -> Self {
        Self {
            live: false,
            announce: false,
            deferred: false,
            beat_at: now,
            owner: None,
            attach_at: now,
            attaching: None,
            interest_at: now,
            telling: None,
            unused_since: Some(now),
        }
    }
}

/// The answer that an event waits for; pending where none waits.
async fn held_facts(held: &mut Option<(Arc<ChangeEvent>, BoxFuture<'static, Facts>)>) -> Facts {
    match held {
        Some((_, facts)) => facts.await,
        None => std::future::pending().await,
    }
}

/// A future that may not be there; pending where it is not.
async fn optional<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Tells a channel, once, that its project waits for capacity.
fn tell_deferred(subscriber: &mut super::subscribers::Subscriber) {
    if !std::mem::replace(&mut subscriber.deferred_told, true) {
        let frame = subscriber
            .tag
            .hint(Hint::Deferred, None, hint_text(Hint::Deferred), &[]);
        subscriber.outbox.push_control(frame);
    }
}

#[cfg(test)]
mod tests;
