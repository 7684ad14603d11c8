//! Which bindings does a change concern? The answer costs as much as there are matches, not as
//! much as there are bindings.
//!
//! Must never name a binding whose filter cannot be evaluated on the event, and must apply the rules
//! that keep filters from telling the values of deleted rows. A candidate is only a candidate: the
//! verdict on visibility comes after.
//!
//! # How
//!
//! Bindings are held by table (also "any table of a schema", "any schema"), then by the one of
//! their conditions that is expected to leave the fewest (equality first; among equalities, the one whose
//! value the fewest others share): equality and lists in a hash on the value's key, windows
//! (a lower and an upper bound on one column) by the beginnings of keys, ranges in sorted maps, inequality as everything but one value, patterns as a list in which each distinct one is
//! tried once. The rest of a filter is checked on those found. Bindings
//! are further held apart by event and by whether they are service_role's, because
//! whole classes fall away for a DELETE.

mod column;
mod postings;
mod table;
mod window;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::change::{ChangeEvent, Operation};
use crate::filter::BoundFilter;
use crate::id::TableRef;
use column::Hold;
use postings::Slot;
use table::TableIndex;

type FxMap<K, V> = HashMap<K, V, FxBuildHasher>;

/// Which operations a binding follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventFilter {
    /// `*`: all three.
    All,
    /// One operation.
    Only(Operation),
}

/// What a binding follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BindingSpec {
    /// The schema; `None` is every schema.
    pub schema: Option<Arc<str>>,
    /// The table; `None` is every table of the schema.
    pub table: Option<Arc<str>>,
    /// The operations.
    pub event: EventFilter,
    /// The filter. Where the binding follows several tables it is evaluated on each by its column's
    /// name and type as bound; a row that has no such column is no match.
    pub filter: Option<BoundFilter>,
    /// The subscriber is service_role: its DELETE filters may use any column.
    pub service: bool,
}

/// The bindings of one project's feed, found by the changes that concern them.
///
/// `K` stands for a binding; each key is held once.
#[derive(Debug)]
pub struct SubscriptionIndex<K> {
    slots: FxMap<K, Slot>,
    entries: Vec<Option<Entry<K>>>,
    free: Vec<Slot>,
    scopes: FxMap<Scope, TableIndex>,
}

/// What a binding follows, by names; `None` is any.
type Scope = (Option<Arc<str>>, Option<Arc<str>>);

#[derive(Debug)]
struct Entry<K> {
    key: K,
    spec: BindingSpec,
    /// What of the filter the entry is held by; `None` without a filter.
    held_by: Option<Hold>,
}

impl EventFilter {
    /// Reads `*`, `INSERT`, `UPDATE` or `DELETE`, in any case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let operations = [Operation::Insert, Operation::Update, Operation::Delete];
        if text == "*" {
            return Some(Self::All);
        }
        operations
            .into_iter()
            .find(|one| one.as_str().eq_ignore_ascii_case(text))
            .map(Self::Only)
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "*",
            Self::Only(operation) => operation.as_str(),
        }
    }

    /// Whether it takes in an operation.
    pub fn admits(self, operation: Operation) -> bool {
        self == Self::All || self == Self::Only(operation)
    }
}

impl BindingSpec {
    /// A binding by the names as clients write them, without a filter. An absent or empty schema is
    /// `public`, an absent or empty table is every table; `*` is every schema or table.
    pub fn new(schema: Option<&str>, table: Option<&str>, event: EventFilter, service: bool) -> Self {
        let or = |name: Option<&str>, default| match name.filter(|name| !name.is_empty()).unwrap_or(default) {
            "*" => None,
            name => Some(Arc::from(name)),
        };
        Self {
            schema: or(schema, "public"),
            table: or(table, "*"),
            event,
            filter: None,
            service,
        }
    }

    /// The same with a filter.
    pub fn with_filter(self, filter: Option<BoundFilter>) -> Self {
        Self { filter, ..self }
    }

    /// Whether an event concerns the binding: the definition that the index must agree with. `event` is judged
    /// by names, operation, filter, and the rules for filters on deletes and on reference events.
    pub fn admits(&self, event: &ChangeEvent) -> bool {
        let named = |own: &Option<Arc<str>>, name: &str| own.as_deref().is_none_or(|own| own == name);
        if !named(&self.schema, &event.table.schema)
            || !named(&self.table, &event.table.table)
            || !self.event.admits(event.operation)
        {
            return false;
        }
        let Some(filter) = &self.filter else { return true };
        let Some(row) = event.subject_row() else {
            return false;
        };
        let allowed = !needs_key(event, self.service) || filter.only_on(|column| event.is_key_column(column));
        allowed && filter.matches(row)
    }
}

/// Whether a filter may only use key columns on this event: for everyone where the row is not there, and
/// on deletes for all but service_role, because a deleted row's visibility cannot be judged and a
/// filter on another column would tell its value.
fn needs_key(event: &ChangeEvent, service: bool) -> bool {
    event.is_reference() || (event.operation == Operation::Delete && !service)
}

