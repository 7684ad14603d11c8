//! The channels that follow one project's feed, and which of them an event concerns.
//!
//! Must never let an answer that was asked for one identity reach another: every match names
//! the identity that it was made under.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use realtime_core::change::ChangeEvent;
use realtime_core::claims::{Claims, Role};
use realtime_core::code::{GapReason, Hint};
use realtime_core::id::{BindingId, TableRef};
use realtime_core::index::{BindingSpec, SubscriptionIndex};
use realtime_core::table::TableFacts;
use realtime_core::view::Selection;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::patterns::Hold;
use super::prepare::{bind, select};
use super::{PreparedBinding, PreparedFilter, SubscriberId, Subscription};
use crate::ids::ChannelIds;
use crate::session::channel::ChannelTag;
use crate::session::mail::Mail;
use crate::session::outbox::Outbox;

/// One subscription of a channel; a later one of the same channel has another serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(u64);

/// A binding within the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct BindingKey {
    serial: Serial,
    index: u32,
}

/// The channels of one feed.
#[derive(Debug, Default)]
pub struct Subscribers {
    next: u64,
    index: SubscriptionIndex<BindingKey>,
    by_serial: FxHashMap<Serial, Subscriber>,
    by_id: FxHashMap<SubscriberId, Serial>,
    /// Channels that get nothing until their next subscription.
    suspended: FxHashSet<SubscriberId>,
    /// Bindings with a filter or a selection, by table, whether or not the filter is bound.
    filtered: FxHashMap<TableRef, BTreeSet<BindingKey>>,
    /// Those whose filter cannot be bound just now: in no index, but a gap concerns them.
    unbound: FxHashMap<TableRef, BTreeSet<BindingKey>>,
}

/// One channel.
#[derive(Debug)]
pub struct Subscriber {
    /// Whose it is.
    pub id: SubscriberId,
    /// How its frames are addressed.
    pub tag: Arc<ChannelTag>,
    /// Where they go.
    pub outbox: Arc<Outbox>,
    /// Where it is told that it is live.
    pub mail: Arc<Mail>,
    /// Who it runs as.
    pub claims: Claims,
    /// Which of its identities that is.
    pub generation: u64,
    /// It was told that the feed is live.
    pub live: bool,
    /// It is owed a gap notice.
    pub gap: Option<GapReason>,
    /// When it was last told of a policy's error.
    pub policy_hint_at: Option<Instant>,
    /// It was told that the project waits for capacity.
    pub deferred_told: bool,
    ids: ChannelIds,
    bindings: Vec<PreparedBinding>,
    /// Its part of what the socket's patterns may take.
    _patterns: Option<OwnedSemaphorePermit>,
    /// Its hold on what its tables may have of them.
    _table_patterns: Option<Hold>,
}

/// One channel's bindings that an event concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The subscription.
    pub serial: Serial,
    /// The identity that the channel had when it matched.
    pub generation: u64,
    /// Its bindings that matched, by their places, in order.
    places: Box<[u32]>,
    /// One of them has no filter: that it matched tells nothing of the row.
    pub unfiltered: bool,
}

/// Bindings of one channel that show the same columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The columns; `None`: all.
    pub selection: Option<Selection>,
    /// The bindings.
    pub ids: Vec<BindingId>,
}

impl Subscribers {
    /// How many channels there are, suspended ones left out.
    pub fn len(&self) -> usize {
        self.by_serial.len()
    }

    /// Whether nobody follows the feed, nor is about to again.
    pub fn is_empty(&self) -> bool {
        self.by_serial.is_empty() && self.suspended.is_empty()
    }

    /// Adds a channel, in place of what it had.
    pub fn insert(&mut self, subscription: Subscription) -> Serial {
        let id = SubscriberId {
            session: subscription.session,
            channel: subscription.tag.key,
        };
        let replaced = self.take(id).is_some();
        let resumed = self.suspended.remove(&id);
        let serial = Serial(self.next);
        self.next += 1;
        let subscriber = Subscriber {
            id,
            tag: subscription.tag,
            outbox: subscription.outbox,
            mail: subscription.mail,
            claims: subscription.claims,
            generation: subscription.generation,
            live: false,
            // Between the two it got nothing.
            gap: (replaced || resumed).then_some(GapReason::TokenChanged),
            policy_hint_at: None,
            deferred_told: false,
            ids: subscription.prepared.ids,
            bindings: subscription.prepared.bindings,
            _patterns: subscription.prepared.patterns,
            _table_patterns: subscription.prepared.table_patterns,
        };
        for index in 0..subscriber.bindings.len() {
            self.index_binding(
                BindingKey {
                    serial,
                    index: index as u32,
                },
                &subscriber,
            );
        }
        self.by_id.insert(id, serial);
        self.by_serial.insert(serial, subscriber);
        serial
    }

