//! The bindings that follow one table, or one pattern of tables.
//!
//! Must never look at a binding whose event or role already rules it out.

use super::column::{ColumnIndex, Hold};
use super::postings::{Postings, Slot};
use super::{BindingSpec, EventFilter, FxMap, Search, needs_key};
use crate::change::Operation;
use crate::filter::BoundFilter;
use crate::value::ValueKind;

/// Bindings held apart by event (four) and by service_role or not (two).
pub const LANES: usize = 8;

/// The bindings of one table.
#[derive(Debug, Default)]
pub struct TableIndex {
    members: Postings,
    unfiltered: [Postings; LANES],
    /// By column, then by the type that its filters were bound to: more than one only while a change of the
    /// column's type has not reached all bindings.
    columns: FxMap<Box<str>, Vec<(ValueKind, ColumnIndex)>>,
}

/// The lane of a binding.
fn lane_of(event: EventFilter, service: bool) -> usize {
    let event = match event {
        EventFilter::All => 0,
        EventFilter::Only(Operation::Insert) => 1,
        EventFilter::Only(Operation::Update) => 2,
        EventFilter::Only(Operation::Delete) => 3,
    };
    event * 2 + usize::from(service)
}

/// The lanes that hold bindings for an operation, without those of a role.
fn lanes_for(operation: Operation, service: bool) -> [usize; 2] {
    [
        lane_of(EventFilter::All, service),
        lane_of(EventFilter::Only(operation), service),
    ]
}

impl TableIndex {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    #[cfg(test)]
    pub fn columns_len(&self) -> usize {
        self.columns.len()
    }

    pub fn members(&self) -> impl Iterator<Item = Slot> {
        self.members.iter()
    }

    /// Adds a binding and returns what it is held by.
    pub fn insert(&mut self, slot: Slot, spec: &BindingSpec) -> Option<Hold> {
        self.members.insert(slot);
        let lane = lane_of(spec.event, spec.service);
        let Some(filter) = &spec.filter else {
            self.unfiltered[lane].insert(slot);
            return None;
        };
        let hold = self.best_hold(filter, lane);
        let condition = &filter.conditions()[hold.condition()];
        if !self.columns.contains_key(&condition.column) {
            self.columns.insert(condition.column.clone(), Vec::new());
        }
        if let Some(kinds) = self.columns.get_mut(&condition.column) {
            let at = kinds
                .iter()
                .position(|(kind, _)| *kind == condition.kind)
                .unwrap_or_else(|| {
                    kinds.push((condition.kind.clone(), ColumnIndex::default()));
                    kinds.len() - 1
                });
            kinds[at].1.insert(lane, slot, filter, hold);
        }
        Some(hold)
    }

    pub fn remove(&mut self, slot: Slot, spec: &BindingSpec, held_by: Option<Hold>) {
        self.members.remove(slot);
        let lane = lane_of(spec.event, spec.service);
        let (Some(filter), Some(hold)) = (&spec.filter, held_by) else {
            self.unfiltered[lane].remove(slot);
            return;
        };
        let condition = &filter.conditions()[hold.condition()];
        let Some(kinds) = self.columns.get_mut(&condition.column) else {
            return;
        };
        if let Some(at) = kinds.iter().position(|(kind, _)| *kind == condition.kind) {
            kinds[at].1.remove(lane, slot, filter, hold);
            if kinds[at].1.is_empty() {
                kinds.swap_remove(at);
            }
        }
        if kinds.is_empty() {
            self.columns.remove(&condition.column);
        }
    }

    /// What leaves the fewest bindings to check, as far as can be told.
    fn best_hold(&self, filter: &BoundFilter, lane: usize) -> Hold {
        let costs = Hold::all(filter).map(|hold| {
            let condition = &filter.conditions()[hold.condition()];
            let kinds = self
                .columns
                .get(&condition.column)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let column = kinds
                .iter()
                .find(|(kind, _)| *kind == condition.kind)
                .map(|(_, column)| column);
            (ColumnIndex::cost(column, lane, filter, hold), hold)
        });
        costs
            .min_by_key(|(cost, _)| *cost)
            .map_or(Hold::Condition(0), |(_, hold)| hold)
    }

    /// Hands the search whatever an event may concern.
    pub fn candidates<K: Copy>(&self, search: &mut Search<'_, K>) {
        let operation = search.event.operation;
        for service in [false, true] {
            for lane in lanes_for(operation, service) {
                search.take(self.unfiltered[lane].iter());
            }
        }
        let Some(row) = search.event.subject_row() else {
            return;
        };
        let mut key = Vec::new();
        for (name, kinds) in &self.columns {
            search.looked_at += 1;
            let is_key = search.event.is_key_column(name);
            let allowed = |service: &bool| is_key || !needs_key(search.event, *service);
            let roles = [false, true].map(|service| Some(service).filter(allowed));
            if roles == [None, None] {
                continue;
            }
            let Ok(Some(json)) = row.get(name) else { continue };
            let is_null = json == "null";
            for (kind, column) in kinds {
                key.clear();
                if !is_null && kind.read(json, &mut key).is_none() {
                    continue;
                }
                for lane in roles
                    .into_iter()
                    .flatten()
                    .flat_map(|service| lanes_for(operation, service))
                {
                    if is_null {
                        column.candidates_for_null(lane, search);
                    } else {
                        column.candidates(lane, &key, search);
                    }
                }
            }
        }
    }
}
