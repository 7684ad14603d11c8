//! How many different patterns the filters on one table have, over all sockets of the gateway: each of them is run on every
//! change of the table, in the one task that follows its project, and no subscriber's own limits bound that.
//!
//! Must never show a pattern: it is a filter's value.

use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::filter::FilterExpr;
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::pattern::Style;
use rustc_hash::FxHashMap;

/// The patterns of every table. Cloning shares them.
#[derive(Clone, Default)]
pub struct Patterns(Arc<Mutex<FxHashMap<Table, Held>>>);

/// A channel's hold on the patterns of its filters, until it is dropped.
pub struct Hold {
    patterns: Patterns,
    held: Vec<(Table, Pattern)>,
}

type Table = (ProjectId, TableRef);

/// How many hold each.
type Held = FxHashMap<Pattern, usize>;

/// What is run once, however many filters have it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Pattern {
    column: Box<str>,
    style: Style,
    source: Box<str>,
}

impl Patterns {
    /// Takes hold of the patterns of a channel's filters, each with its table.
    ///
    /// # Errors
    /// The place of the first filter with which its table has more than `patterns_max` different ones; nothing is held then.
    pub fn hold<'a>(
        &self,
        project: &ProjectId,
        filters: impl IntoIterator<Item = (usize, TableRef, &'a FilterExpr)>,
        patterns_max: usize,
    ) -> Result<Hold, usize> {
        let mut hold = Hold {
            patterns: self.clone(),
            held: Vec::new(),
        };
        for (place, table, filter) in filters {
            for pattern in Pattern::of(filter) {
                let key = (project.clone(), table.clone());
                let mut tables = self.0.lock();
                let held = tables.entry(key.clone()).or_default();
                let full = held.len() >= patterns_max && !held.contains_key(&pattern);
                if full {
                    // Given back by the drop, which locks.
                    drop(tables);
                    return Err(place);
                }
                *held.entry(pattern.clone()).or_default() += 1;
                hold.held.push((key, pattern));
            }
        }
        Ok(hold)
    }
}

impl Pattern {
    fn of(filter: &FilterExpr) -> impl Iterator<Item = Self> {
        filter.conditions().iter().filter_map(|condition| {
            Some(Self {
                column: condition.column.clone(),
                style: condition.operator.style()?,
                source: condition.values.first()?.clone(),
            })
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut tables = self.patterns.0.lock();
        for (table, pattern) in self.held.drain(..) {
            let Some(held) = tables.get_mut(&table) else {
                continue;
            };
            if let Some(count) = held.get_mut(&pattern) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&pattern);
                }
            }
            if held.is_empty() {
                tables.remove(&table);
            }
        }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({})", self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use realtime_core::filter::FilterLimits;

    use super::*;

    fn filter(text: &str) -> FilterExpr {
        FilterExpr::parse(text, &FilterLimits::default())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_tables_patterns_are_counted_once_each_and_given_back() {
        let patterns = Patterns::default();
        let hold = |project: &str, table: &str, filters: &[&str]| {
            let filters: Vec<FilterExpr> = filters.iter().map(|text| filter(text)).collect();
            let each = filters.iter().enumerate();
            let each = each.map(|(place, filter)| (place, TableRef::new("public", table), filter));
            patterns.hold(&ProjectId::parse(project).unwrap(), each, 2)
        };
        let one = hold("p", "t", &["a=like.x%", "b=eq.1", "a=not.like.x%,b=match.^x"]).unwrap();
        let same = hold("p", "t", &["a=like.x%"]).unwrap();
        // Another column, another language, another text: each is run for itself. None is half held.
        for other in ["c=like.x%", "a=ilike.x%", "a=like.y%"] {
            assert_eq!(hold("p", "t", &["a=like.x%", other]).unwrap_err(), 1);
        }
        assert!(hold("p", "u", &["a=like.1%", "a=like.2%"]).is_ok());
        assert!(hold("q", "t", &["a=like.1%", "a=like.2%"]).is_ok());
        drop(one);
        assert!(hold("p", "t", &["a=like.1%", "a=like.2%"]).is_err());
        let other = hold("p", "t", &["a=like.1%"]).unwrap();
        drop(same);
        assert!(hold("p", "t", &["a=like.2%"]).is_ok());
        drop(other);
        assert!(patterns.0.lock().is_empty());
    }
}