    /// Ends a channel.
    pub fn remove(&mut self, id: SubscriberId) -> Option<Subscriber> {
        self.suspended.remove(&id);
        self.take(id)
    }

    /// Delivers nothing to a channel until its next subscription.
    pub fn suspend(&mut self, id: SubscriberId) {
        if self.take(id).is_some() {
            self.suspended.insert(id);
        }
    }

    /// Gives a channel another identity of the same role.
    pub fn identify(&mut self, id: SubscriberId, claims: Claims, generation: u64) -> Option<&mut Subscriber> {
        let subscriber = self.by_serial.get_mut(self.by_id.get(&id)?)?;
        subscriber.claims = claims;
        subscriber.generation = generation;
        Some(subscriber)
    }

    /// A channel by its subscription.
    pub fn get(&self, serial: Serial) -> Option<&Subscriber> {
        self.by_serial.get(&serial)
    }

    /// A channel by its subscription.
    pub fn get_mut(&mut self, serial: Serial) -> Option<&mut Subscriber> {
        self.by_serial.get_mut(&serial)
    }

    /// All channels.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Subscriber> {
        self.by_serial.values_mut()
    }

    /// All subscriptions.
    pub fn serials(&self) -> Vec<Serial> {
        self.by_serial.keys().copied().collect()
    }

    /// The channels that an event concerns, in the order of their subscription.
    pub fn matches(&self, event: &ChangeEvent) -> Vec<Match> {
        let mut found = Vec::new();
        self.index.candidates(event, &mut found);
        found.sort_unstable();
        let by_channel = found.chunk_by(|a, b| a.serial == b.serial);
        by_channel
            .filter_map(|keys| {
                let serial = keys.first()?.serial;
                let subscriber = self.by_serial.get(&serial)?;
                let unfiltered = keys.iter().any(|key| {
                    let binding = subscriber.bindings.get(key.index as usize);
                    binding.is_some_and(|binding| matches!(binding.filter, PreparedFilter::None))
                });
                Some(Match {
                    serial,
                    generation: subscriber.generation,
                    places: keys.iter().map(|key| key.index).collect(),
                    unfiltered,
                })
            })
            .collect()
    }

    /// The channels with a binding on a table, whatever its event and filter.
    pub fn on_table(&self, table: &TableRef) -> Vec<Serial> {
        let mut found = Vec::new();
        self.index.on_table(table, &mut found);
        found.extend(self.unbound.get(table).into_iter().flatten());
        let serials: BTreeSet<Serial> = found.into_iter().map(|key| key.serial).collect();
        serials.into_iter().collect()
    }

    /// The roles that filter on a table, or select its columns.
    pub fn filtering_roles(&self, table: &TableRef) -> Vec<Role> {
        let keys = self.filtered.get(table).into_iter().flatten();
        let roles: BTreeSet<Role> = keys
            .filter_map(|key| Some(self.by_serial.get(&key.serial)?.claims.role().clone()))
            .collect();
        roles.into_iter().collect()
    }

    /// Binds the filters on a table anew. Filters of roles that have no facts cannot be judged
    /// until they have. Returns the channels concerned: those without facts, and those whose
    /// filter no longer fits, with the binding's index.
    pub fn rebind(&mut self, table: &TableRef, facts: &BTreeMap<Role, Arc<TableFacts>>) -> Rebound {
        let mut rebound = Rebound::default();
        let keys: Vec<BindingKey> = self.filtered.get(table).into_iter().flatten().copied().collect();
        for key in keys {
            let Some(subscriber) = self.by_serial.get_mut(&key.serial) else {
                continue;
            };
            let facts = facts.get(subscriber.claims.role());
            let Some(binding) = subscriber.bindings.get_mut(key.index as usize) else {
                continue;
            };
            if let Some(facts) = facts {
                binding.selection = select(&binding.params, facts);
            }
            let (PreparedFilter::Bound(filter, _) | PreparedFilter::Unbound(filter)) = &binding.filter else {
                continue;
            };
            let filter = filter.clone();
            let outcome = match facts {
                None => {
                    rebound.without_facts.insert(key.serial);
                    PreparedFilter::Unbound(filter)
                }
                Some(facts) => bind(filter.clone(), facts).unwrap_or_else(|_| {
                    // Told once for as long as it stays so.
                    if binding.hint != Some(Hint::FilterOutdated) {
                        rebound.outdated.push((key.serial, key.index as usize));
                    }
                    binding.hint = Some(Hint::FilterOutdated);
                    PreparedFilter::Unbound(filter)
                }),
            };
            if matches!(outcome, PreparedFilter::Bound(..)) {
                binding.hint = None;
            }
            binding.filter = outcome;
            self.reindex(key);
        }
        rebound
    }

    fn reindex(&mut self, key: BindingKey) {
        let Some(subscriber) = self.by_serial.remove(&key.serial) else {
            return;
        };
        self.unindex_binding(key, &subscriber);
        self.index_binding(key, &subscriber);
        self.by_serial.insert(key.serial, subscriber);
    }

    fn take(&mut self, id: SubscriberId) -> Option<Subscriber> {
        let serial = self.by_id.remove(&id)?;
        let subscriber = self.by_serial.remove(&serial)?;
        for index in 0..subscriber.bindings.len() {
            self.unindex_binding(
                BindingKey {
                    serial,
                    index: index as u32,
                },
                &subscriber,
            );
        }
        Some(subscriber)
    }

    fn index_binding(&mut self, key: BindingKey, of: &Subscriber) {
        let Some(binding) = of.bindings.get(key.index as usize) else {
            return;
        };
        let params = &binding.params;
        let schema = params.schema.as_deref().unwrap_or("*");
        let table = params.table.as_deref().unwrap_or("*");
        let spec = BindingSpec::new(
            Some(schema),
            Some(table),
            params.event,
            of.claims.role().is_service(),
        );
        let filter = match &binding.filter {
            PreparedFilter::None => None,
            PreparedFilter::Bound(_, bound) => Some(bound.clone()),
            PreparedFilter::Unbound(_) => {
                if let Some(table) = params.one_table() {
                    self.unbound.entry(table.clone()).or_default().insert(key);
                    self.filtered.entry(table).or_default().insert(key);
                }
                return;
            }
        };
        if let Some(table) = params.one_table()
            && (filter.is_some() || params.select.is_some())
        {
            self.filtered.entry(table).or_default().insert(key);
        }
        self.index.insert(key, spec.with_filter(filter));
    }

    fn unindex_binding(&mut self, key: BindingKey, of: &Subscriber) {
        self.index.remove(key);
        let table = of
            .bindings
            .get(key.index as usize)
            .and_then(|binding| binding.params.one_table());
        let Some(table) = table else { return };
        for by_table in [&mut self.filtered, &mut self.unbound] {
            if let Some(keys) = by_table.get_mut(&table) {
                keys.remove(&key);
                if keys.is_empty() {
                    by_table.remove(&table);
                }
            }
        }
    }
}

