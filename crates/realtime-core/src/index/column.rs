//! The conditions on one column, found by the key of a value.
//!
//! Must never walk over conditions that the value does not meet: each structure yields matches only.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Bound;

use super::postings::{Postings, Slot};
use super::table::LANES;
use super::window::Windows;
use super::{FxMap, Search};
use crate::filter::{BoundFilter, Test};
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
    windows: Windows,
    /// Conditions that hold of null alone.
    null: Postings,
    /// Conditions that hold of all but null.
    not_null: Postings,
    /// Conditions that hold of null, and of all values but one.
    distinct: FxMap<Key, Postings>,
    /// Lists of what must not be, and patterns: each is tried once, however many bindings have it.
    tried: FxMap<Test, Postings>,
}

/// What of a filter a binding is held by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// One condition, by its position.
    Condition(usize),
    /// A lower and an upper bound on one column, by their positions.
    Window(usize, usize),
}

/// How many bindings a condition is expected to leave: by its class, then by how many share its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(Class, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Equality,
    Window,
    Range,
    Null,
    Inequality,
    Pattern,
}

impl Hold {
    /// Everything that a binding with this filter may be held by.
    pub fn all(filter: &BoundFilter) -> impl Iterator<Item = Self> {
        let count = filter.conditions().len();
        let pairs = (0..count).flat_map(move |above| (0..count).map(move |below| Self::Window(above, below)));
        let windows = pairs.filter(|pair| pair.window(filter).is_some());
        (0..count).map(Self::Condition).chain(windows)
    }

    /// A condition on the column where the binding is held.
    pub fn condition(self) -> usize {
        match self {
            Self::Condition(position) | Self::Window(position, _) => position,
        }
    }

    /// The condition that surely holds for a binding that was found by this.
    pub fn certain(self) -> Option<usize> {
        match self {
            Self::Condition(position) => Some(position),
            Self::Window(..) => None,
        }
    }

    /// The ends of a window; `None` where the two conditions are none.
    fn window(self, filter: &BoundFilter) -> Option<(&Key, &Key)> {
        let Self::Window(above, below) = self else {
            return None;
        };
        let (above, below) = (&filter.conditions()[above], &filter.conditions()[below]);
        let (Test::Above(low), Test::Below(high)) = (&above.test, &below.test) else {
            return None;
        };
        let same_column = above.column == below.column && above.kind == below.kind;
        let (low, high) = (key_of(low)?, key_of(high)?);
        (same_column && low <= high).then_some((low, high))
    }
}

impl ColumnIndex {
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(Option::is_none)
    }

    pub fn insert(&mut self, lane: usize, slot: Slot, filter: &BoundFilter, hold: Hold) {
        let conditions = self.lanes[lane].get_or_insert_default();
        match hold.window(filter) {
            Some((low, high)) => conditions.windows.insert(slot, low, high),
            None => conditions.insert(slot, &filter.conditions()[hold.condition()].test),
        }
    }

    pub fn remove(&mut self, lane: usize, slot: Slot, filter: &BoundFilter, hold: Hold) {
        let Some(conditions) = &mut self.lanes[lane] else {
            return;
        };
        match hold.window(filter) {
            Some((low, high)) => conditions.windows.remove(slot, low, high),
            None => conditions.remove(slot, &filter.conditions()[hold.condition()].test),
        }
        if conditions.is_empty() {
            self.lanes[lane] = None;
        }
    }

    /// What it would cost to hold a binding so.
    pub fn cost(column: Option<&Self>, lane: usize, filter: &BoundFilter, hold: Hold) -> Cost {
        let Hold::Condition(position) = hold else {
            return Cost(Class::Window, 0);
        };
        let conditions = column.and_then(|column| column.lanes[lane].as_deref());
        match &filter.conditions()[position].test {
            Test::In(keys) => {
                let sharing = |key| {
                    conditions
                        .and_then(|held| held.equal.get(key))
                        .map_or(0, Postings::len)
                };
                Cost(Class::Equality, keys.iter().map(sharing).max().unwrap_or(0))
            }
            Test::Above(_) | Test::Below(_) => Cost(Class::Range, 0),
            Test::Null => Cost(Class::Null, 0),
            Test::NotEqual(_) | Test::NotIn(_) | Test::Distinct(_) | Test::NotNull => {
                Cost(Class::Inequality, 0)
            }
            Test::Matches(_) | Test::MatchesNot(_) => Cost(Class::Pattern, 0),
        }
    }

    /// Hands the search the bindings of a lane whose condition the value meets.
    pub fn candidates<K: Copy>(&self, lane: usize, key: &[u8], search: &mut Search<'_, K>) {
        if let Some(conditions) = &self.lanes[lane] {
            conditions.candidates(key, search);
        }
    }

    /// Hands the search the bindings of a lane whose condition null meets.
    pub fn candidates_for_null<K: Copy>(&self, lane: usize, search: &mut Search<'_, K>) {
        if let Some(conditions) = &self.lanes[lane] {
            search.take_if(conditions.null.iter());
            for postings in conditions.distinct.values() {
                search.take_if(postings.iter());
            }
        }
    }
}

impl Conditions {
    fn is_empty(&self) -> bool {
        self.equal.is_empty()
            && self.not_equal.is_empty()
            && self.windows.is_empty()
            && self.null.is_empty()
            && self.not_null.is_empty()
            && self.distinct.is_empty()
            && self.tried.is_empty()
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
            Test::Distinct(key) => self.distinct.entry(key.clone()).or_default().insert(slot),
            Test::Null => self.null.insert(slot),
            Test::NotNull => self.not_null.insert(slot),
            Test::NotIn(_) | Test::Matches(_) | Test::MatchesNot(_) => {
                self.tried.entry(test.clone()).or_default().insert(slot);
            }
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
            Test::Distinct(key) => remove_from_hash(&mut self.distinct, key, slot),
            Test::Null => self.null.remove(slot),
            Test::NotNull => self.not_null.remove(slot),
            Test::NotIn(_) | Test::Matches(_) | Test::MatchesNot(_) => {
                remove_from_hash(&mut self.tried, test, slot);
            }
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
        search.take_if(self.not_null.iter());
        for (other, postings) in self.not_equal.iter().chain(&self.distinct) {
            search.looked_at += 1;
            if **other != *key {
                search.take_if(postings.iter());
            }
        }
        for (test, postings) in &self.tried {
            search.looked_at += 1;
            if test.holds(key) {
                search.take_if(postings.iter());
            }
        }
        let mut looked_at = 0;
        self.windows
            .around(key, &mut looked_at, |postings| search.take_if(postings.iter()));
        search.looked_at += looked_at;
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

fn key_of(bound: &Bound<Key>) -> Option<&Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

fn remove_from_hash<K: Eq + Hash>(map: &mut FxMap<K, Postings>, key: &K, slot: Slot) {
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
