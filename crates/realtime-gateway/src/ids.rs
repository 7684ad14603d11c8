//! The numbers that bindings go by on the wire.
//!
//! Must never give one number to two sets of parameters while the gateway lives: a client would
//! fire the wrong callback. Equal parameters share a number, so that their frames are one frame.

use std::sync::Arc;

use parking_lot::Mutex;
use realtime_core::id::{BindingId, ProjectId};
use realtime_core::index::EventFilter;
use realtime_core::wire::phoenix::BindingParams;
use rustc_hash::FxHashMap;

/// Gives numbers to bindings. Cloning shares the numbers.
#[derive(Clone, Default)]
pub struct Interner(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Rises only: a number that was let go is never given again.
    next: u64,
    ids: FxHashMap<Key, (BindingId, usize)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    project: ProjectId,
    event: EventFilter,
    schema: Option<Box<str>>,
    table: Option<Box<str>>,
    filter: Option<Box<str>>,
    select: Option<Box<[Box<str>]>>,
    /// How many equal bindings stand before this one in its channel.
    ordinal: usize,
}

/// The numbers of one channel's bindings, in the bindings' order. They are kept for as long as
/// anybody holds one of these for the same parameters.
pub struct ChannelIds {
    interner: Interner,
    keys: Box<[Key]>,
    ids: Box<[BindingId]>,
}

impl Interner {
    /// The numbers of a channel's bindings; `None` once all numbers are used up.
    pub fn intern(&self, project: &ProjectId, bindings: &[BindingParams]) -> Option<ChannelIds> {
        let mut equals: FxHashMap<Key, usize> = FxHashMap::default();
        let keys: Box<[Key]> = bindings
            .iter()
            .map(|binding| {
                let mut key = Key {
                    project: project.clone(),
                    event: binding.event,
                    schema: binding.schema.clone(),
                    table: binding.table.clone(),
                    filter: binding.filter.clone(),
                    select: binding.select.clone(),
                    ordinal: 0,
                };
                let seen = equals.entry(key.clone()).or_default();
                key.ordinal = *seen;
                *seen += 1;
                key
            })
            .collect();
        let ids = self.0.lock().take(&keys)?;
        Some(ChannelIds {
            interner: self.clone(),
            keys,
            ids,
        })
    }
}

impl Table {
    fn take(&mut self, keys: &[Key]) -> Option<Box<[BindingId]>> {
        // Checked before anything is taken: either all of a channel's numbers or none.
        BindingId::from_ordinal(self.next + keys.len() as u64)?;
        let mut ids = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some((id, uses)) = self.ids.get_mut(key) {
                *uses += 1;
                ids.push(*id);
                continue;
            }
            let id = BindingId::from_ordinal(self.next)?;
            self.next += 1;
            self.ids.insert(key.clone(), (id, 1));
            ids.push(id);
        }
        Some(ids.into())
    }
}

impl ChannelIds {
    /// The numbers.
    pub fn as_slice(&self) -> &[BindingId] {
        &self.ids
    }
}

impl Drop for ChannelIds {
    fn drop(&mut self) {
        let mut table = self.interner.0.lock();
        for key in &self.keys {
            if let Some((_, uses)) = table.ids.get_mut(key) {
                *uses -= 1;
                if *uses == 0 {
                    table.ids.remove(key);
                }
            }
        }
    }
}

/// Filters carry values: only the numbers are shown.
impl std::fmt::Debug for ChannelIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.ids.iter().map(|id| id.get()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(interner: &Interner, project: &str, bindings: &[&str]) -> ChannelIds {
        let bindings: Vec<_> = bindings
            .iter()
            .map(|json| BindingParams::parse(json).unwrap())
            .collect();
        interner
            .intern(&ProjectId::parse(project).unwrap(), &bindings)
            .unwrap()
    }

    const NOTES: &str = r#"{"event":"*","schema":"public","table":"notes"}"#;
    const ROOM: &str = r#"{"event":"*","schema":"public","table":"notes","filter":"room=eq.1"}"#;

    #[test]
    fn equal_parameters_share_a_number_and_others_do_not() {
        let interner = Interner::default();
        let a = ids(&interner, "a", &[NOTES, ROOM, NOTES]);
        let [first, room, second] = *a.as_slice() else {
            panic!("three ids")
        };
        assert!(first != second && first != room && second != room && first.get() != 0);
        let b = ids(&interner, "a", &[NOTES]);
        assert_eq!(b.as_slice(), [first]);
        let elsewhere = ids(&interner, "b", &[NOTES]);
        assert!(!a.as_slice().contains(&elsewhere.as_slice()[0]));
    }

    #[test]
    fn another_selection_has_another_number() {
        let interner = Interner::default();
        let all = ids(&interner, "a", &[NOTES, r#"{"table":"notes","select":["id"]}"#]);
        let same = ids(&interner, "a", &[r#"{"table":"notes","select":"id"}"#]);
        assert!(all.as_slice()[0] != all.as_slice()[1] && all.as_slice()[1] == same.as_slice()[0]);
    }

    #[test]
    fn a_number_is_never_given_to_other_parameters() {
        let interner = Interner::default();
        let mut meaning = FxHashMap::default();
        for n in 0..1_000 {
            let json = format!(r#"{{"table":"notes","filter":"room=eq.{}"}}"#, n % 7);
            let held = ids(&interner, "a", &[&json, NOTES]);
            for (id, text) in held.as_slice().iter().zip([json.as_str(), NOTES]) {
                assert_eq!(meaning.entry(*id).or_insert_with(|| text.to_owned()), text);
            }
        }
        // Nothing is kept for channels that are gone.
        assert!(interner.0.lock().ids.is_empty());
    }
}
