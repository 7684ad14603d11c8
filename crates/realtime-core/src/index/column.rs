//! The conditions on one column, found by the key of a value.
//!
//! Must never walk over conditions that the value does not meet: each structure yields matches only.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::postings::{Postings, Slot};
use super::table::LANES;
use super::{FxMap, Search};
use crate::filter::Test;
use crate::value::Key;

/// The conditions of all lanes.
#[derive(Debug, Default)]
pub struct ColumnIndex {
    lanes: [Option<Box<Conditions>>; LANES],
}

/// The conditions of one lane, by the key of their constant.
#[derive(Debug, Default)]
struct Conditions {
    equal: FxMap<Key, Postings>,
    not_equal: FxMap<Key, Postings>,
    above: BTreeMap<Key, Postings>,
    at_or_above: BTreeMap<Key, Postings>,
    below: BTreeMap<Key, Postings>,
    at_or_below: BTreeMap<Key, Postings>,
}

/// How many bindings a condition is expected to leave: by its class, then by how many share its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(Class, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Equality,
    Range,
    Inequality,
}

impl ColumnIndex {
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(Option::is_none)
    }

    pub fn insert(&mut self, lane: usize, slot: Slot, test: &Test) {
        self.lanes[lane].get_or_insert_default().insert(slot, test);
    }

    pub fn remove(&mut self, lane: usize, slot: Slot, test: &Test) {
        let Some(conditions) = &mut self.lanes[lane] else {
            return;
        };
        conditions.remove(slot, test);
        if conditions.is_empty() {
            self.lanes[lane] = None;
        }
    }

    /// What it would cost to hold a binding by a condition on this column.
    pub fn cost(column: Option<&Self>, lane: usize, test: &Test) -> Cost {
        let conditions = column.and_then(|column| column.lanes[lane].as_deref());
        match test {
            Test::In(keys) => {
                let sharing = |key| {
                    conditions
                        .and_then(|held| held.equal.get(key))
                        .map_or(0, Postings::len)
                };
                Cost(Class::Equality, keys.iter().map(sharing).max().unwrap_or(0))
            }
            Test::Above(_) | Test::Below(_) => Cost(Class::Range, 0),
            Test::NotEqual(_) => Cost(Class::Inequality, 0),
        }
    }

    /// Hands the search the bindings of a lane whose condition the value meets.
    pub fn candidates<K: Copy>(&self, lane: usize, key: &[u8], search: &mut Search<'_, K>) {
        if let Some(conditions) = &self.lanes[lane] {
            conditions.candidates(key, search);
        }
    }
}

impl Conditions {
    fn is_empty(&self) -> bool {
        self.equal.is_empty()
            && self.not_equal.is_empty()
            && [&self.above, &self.at_or_above, &self.below, &self.at_or_below]
                .iter()
                .all(|map| map.is_empty())
    }

    fn insert(&mut self, slot: Slot, test: &Test) {
        match test {
            Test::In(keys) => {
                for key in keys {
                    self.equal.entry(key.clone()).or_default().insert(slot);
                }
            }
            Test::NotEqual(key) => self.not_equal.entry(key.clone()).or_default().insert(slot),
            Test::Above(bound) | Test::Below(bound) => {
                if let Some((map, key)) = self.range(test, bound) {
                    map.entry(key.clone()).or_default().insert(slot);
                }
            }
        }
    }

    fn remove(&mut self, slot: Slot, test: &Test) {
        match test {
            Test::In(keys) => keys
                .iter()
                .for_each(|key| remove_from_hash(&mut self.equal, key, slot)),
            Test::NotEqual(key) => remove_from_hash(&mut self.not_equal, key, slot),
            Test::Above(bound) | Test::Below(bound) => {
                let Some((map, key)) = self.range(test, bound) else {
                    return;
                };
                let Some(postings) = map.get_mut(key) else { return };
                postings.remove(slot);
                if postings.is_empty() {
                    map.remove(key);
                }
            }
        }
    }

    /// The sorted map of a range condition, and its key there.
    fn range<'k>(
        &mut self,
        test: &Test,
        bound: &'k Bound<Key>,
    ) -> Option<(&mut BTreeMap<Key, Postings>, &'k Key)> {
        Some(match (test, bound) {
            (Test::Above(_), Bound::Excluded(key)) => (&mut self.above, key),
            (Test::Above(_), Bound::Included(key)) => (&mut self.at_or_above, key),
            (_, Bound::Excluded(key)) => (&mut self.below, key),
            (_, Bound::Included(key)) => (&mut self.at_or_below, key),
            (_, Bound::Unbounded) => return None,
        })
    }

    fn candidates<K: Copy>(&self, key: &[u8], search: &mut Search<'_, K>) {
        if let Some(postings) = self.equal.get(key) {
            search.take_if(postings.iter());
        }
        for (other, postings) in &self.not_equal {
            search.looked_at += 1;
            if **other != *key {
                search.take_if(postings.iter());
            }
        }
        // `gt` holds for every constant before the value, `lt` for every one behind it.
        let ranges = [
            self.above
                .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))),
            self.at_or_above
                .range::<[u8], _>((Bound::Unbounded, Bound::Included(key))),
            self.below
                .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)),
            self.at_or_below
                .range::<[u8], _>((Bound::Included(key), Bound::Unbounded)),
        ];
        for (_, postings) in ranges.into_iter().flatten() {
            search.take_if(postings.iter());
        }
    }
}

fn remove_from_hash(map: &mut FxMap<Key, Postings>, key: &Key, slot: Slot) {
    let Some(postings) = map.get_mut(key) else { return };
    postings.remove(slot);
    if postings.is_empty() {
        map.remove(key);
        // A burst of bindings that is gone must not keep its memory.
        if map.len() < map.capacity() / 8 {
            map.shrink_to_fit();
        }
    }
}