impl<K: Copy + Eq + Hash> SubscriptionIndex<K> {
    /// An index without bindings.
    pub fn new() -> Self {
        Self {
            slots: FxMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            scopes: FxMap::default(),
        }
    }

    /// How many bindings it holds.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a binding. One that was held under the same key is replaced and returned.
    pub fn insert(&mut self, key: K, spec: BindingSpec) -> Option<BindingSpec> {
        let before = self.remove(key);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // Each entry takes far more than a byte: 2^32 of them do not fit into memory.
            Slot::from_index(self.entries.len() - 1)
        });
        let scope = (spec.schema.clone(), spec.table.clone());
        let held_by = self.scopes.entry(scope).or_default().insert(slot, &spec);
        self.slots.insert(key, slot);
        self.entries[slot.index()] = Some(Entry { key, spec, held_by });
        before
    }

    /// Takes a binding out and returns it; `None` if there is none under the key.
    pub fn remove(&mut self, key: K) -> Option<BindingSpec> {
        let slot = self.slots.remove(&key)?;
        let entry = self.entries[slot.index()].take()?;
        self.free.push(slot);
        let scope = (entry.spec.schema.clone(), entry.spec.table.clone());
        if let Some(table) = self.scopes.get_mut(&scope) {
            table.remove(slot, &entry.spec, entry.held_by);
            if table.is_empty() {
                self.scopes.remove(&scope);
            }
        }
        if self.slots.is_empty() {
            *self = Self::new();
        }
        Some(entry.spec)
    }

    /// Gives a binding another filter, as after a change of its table. False if there is none under the key.
    pub fn replace_filter(&mut self, key: K, filter: Option<BoundFilter>) -> bool {
        let Some(spec) = self.remove(key) else {
            return false;
        };
        self.insert(key, spec.with_filter(filter));
        true
    }

    /// A binding by its key.
    pub fn get(&self, key: K) -> Option<&BindingSpec> {
        let slot = self.slots.get(&key)?;
        self.entries[slot.index()].as_ref().map(|entry| &entry.spec)
    }

    /// Appends every binding that an event concerns, each once, in no particular order. Returns the work
    /// done: how many bindings and values were looked at, which stays near the number appended.
    pub fn candidates(&self, event: &ChangeEvent, out: &mut Vec<K>) -> usize {
        let mut search = Search {
            entries: &self.entries,
            event,
            scratch: Vec::new(),
            looked_at: 0,
            out,
        };
        for table in self.tables(&event.table) {
            table.candidates(&mut search);
        }
        search.looked_at
    }

    /// Appends every binding that follows a table, whatever its event and filter: whom a gap in the
    /// table's changes may concern.
    pub fn on_table(&self, table: &TableRef, out: &mut Vec<K>) {
        for scope in self.tables(table) {
            let slots = scope.members();
            out.extend(
                slots
                    .filter_map(|slot| self.entries[slot.index()].as_ref())
                    .map(|entry| entry.key),
            );
        }
    }

    /// The indexes that hold bindings of a table.
    fn tables(&self, table: &TableRef) -> impl Iterator<Item = &TableIndex> {
        let (schema, table) = (&table.schema, &table.table);
        let scopes: [Scope; 4] = [
            (Some(schema.clone()), Some(table.clone())),
            (Some(schema.clone()), None),
            (None, Some(table.clone())),
            (None, None),
        ];
        scopes.into_iter().filter_map(|scope| self.scopes.get(&scope))
    }
}

impl<K: Copy + Eq + Hash> Default for SubscriptionIndex<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// One search, as it goes through the tables and columns.
struct Search<'a, K> {
    entries: &'a [Option<Entry<K>>],
    event: &'a ChangeEvent,
    scratch: Vec<u8>,
    looked_at: usize,
    out: &'a mut Vec<K>,
}

impl<K: Copy> Search<'_, K> {
    /// Takes bindings that have no filter.
    fn take(&mut self, slots: impl Iterator<Item = Slot>) {
        for slot in slots {
            self.looked_at += 1;
            if let Some(entry) = &self.entries[slot.index()] {
                self.out.push(entry.key);
            }
        }
    }

    /// Takes those of the bindings whose other conditions hold too.
    fn take_if(&mut self, slots: impl Iterator<Item = Slot>) {
        let Some(row) = self.event.subject_row() else {
            return;
        };
        for slot in slots {
            self.looked_at += 1;
            let Some(entry) = &self.entries[slot.index()] else {
                continue;
            };
            let Some(filter) = &entry.spec.filter else {
                continue;
            };
            let allowed = filter.conditions().len() == 1
                || !needs_key(self.event, entry.spec.service)
                || filter.only_on(|column| self.event.is_key_column(column));
            if allowed && filter.matches_except(entry.held_by.and_then(Hold::certain), row, &mut self.scratch)
            {
                self.out.push(entry.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
