//! Partitioned counts: a total, and the counts of each part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tables::ScopeTables;

/// The counts of all parts together, and of each part. With only one part both are the same, and
/// they are stored once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartitionedCounts {
    pub(super) all: ScopeTables,
    /// The part that is equal to the total.
    only: Option<u64>,
    parts: BTreeMap<u64, ScopeTables>,
}

impl PartitionedCounts {
    /// Returns the counts of a part.
    pub(super) fn part(&self, key: u64) -> Option<&ScopeTables> {
        if self.only == Some(key) {
            return Some(&self.all);
        }
        self.parts.get(&key)
    }

    /// Creates counts for a part, unless there are `most` parts already. At the second part,
    /// `part_of` computes the counts of the first part from the total.
    pub(super) fn ensure_part(
        &mut self,
        key: u64,
        most: usize,
        part_of: impl FnOnce(&ScopeTables) -> ScopeTables,
    ) {
        match self.only {
            Some(only) if only == key => {}
            Some(only) => {
                self.parts.insert(only, part_of(&self.all));
                self.parts.insert(key, ScopeTables::default());
                self.only = None;
            }
            None if self.all.is_empty() => self.only = Some(key),
            None if self.parts.len() < most => {
                self.parts.entry(key).or_default();
            }
            None => {}
        }
    }

    /// Returns the total, and the counts of the part if it has separate ones.
    pub(super) fn total_and_part_mut(
        &mut self,
        key: u64,
    ) -> (&mut ScopeTables, Option<&mut ScopeTables>) {
        (&mut self.all, self.parts.get_mut(&key))
    }

    /// Returns all stored counts.
    pub(super) fn each(&self) -> impl Iterator<Item = &ScopeTables> {
        std::iter::once(&self.all).chain(self.parts.values())
    }

    /// Multiplies all weights, drops entries that are then below `least`, and removes empty parts.
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

    fn learn(whole: &mut PartitionedCounts, part: u64, outcome: u32) {
        whole.ensure_part(part, 2, ScopeTables::clone);
        let (all, part) = whole.total_and_part_mut(part);
        for tables in std::iter::once(all).chain(part) {
            tables.counts.add(1, outcome, 1.0);
        }
    }

    fn total(tables: Option<&ScopeTables>) -> Option<f64> {
        let node = tables?.counts.node(1)?;
        Some(node.total(1.0))
    }

    #[test]
    fn a_second_part_separates_the_counts_of_the_first() {
        let mut whole = PartitionedCounts::default();
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
