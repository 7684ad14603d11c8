//! A set of bindings: added, taken out and counted in constant time, and walked in a line.
//!
//! Must never grow with what was taken out again.

use super::FxMap;

/// A place in the index's table of bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u32);

/// A set of slots.
#[derive(Debug, Default)]
pub struct Postings {
    slots: Vec<Slot>,
    /// Where each slot is, once a search along the line would be too long.
    places: Option<Box<FxMap<Slot, u32>>>,
}

/// Up to so many slots are searched along the line.
const SHORT: usize = 16;

impl Slot {
    pub fn from_index(index: usize) -> Self {
        Self(index as u32)
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Postings {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied()
    }

    /// Adds a slot that is not in the set.
    pub fn insert(&mut self, slot: Slot) {
        self.slots.push(slot);
        if let Some(places) = &mut self.places {
            places.insert(slot, self.slots.len() as u32 - 1);
        } else if self.slots.len() > SHORT {
            self.places = Some(Box::new(self.slots.iter().copied().zip(0..).collect()));
        }
    }

    /// Takes a slot out; the last takes its place.
    pub fn remove(&mut self, slot: Slot) {
        let place = match &mut self.places {
            Some(places) => places.remove(&slot).map(|place| place as usize),
            None => self.slots.iter().position(|one| *one == slot),
        };
        let Some(place) = place else { return };
        self.slots.swap_remove(place);
        if self.slots.len() <= SHORT / 2 {
            self.places = None;
            self.slots.shrink_to(SHORT);
        } else if let (Some(places), Some(moved)) = (&mut self.places, self.slots.get(place)) {
            places.insert(*moved, place as u32);
        }
    }
}
