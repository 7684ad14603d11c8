//! Two-sided ranges on one column, found by a value between their ends.
//!
//! Must never walk over windows that the value is outside of. Ends are taken as included; who
//! excludes one checks that by itself.
//!
//! Keys are strings of bits in their order. All values of a window begin with the bits that its two ends have in
//! common, so a window is held at that common prefix, where its ends part: the low end goes on with
//! 0, or is the prefix itself, and the high end goes on with 1. A value therefore only has to be
//! compared with the windows held at its own prefixes, and at each of them with one end only, because its
//! next bit decides the other.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::FxMap;
use super::postings::{Postings, Slot};
use crate::value::Key;

/// A set of windows, by the length in bits of the prefix where they are held, then by the prefix.
#[derive(Debug, Default)]
pub struct Windows {
    by_length: BTreeMap<usize, FxMap<Box<[u8]>, Node>>,
}

/// The windows held at one prefix.
#[derive(Debug, Default)]
struct Node {
    /// Those whose ends part by the next bit, once by each end.
    parted_by_low: BTreeMap<Key, Postings>,
    parted_by_high: BTreeMap<Key, Postings>,
    /// Those whose low end is the prefix itself, by the high end.
    rooted_by_high: BTreeMap<Key, Postings>,
}

/// Where a window is held.
struct Place {
    bits: usize,
    rooted: bool,
}

impl Windows {
    pub fn is_empty(&self) -> bool {
        self.by_length.is_empty()
    }

    /// Adds a window; `low` must not be above `high`.
    pub fn insert(&mut self, slot: Slot, low: &Key, high: &Key) {
        let Place { bits, rooted } = place(low, high);
        let nodes = self.by_length.entry(bits).or_default();
        let node = nodes.entry(prefix(low, bits).into()).or_default();
        if rooted {
            node.rooted_by_high.entry(high.clone()).or_default().insert(slot);
        } else {
            node.parted_by_low.entry(low.clone()).or_default().insert(slot);
            node.parted_by_high.entry(high.clone()).or_default().insert(slot);
        }
    }

    pub fn remove(&mut self, slot: Slot, low: &Key, high: &Key) {
        let Place { bits, rooted } = place(low, high);
        let prefix = prefix(low, bits);
        let Some(nodes) = self.by_length.get_mut(&bits) else {
            return;
        };
        let Some(node) = nodes.get_mut(&*prefix) else {
            return;
        };
        if rooted {
            remove_from(&mut node.rooted_by_high, high, slot);
        } else {
            remove_from(&mut node.parted_by_low, low, slot);
            remove_from(&mut node.parted_by_high, high, slot);
        }
        if node.parted_by_high.is_empty() && node.rooted_by_high.is_empty() {
            nodes.remove(&*prefix);
        }
        if nodes.is_empty() {
            self.by_length.remove(&bits);
        }
    }

    /// Hands over every set of windows around a value, each once, and counts the prefixes looked at.
    pub fn around<'a>(&'a self, key: &[u8], looked_at: &mut usize, mut take: impl FnMut(&'a Postings)) {
        for (bits, nodes) in self.by_length.range(..=key.len() * 8) {
            *looked_at += 1;
            let Some(node) = nodes.get(&*prefix(key, *bits)) else {
                continue;
            };
            let from_key = (Bound::Included(key), Bound::Unbounded);
            node.rooted_by_high
                .range::<[u8], _>(from_key)
                .for_each(|(_, postings)| take(postings));
            match bit(key, *bits) {
                Some(true) => {
                    let behind = node.parted_by_high.range::<[u8], _>(from_key);
                    behind.for_each(|(_, postings)| take(postings));
                }
                Some(false) => {
                    let before = node
                        .parted_by_low
                        .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
                    before.for_each(|(_, postings)| take(postings));
                }
                // The value ends here: every low end goes on, and so is above it.
                None => {}
            }
        }
    }
}

/// Where the ends of a window part.
fn place(low: &[u8], high: &[u8]) -> Place {
    let same = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    match (low.get(same), high.get(same)) {
        (Some(a), Some(b)) => Place {
            bits: same * 8 + (a ^ b).leading_zeros() as usize,
            rooted: false,
        },
        _ => Place {
            bits: low.len() * 8,
            rooted: true,
        },
    }
}

/// The first bits of a key, filled up with 0 to whole bytes. The key must have so many.
fn prefix(key: &[u8], bits: usize) -> Vec<u8> {
    let mut prefix = key[..bits.div_ceil(8)].to_vec();
    if let (Some(last), rest @ 1..) = (prefix.last_mut(), bits % 8) {
        *last &= !(u8::MAX >> rest);
    }
    prefix
}

fn bit(key: &[u8], at: usize) -> Option<bool> {
    key.get(at / 8).map(|byte| byte & (1 << (7 - at % 8)) != 0)
}

fn remove_from(map: &mut BTreeMap<Key, Postings>, key: &Key, slot: Slot) {
    let Some(postings) = map.get_mut(key) else { return };
    postings.remove(slot);
    if postings.is_empty() {
        map.remove(key);
    }
}
