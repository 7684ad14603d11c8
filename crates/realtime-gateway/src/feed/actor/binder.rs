//! Which filters of a feed may be outdated, and the look-up that binds them anew.
//!
//! Must never let an event be matched by a filter that an earlier change of its table outdated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use realtime_core::change::ChangeEvent;
use realtime_core::claims::Role;
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::table::TableFacts;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::Tables;
use crate::feed::Subscription;
use crate::feed::subscribers::{Rebound, Serial, Subscribers};

/// How long an event waits for facts about its table.
const FACTS_DEADLINE: Duration = Duration::from_secs(2);

/// How long filters count as bound to what their table is. Not everything that changes a table for a role is told of:
/// memberships never are, and nothing is where provisioning could make no event triggers.
const CLEAN_AGE_MAX: Duration = Duration::from_secs(5);

/// How soon after a failure facts are asked for again: events do not wait in the meantime.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Facts about one table by role; a role without an answer has none.
pub type Facts = BTreeMap<Role, Arc<TableFacts>>;

/// What is known of the filters of a feed.
pub struct Binder {
    project: ProjectId,
    tables: Tables,
    /// Tables whose filters are bound to what the table is.
    clean: FxHashMap<TableRef, Clean>,
    /// Tables whose facts could not be read.
    failed: FxHashMap<TableRef, Failed>,
    /// Changes of tables may have been missed.
    in_doubt: bool,
}

struct Clean {
    relid: u32,
    at: Instant,
}

struct Failed {
    at: Instant,
    without_facts: BTreeSet<Serial>,
}

impl Binder {
    pub fn new(project: ProjectId, tables: Tables) -> Self {
        Self {
            project,
            tables,
            clean: FxHashMap::default(),
            failed: FxHashMap::default(),
            in_doubt: false,
        }
    }

    /// Changes of tables may have been missed.
    pub fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Takes every table as changed if in doubt, and says whether that was so.
    pub fn settle_doubt(&mut self) -> bool {
        let doubted = std::mem::take(&mut self.in_doubt);
        if doubted {
            self.changed_all();
        }
        doubted
    }

    /// A table changed.
    pub fn changed(&mut self, table: &TableRef) {
        self.clean.remove(table);
        self.failed.remove(table);
    }

    /// Any table may have changed.
    pub fn changed_all(&mut self) {
        self.clean.clear();
        self.failed.clear();
    }

    /// A channel comes: where tables changed since its filters were looked up, they are doubtful.
    pub fn on_subscribe(&mut self, subscription: &Subscription) {
        if subscription.prepared.facts != self.tables.changed_at(&self.project) {
            for binding in &subscription.prepared.bindings {
                if let Some(table) = binding.params.one_table() {
                    self.changed(&table);
                }
            }
        }
    }

    /// The look-up that an event must wait for before it is matched, or nothing.
    pub fn look_up(
        &self,
        event: &ChangeEvent,
        subscribers: &Subscribers,
    ) -> Option<BoxFuture<'static, Facts>> {
        let table = &event.table;
        if self
            .clean
            .get(table)
            .is_some_and(|clean| clean.relid == event.relid && clean.at.elapsed() < CLEAN_AGE_MAX)
        {
            return None;
        }
        if self
            .failed
            .get(table)
            .is_some_and(|failed| failed.at.elapsed() < RETRY_AFTER)
        {
            return None;
        }
        let roles = subscribers.filtering_roles(table);
        if roles.is_empty() {
            return None;
        }
        let (tables, project, table) = (self.tables.clone(), self.project.clone(), table.clone());
        Some(Box::pin(async move {
            let until = Instant::now() + FACTS_DEADLINE;
            let asked = roles.into_iter().map(async |role| {
                let facts = tokio::time::timeout_at(until, tables.describe(&project, &table, &role)).await;
                Some((role, facts.ok()?.ok()?))
            });
            join_all(asked).await.into_iter().flatten().collect()
        }))
    }

    /// Binds the filters on an event's table to what was found.
    pub fn bind(&mut self, event: &ChangeEvent, facts: &Facts, subscribers: &mut Subscribers) -> Rebound {
        let rebound = subscribers.rebind(&event.table, facts);
        self.failed.remove(&event.table);
        if rebound.without_facts.is_empty() {
            let (relid, at) = (event.relid, Instant::now());
            self.clean.insert(event.table.clone(), Clean { relid, at });
        } else {
            self.clean.remove(&event.table);
            let without_facts = rebound.without_facts.clone();
            self.failed.insert(
                event.table.clone(),
                Failed {
                    at: Instant::now(),
                    without_facts,
                },
            );
        }
        rebound
    }

    /// Channels with a filter on a table that cannot be judged for want of facts.
    pub fn without_facts(&self, table: &TableRef) -> impl Iterator<Item = Serial> + use<> {
        let failed = self.failed.get(table).map(|failed| failed.without_facts.clone());
        failed.unwrap_or_default().into_iter()
    }
}