impl Subscriber {
    /// A match's bindings by the columns that they show: one frame each. Where a role may read only `readable` columns,
    /// without those whose filters look at another: a privilege may be gone since the filter was bound, and
    /// that its row comes would then tell a value.
    pub fn shown(&self, one: &Match, readable: Option<&[Box<str>]>) -> Vec<Shown> {
        let may_say = |filter: &PreparedFilter| match (filter, readable) {
            (_, None) | (PreparedFilter::None, _) => true,
            (PreparedFilter::Bound(_, bound), Some(readable)) => {
                bound.only_on(|column| readable.iter().any(|name| **name == *column))
            }
            (PreparedFilter::Unbound(_), Some(_)) => false,
        };
        let mut shown: Vec<Shown> = Vec::new();
        for place in &one.places {
            let at = *place as usize;
            let (Some(binding), Some(id)) = (self.bindings.get(at), self.ids.as_slice().get(at)) else {
                continue;
            };
            if !may_say(&binding.filter) {
                continue;
            }
            match shown
                .iter_mut()
                .find(|known| known.selection == binding.selection)
            {
                Some(known) => known.ids.push(*id),
                None => shown.push(Shown {
                    selection: binding.selection.clone(),
                    ids: vec![*id],
                }),
            }
        }
        shown
    }
}

/// What became of the filters on a table.
#[derive(Debug, Default)]
pub struct Rebound {
    /// Channels whose filters cannot be judged: facts are missing.
    pub without_facts: BTreeSet<Serial>,
    /// Channels with a filter that no longer fits, and the binding's index.
    pub outdated: Vec<(Serial, usize)>,
}
