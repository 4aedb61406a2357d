//! Counts of a whole that is made of parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tables::Tables;

/// Counts of a whole and of its parts. As long as it has one part alone, that has the same counts,
/// and they are kept once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Whole {
    pub(super) all: Tables,
    /// The part that is the whole.
    only: Option<u64>,
    parts: BTreeMap<u64, Tables>,
}

impl Whole {
    /// Returns the counts of a part.
    pub(super) fn part(&self, key: u64) -> Option<&Tables> {
        if self.only == Some(key) {
            return Some(&self.all);
        }
        self.parts.get(&key)
    }

    /// Makes sure that a part has counts, where there is room for it among `most`. What is told
    /// apart from then on is what `part_of` makes of the whole for the part that was the only one.
    pub(super) fn enter(&mut self, key: u64, most: usize, part_of: impl FnOnce(&Tables) -> Tables) {
        match self.only {
            Some(only) if only == key => {}
            Some(only) => {
                self.parts.insert(only, part_of(&self.all));
                self.parts.insert(key, Tables::default());
                self.only = None;
            }
            None if self.all.is_empty() => self.only = Some(key),
            None if self.parts.len() < most => {
                self.parts.entry(key).or_default();
            }
            None => {}
        }
    }

    /// Returns the whole, and the part where it has counts of its own.
    pub(super) fn both_mut(&mut self, key: u64) -> (&mut Tables, Option<&mut Tables>) {
        (&mut self.all, self.parts.get_mut(&key))
    }

    /// Returns all that is kept.
    pub(super) fn each(&self) -> impl Iterator<Item = &Tables> {
        std::iter::once(&self.all).chain(self.parts.values())
    }

    /// Multiplies all weights, drops what is then below `least`, and forgets parts without any.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.all.rescale(factor, least);
        for part in self.parts.values_mut() {
            part.rescale(factor, least);
        }
        self.parts.retain(|_, part| !part.is_empty());
        if self.all.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(whole: &mut Whole, part: u64, outcome: u32) {
        whole.enter(part, 2, Tables::clone);
        let (all, part) = whole.both_mut(part);
        for tables in std::iter::once(all).chain(part) {
            tables.counts.add(1, outcome, 1.0);
        }
    }

    fn total(tables: Option<&Tables>) -> Option<f64> {
        let node = tables?.counts.node(1)?;
        Some(node.total(1.0))
    }

    #[test]
    fn parts_are_told_apart_from_the_second_one_on_as_if_they_had_always_been() {
        let mut whole = Whole::default();
        for outcome in [3, 3, 4] {
            learn(&mut whole, 7, outcome);
        }
        assert_eq!((whole.each().count(), total(whole.part(7))), (1, Some(3.0)));
        assert_eq!(total(whole.part(8)), None);
        learn(&mut whole, 8, 3);
        learn(&mut whole, 9, 5);
        assert_eq!(total(Some(&whole.all)), Some(5.0));
        assert_eq!(total(whole.part(7)), Some(3.0));
        assert_eq!(total(whole.part(8)), Some(1.0));
        assert_eq!(total(whole.part(9)), None, "there is room for two");
        whole.rescale(0.4, 0.5);
        assert!(total(whole.part(7)).is_some() && whole.part(8).is_none());
        whole.rescale(0.1, 0.5);
        learn(&mut whole, 8, 3);
        assert_eq!((whole.each().count(), total(whole.part(8))), (1, Some(1.0)));
    }
}
