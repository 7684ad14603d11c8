//! The facts that are known just now, per `(table, role)`.
//!
//! Must never answer with facts that were read before the position that the caller has seen, nor
//! with facts older than the limit: roles' attributes and memberships change without an event.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::change::Position;
use realtime_core::claims::Role;
use realtime_core::id::TableRef;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::{Table, load};
use crate::metrics::AuthzMetrics;
use crate::pools::{Pool, PoolError};

/// How long facts are believed, and how many of them are kept.
#[derive(Debug, Clone, Copy)]
pub struct FactsLimits {
    /// Facts older than this are read again, whatever was seen of the feed.
    pub age_max: Duration,
    /// Entries per project; beyond it old ones are forgotten.
    pub entries_max: usize,
}

/// One project's facts.
pub struct Facts {
    limits: FactsLimits,
    tables: Shelf<(u32, Role), Option<Arc<Table>>>,
    names: Shelf<TableRef, Option<u32>>,
}

/// Values by key; each is read by one caller while the others wait for it.
struct Shelf<K, V>(Mutex<FxHashMap<K, Place<V>>>);

/// Held locked while its value is read.
type Place<V> = Arc<tokio::sync::Mutex<Option<Known<V>>>>;

struct Known<V> {
    value: V,
    /// Whatever happened up to here was visible to the reading transaction.
    after: Position,
    at: Instant,
}

impl Facts {
    /// Nothing is known yet.
    pub fn new(limits: FactsLimits) -> Self {
        Self {
            limits,
            tables: Shelf::new(),
            names: Shelf::new(),
        }
    }

    /// The facts of a table for a role, read after `seen`; `None`: there is no such relation.
    ///
    /// # Errors
    /// No connection in time, or the catalog could not be read.
    pub async fn table(
        &self,
        pool: &Arc<Pool>,
        relid: u32,
        role: &Role,
        seen: Position,
        metrics: &AuthzMetrics,
    ) -> Result<Option<Arc<Table>>, PoolError> {
        let read = async {
            metrics.facts_loads.inc();
            let lease = pool.acquire().await?;
            let read = load::load(&lease, relid, role).await;
            match lease.settle(read)? {
                load::Loaded::Table(table) => Ok(Some(Arc::new(table))),
                load::Loaded::NoTable => Ok(None),
                load::Loaded::RoleUnusable => Err(PoolError::Role),
            }
        };
        self.tables
            .get((relid, role.clone()), seen, self.limits, read)
            .await
    }

    /// The facts of a table by its name.
    ///
    /// # Errors
    /// As [`Facts::table`].
    pub async fn named(
        &self,
        pool: &Arc<Pool>,
        name: &TableRef,
        role: &Role,
        seen: Position,
        metrics: &AuthzMetrics,
    ) -> Result<Option<Arc<Table>>, PoolError> {
        let read = async {
            let lease = pool.acquire().await?;
            let read = load::resolve(lease.client(), name).await;
            lease.settle(read)
        };
        let Some(relid) = self.names.get(name.clone(), seen, self.limits, read).await? else {
            return Ok(None);
        };
        let table = self.table(pool, relid, role, seen, metrics).await?;
        // Renamed between the two reads: there is no table of that name any more.
        Ok(table.filter(|table| table.table == *name))
    }

    /// Forgets facts that have turned out to be old, unless somebody has read, or is reading, newer ones.
    pub fn forget(&self, stale: &Table, role: &Role) {
        let key = (stale.relid, role.clone());
        let place = self.tables.0.lock().get(&key).cloned();
        let Some(place) = place else { return };
        if let Ok(mut known) = place.try_lock()
            && let Some(found) = &*known
            && found
                .value
                .as_ref()
                .is_none_or(|table| table.stamp == stale.stamp)
        {
            *known = None;
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Shelf<K, V> {
    fn new() -> Self {
        Self(Mutex::new(FxHashMap::default()))
    }

    async fn get(
        &self,
        key: K,
        seen: Position,
        limits: FactsLimits,
        read: impl Future<Output = Result<V, PoolError>>,
    ) -> Result<V, PoolError> {
        let place = self.place(&key, limits.entries_max);
        let mut known = place.lock().await;
        if let Some(known) = &*known
            && known.after >= seen
            && known.at.elapsed() < limits.age_max
        {
            return Ok(known.value.clone());
        }
        let at = Instant::now();
        let after = known.as_ref().map_or(seen, |known| known.after.max(seen));
        *known = None;
        let value = read.await?;
        *known = Some(Known {
            value: value.clone(),
            after,
            at,
        });
        Ok(value)
    }

    fn place(&self, key: &K, entries_max: usize) -> Place<V> {
        let mut places = self.0.lock();
        if let Some(place) = places.get(key) {
            return Arc::clone(place);
        }
        if places.len() >= entries_max {
            // Everything expires within seconds: starting over costs little and needs no order.
            places.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(places.entry(key.clone()).or_default())
    }
}
