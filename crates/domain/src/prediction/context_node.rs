//! The outcomes of one context.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::num::to_f64;

type OutcomeCount = (u32, f32);

/// The outcomes of one context: the sum of all weights, and the outcomes with their weights,
/// ascending by outcome; at least one. Most contexts have one or two outcomes, which are stored
/// inline; more are stored in an allocation of exact size.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ContextNode {
    One { total: f32, of: [OutcomeCount; 1] },
    Two { total: f32, of: [OutcomeCount; 2] },
    Many { total: f32, of: Box<[OutcomeCount]> },
}

impl ContextNode {
    pub(super) fn new(outcome: u32, weight: f32) -> Self {
        Self::One {
            total: weight,
            of: [(outcome, weight)],
        }
    }

    /// Returns a node with these outcomes; `None` if there are none.
    fn from_outcomes(total: f32, of: Vec<OutcomeCount>) -> Option<Self> {
        Some(match *of.as_slice() {
            [] => return None,
            [one] => Self::One { total, of: [one] },
            [one, two] => Self::Two {
                total,
                of: [one, two],
            },
            _ => Self::Many {
                total,
                of: of.into_boxed_slice(),
            },
        })
    }

    /// Returns the sum of all stored weights.
    pub(super) fn stored_total(&self) -> f32 {
        match self {
            Self::One { total, .. } | Self::Two { total, .. } | Self::Many { total, .. } => *total,
        }
    }

    /// Returns the outcomes with their stored weights.
    pub(super) fn outcomes(&self) -> &[OutcomeCount] {
        match self {
            Self::One { of, .. } => of,
            Self::Two { of, .. } => of,
            Self::Many { of, .. } => of,
        }
    }

    pub(super) fn outcomes_mut(&mut self) -> &mut [OutcomeCount] {
        match self {
            Self::One { of, .. } => of,
            Self::Two { of, .. } => of,
            Self::Many { of, .. } => of,
        }
    }

    /// Returns the sum of all weights at this scale.
    pub(super) fn total(&self, scale: f64) -> f64 {
        f64::from(self.stored_total()) * scale
    }

    /// Returns the number of different outcomes.
    pub(super) fn n_different(&self) -> f64 {
        to_f64(self.outcomes().len())
    }

    /// Returns the weight of an outcome at this scale.
    pub(super) fn count(&self, outcome: u32, scale: f64) -> f64 {
        let of = self.outcomes();
        of.binary_search_by_key(&outcome, |(outcome, _)| *outcome)
            .map_or(0.0, |at| f64::from(of[at].1) * scale)
    }

    pub(super) fn each(&self, scale: f64) -> impl Iterator<Item = (usize, f64)> + use<'_> {
        (self.outcomes().iter())
            .map(move |(outcome, count)| (*outcome as usize, f64::from(*count) * scale))
    }

    /// Adds to an outcome. Returns its new stored weight and whether it is a new outcome.
    pub(super) fn add(&mut self, outcome: u32, weight: f32) -> (f32, bool) {
        let all = self.stored_total() + weight;
        let of = self.outcomes_mut();
        let found = of.binary_search_by_key(&outcome, |(outcome, _)| *outcome);
        let added = match found {
            Ok(at) => {
                of[at].1 += weight;
                (of[at].1, false)
            }
            Err(at) => {
                self.insert(at, (outcome, weight));
                (weight, true)
            }
        };
        match self {
            Self::One { total, .. } | Self::Two { total, .. } | Self::Many { total, .. } => {
                *total = all;
            }
        }
        added
    }

    fn insert(&mut self, at: usize, new: OutcomeCount) {
        let total = self.stored_total();
        *self = match self {
            Self::One { of: [one], .. } => Self::Two {
                total,
                of: if at == 0 { [new, *one] } else { [*one, new] },
            },
            Self::Two { of, .. } => {
                let mut of = of.to_vec();
                of.insert(at, new);
                Self::Many {
                    total,
                    of: of.into_boxed_slice(),
                }
            }
            Self::Many { of, .. } => {
                let mut of = std::mem::take(of).into_vec();
                of.reserve_exact(1);
                of.insert(at, new);
                Self::Many {
                    total,
                    of: of.into_boxed_slice(),
                }
            }
        };
    }

    /// Keeps the outcomes with accepted weights, and computes the total again. Returns whether any
    /// are left.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(f32) -> bool) -> bool {
        let of = self.outcomes_mut();
        let mut n_kept = 0;
        for at in 0..of.len() {
            if is_kept(of[at].1) {
                of[n_kept] = of[at];
                n_kept += 1;
            }
        }
        let all = of[..n_kept].iter().map(|(_, count)| *count).sum();
        if let Self::Many { total, of } = self
            && n_kept > 2
        {
            let mut kept = std::mem::take(of).into_vec();
            kept.truncate(n_kept);
            (*total, *of) = (all, kept.into_boxed_slice());
            return true;
        }
        let Some(node) = Self::from_outcomes(all, self.outcomes()[..n_kept].to_vec()) else {
            return false;
        };
        *self = node;
        true
    }

    /// Returns whether all numbers are finite and not negative, and outcomes are sorted.
    pub(super) fn is_sound(&self) -> bool {
        let is_weight = |count: f32| count.is_finite() && count >= 0.0;
        let of = self.outcomes();
        is_weight(self.stored_total())
            && of.iter().all(|(_, count)| is_weight(*count))
            && of.is_sorted_by(|a, b| a.0 < b.0)
    }
}

impl Serialize for ContextNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.stored_total(), self.outcomes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ContextNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (total, of) = <(f32, Vec<OutcomeCount>)>::deserialize(deserializer)?;
        Self::from_outcomes(total, of).ok_or_else(|| D::Error::custom("a context without outcomes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_kept_in_order() {
        let mut node = ContextNode::new(5, 1.0);
        for (outcome, is_new) in [(2, true), (9, true), (2, false), (7, true), (0, true)] {
            assert_eq!(node.add(outcome, 1.0).1, is_new);
            assert!(node.is_sound());
        }
        let outcomes = [(0, 1.0), (2, 2.0), (5, 1.0), (7, 1.0), (9, 1.0)];
        assert_eq!((node.outcomes(), node.stored_total()), (&outcomes[..], 6.0));
        assert!(node.retain(|count| count > 1.5));
        assert_eq!(
            (node.outcomes(), node.stored_total()),
            (&outcomes[1..2], 2.0)
        );
        assert!(!node.retain(|_| false));
        assert_eq!(size_of::<ContextNode>(), 24);
    }
}
