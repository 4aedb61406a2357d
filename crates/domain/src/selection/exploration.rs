//! Exploration of list sizes: some lists have a size that was drawn at random, with a known
//! probability. So the cost of every size can be estimated without the bias of the rule that would
//! have decided.
//!
//! Let k be the number of candidate sizes and ε the share of explored lists. A size `a` is shown
//! with the probability `p(a) = ε / k + (1 - ε) [a = greedy]`. This mixture is the logging policy,
//! and `p(a)` of the shown size is its propensity. The numbers of a draw come from outside: this
//! module draws nothing itself.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::bounds::ListBounds;
use super::decision::ShowAllReason;
use super::size::{LIST_SIZES, ListSize};
use crate::num::to_f64;

/// The number of values of each number of a [`SizeDraw`]: 2^32.
const DRAW_VALUES: f64 = 4_294_967_296.0;
/// The largest difference between a stored propensity and the one of its mixture, as a share of the
/// latter. Text forms of databases round less than this.
const TOLERANCE: f64 = 1e-9;

/// The share of lists whose size is drawn at random: a finite number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct ExplorationShare(f64);

/// The probability with which a size was shown: a finite number above 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Propensity(f64);

// Neither type holds NaN.
impl Eq for ExplorationShare {}
impl Eq for Propensity {}

/// The error for a size choice that no logging policy makes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SizeChoiceError {
    /// The share is not a number from 0 to 1.
    #[error("the share of explored lists must be a number from 0 to 1, not {0}")]
    Share(f64),
    /// The probability is not above 0 and at most 1.
    #[error("a propensity must be a number above 0 and at most 1, not {0}")]
    Propensity(f64),
    /// A candidate occurs twice, or the candidates and then the sizes with the list of the longest
    /// one are not in ascending order.
    #[error("the candidate sizes must be in ascending order, each of them once")]
    Candidates,
    /// The shown size or the size of the greedy rule is not a candidate.
    #[error("the size {0} is not one of the candidate sizes")]
    NoCandidate(ListSize),
    /// The propensity differs from the probability of the shown size.
    #[error(
        "the propensity is {found}, but the mixture shows the size with probability {expected}"
    )]
    OtherPropensity {
        /// The stored propensity.
        found: f64,
        /// The probability under the share and the candidates.
        expected: f64,
    },
}

impl ExplorationShare {
    /// Returns the share as a number from 0 to 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns whether no list is explored.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.0 <= 0.0
    }
}

impl TryFrom<f64> for ExplorationShare {
    type Error = SizeChoiceError;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(SizeChoiceError::Share(value))
        }
    }
}

impl From<ExplorationShare> for f64 {
    fn from(share: ExplorationShare) -> Self {
        share.0
    }
}

impl Propensity {
    /// The probability of a size that is shown in any case.
    pub const CERTAIN: Self = Self(1.0);

    /// Returns the probability, above 0 and at most 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Propensity {
    type Error = SizeChoiceError;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        if value > 0.0 && value <= 1.0 {
            Ok(Self(value))
        } else {
            Err(SizeChoiceError::Propensity(value))
        }
    }
}

impl From<Propensity> for f64 {
    fn from(propensity: Propensity) -> Self {
        propensity.0
    }
}

/// Two independent uniform numbers, by which a size is drawn. Each is a count of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SizeDraw {
    /// Decides whether the list is explored.
    pub coin: u32,
    /// Decides the candidate size of an explored list.
    pub place: u32,
}

impl SizeDraw {
    /// Returns the draw of a unit, such as the epoch of a list. Equal seeds and units have equal
    /// draws; draws of different ones are independent.
    #[must_use]
    pub fn of_unit(seed: u64, unit: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(seed.to_be_bytes());
        digest.update(unit);
        let digest: [u8; 32] = digest.finalize().into();
        let word = |from: usize| {
            let bytes = digest.iter().skip(from).take(4);
            bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        Self {
            coin: word(0),
            place: word(4),
        }
    }

    fn explores(self, share: ExplorationShare) -> bool {
        f64::from(self.coin) < share.get() * DRAW_VALUES
    }

    /// Returns one of `n` positions, each with the same probability; 0 for `n` of 0.
    fn position(self, n: usize) -> usize {
        let n = u64::try_from(n)
            .unwrap_or(u64::MAX)
            .min(u64::from(u32::MAX));
        usize::try_from((u64::from(self.place) * n) >> 32).unwrap_or(0)
    }
}

/// The decision about a list size under exploration, with everything that its probability depends
/// on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeChoice {
    /// The size of the list.
    pub size: ListSize,
    /// The size that the greedy rule would have decided: the one with the lowest expected cost.
    pub greedy: ListSize,
    /// The share of explored lists.
    pub share: ExplorationShare,
    /// The sizes of which an explored list gets one, ascending. Their lists differ from each other.
    pub candidates: Vec<ListSize>,
    /// Larger sizes, ascending, with the same list as the largest candidate, because no further tool
    /// fits. They share its probability.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_as_largest: Vec<ListSize>,
    /// The probability with which this size was shown.
    pub propensity: Propensity,
    /// The draw. Lists with the same draw are not independent of each other.
    pub draw: SizeDraw,
}

impl SizeChoice {
    /// Decides the size by a draw: with the probability `share` one of the candidates, else the
    /// size of the greedy rule. The greedy size is always a candidate.
    #[must_use]
    pub fn new(
        greedy: ListSize,
        mut candidates: Vec<ListSize>,
        share: ExplorationShare,
        draw: SizeDraw,
    ) -> Self {
        candidates.push(greedy);
        candidates.sort_unstable();
        candidates.dedup();
        let size = if draw.explores(share) {
            let at = draw.position(candidates.len());
            candidates.get(at).copied().unwrap_or(greedy)
        } else {
            greedy
        };
        let mut choice = Self {
            size,
            greedy,
            share,
            candidates,
            same_as_largest: Vec::new(),
            propensity: Propensity::CERTAIN,
            draw,
        };
        // Above 0: the size is the greedy one, or a candidate under a share above 0.
        let probability = choice.probability(size);
        choice.propensity = Propensity::try_from(probability).unwrap_or(Propensity::CERTAIN);
        choice
    }

    /// Returns the candidate with the same list as a size; the size itself if there is none.
    #[must_use]
    pub fn effective(&self, size: ListSize) -> ListSize {
        let largest = self.candidates.last().copied();
        largest
            .filter(|_| self.same_as_largest.contains(&size))
            .unwrap_or(size)
    }

    /// Returns the probability with which the mixture shows the list of a size: 0 for one that is no
    /// candidate.
    #[must_use]
    pub fn probability(&self, size: ListSize) -> f64 {
        let size = self.effective(size);
        if !self.candidates.contains(&size) {
            return 0.0;
        }
        let explored = self.share.get() / to_f64(self.candidates.len());
        if size == self.greedy {
            (explored + (1.0 - self.share.get())).min(1.0)
        } else {
            explored
        }
    }

    /// Returns whether the size was drawn at random. It can still be the size of the greedy rule.
    #[must_use]
    pub fn is_explored(&self) -> bool {
        self.draw.explores(self.share)
    }

    /// Validates a choice from outside.
    ///
    /// # Errors
    ///
    /// Returns [`SizeChoiceError`] if candidates are out of order, if the size or the greedy size
    /// is none of them, or if the propensity is not the probability of the size.
    pub fn check(&self) -> Result<(), SizeChoiceError> {
        let sizes = self.candidates.iter().chain(&self.same_as_largest);
        if !sizes.is_sorted_by(|a, b| a < b) {
            return Err(SizeChoiceError::Candidates);
        }
        let missing = [self.size, self.greedy]
            .into_iter()
            .find(|size| !self.candidates.contains(size));
        if let Some(size) = missing {
            return Err(SizeChoiceError::NoCandidate(size));
        }
        let (found, expected) = (self.propensity.get(), self.probability(self.size));
        // A share of the probability: a weight is its inverse, so a small one must be as exact.
        if (found - expected).abs() > TOLERANCE * expected {
            return Err(SizeChoiceError::OtherPropensity { found, expected });
        }
        Ok(())
    }
}

/// The limits of an explored list.
#[derive(Clone, Copy, Debug)]
pub struct ExploredCatalog<'a> {
    /// Number of tools that may be shown.
    pub n_tools: usize,
    /// Number of tokens of all their definitions.
    pub all_tokens: u64,
    /// Number of tools that fit into the token budget, without those that are shown in any case.
    pub n_fitting: usize,
    /// The bounds of the list.
    pub bounds: &'a ListBounds,
}

impl ExploredCatalog<'_> {
    /// Decides a list size by a draw in place of the greedy rule, whose decision is `greedy`.
    ///
    /// Candidates are the [`LIST_SIZES`] below the size of the catalog, within the bounds. All
    /// tools are a candidate if they fit into the bounds, or if the greedy rule shows all. Of sizes
    /// with the same list, the smallest is the candidate of all.
    ///
    /// Returns `None` if nothing is explored: the share is 0, or the greedy rule did not compare
    /// sizes, because the catalog is small or no session was learned from.
    #[must_use]
    pub fn explore(
        &self,
        greedy: Result<usize, ShowAllReason>,
        share: ExplorationShare,
        draw: SizeDraw,
    ) -> Option<SizeChoice> {
        let greedy = compared_size(greedy).filter(|_| !share.is_off())?;
        let bounds = self.bounds;
        let shorter = LIST_SIZES.into_iter().filter(|size| *size < self.n_tools);
        let mut candidates: Vec<ListSize> = shorter
            .map(|size| size.clamp(self.least_tools(), bounds.max_tools))
            .filter(|size| *size < self.n_tools)
            .map(ListSize::Tools)
            .collect();
        if self.n_tools <= bounds.max_tools && self.fits_budget() {
            candidates.push(ListSize::All);
        }
        candidates.push(greedy);
        candidates.sort_unstable();
        candidates.dedup();
        // A longer list only adds tools, so the sizes with equal lists are the largest ones.
        let is_full = |size: &ListSize| match size {
            ListSize::Tools(n) => *n >= self.n_fitting,
            ListSize::All => true,
        };
        let n_distinct =
            (candidates.iter().position(is_full)).map_or(candidates.len(), |at| at + 1);
        let same_as_largest = candidates.split_off(n_distinct);
        let largest = candidates.last().copied();
        let greedy = largest
            .filter(|_| same_as_largest.contains(&greedy))
            .unwrap_or(greedy);
        Some(SizeChoice {
            same_as_largest,
            ..SizeChoice::new(greedy, candidates, share, draw)
        })
    }

    /// Returns an earlier decision about the same list if it can stay, whatever the greedy rule says
    /// now: sizes are still explored and compared, and its size is still within the bounds.
    #[must_use]
    pub fn keep(
        &self,
        greedy: Result<usize, ShowAllReason>,
        share: ExplorationShare,
        earlier: &SizeChoice,
    ) -> Option<SizeChoice> {
        compared_size(greedy).filter(|_| !share.is_off())?;
        let is_within = match earlier.size {
            ListSize::Tools(n) => (self.least_tools()..=self.bounds.max_tools).contains(&n),
            ListSize::All => {
                let was_shown_anyway = earlier.greedy == ListSize::All;
                self.fits_budget() && (was_shown_anyway || self.n_tools <= self.bounds.max_tools)
            }
        };
        is_within.then(|| earlier.clone())
    }

    fn least_tools(&self) -> usize {
        self.bounds.min_tools.min(self.bounds.max_tools)
    }

    fn fits_budget(&self) -> bool {
        (self.bounds.token_budget).is_none_or(|budget| self.all_tokens <= budget)
    }
}

/// Returns the size that the greedy rule decided by comparing sizes; `None` if it did not.
fn compared_size(greedy: Result<usize, ShowAllReason>) -> Option<ListSize> {
    match greedy {
        Err(ShowAllReason::SmallCatalog | ShowAllReason::ColdStart) => None,
        Err(ShowAllReason::NotPaying) => Some(ListSize::All),
        Ok(n) => Some(ListSize::Tools(n)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(value: f64) -> ExplorationShare {
        ExplorationShare::try_from(value).unwrap()
    }

    fn tools(sizes: &[usize]) -> Vec<ListSize> {
        sizes.iter().copied().map(ListSize::Tools).collect()
    }

    fn candidates(n_tools: usize, bounds: ListBounds, greedy: usize) -> Vec<ListSize> {
        let catalog = ExploredCatalog {
            n_tools,
            all_tokens: 100 * n_tools as u64,
            n_fitting: n_tools,
            bounds: &bounds,
        };
        let draw = SizeDraw::of_unit(1, "unit");
        let choice = catalog.explore(Ok(greedy), share(0.5), draw).unwrap();
        assert_eq!((choice.check(), choice.same_as_largest.len()), (Ok(()), 0));
        choice.candidates
    }

    #[test]
    fn candidates_stay_within_the_bounds() {
        let bounds = |min_tools, max_tools, token_budget| ListBounds {
            min_tools,
            max_tools,
            token_budget,
        };
        assert_eq!(
            candidates(500, bounds(5, 20, None), 10),
            tools(&[5, 10, 20])
        );
        assert_eq!(
            candidates(500, bounds(8, 30, None), 30),
            tools(&[8, 10, 20, 30])
        );
        assert_eq!(
            candidates(500, bounds(5, 100, None), 20),
            tools(&[5, 10, 20, 40, 80])
        );
        let mut all = tools(&[5, 10, 20]);
        all.push(ListSize::All);
        assert_eq!(candidates(30, bounds(5, 30, None), 10), all);
        assert_eq!(
            candidates(30, bounds(5, 30, Some(2_999)), 10),
            tools(&[5, 10, 20])
        );
    }

    #[test]
    fn the_whole_list_is_explored_if_the_greedy_rule_shows_it() {
        let bounds = ListBounds::default();
        let catalog = ExploredCatalog {
            n_tools: 60,
            all_tokens: 6_000,
            n_fitting: 60,
            bounds: &bounds,
        };
        let draw = SizeDraw::of_unit(1, "unit");
        let explore = |greedy, value| catalog.explore(greedy, share(value), draw);
        let choice = explore(Err(ShowAllReason::NotPaying), 1.0).unwrap();
        assert_eq!(choice.greedy, ListSize::All);
        assert_eq!(choice.candidates.len(), 4);
        assert!((choice.propensity.get() - 0.25).abs() < 1e-12);
        for unexplored in [ShowAllReason::SmallCatalog, ShowAllReason::ColdStart] {
            assert_eq!(explore(Err(unexplored), 1.0), None);
        }
        assert_eq!(explore(Ok(10), 0.0), None);
    }

    #[test]
    fn sizes_with_equal_lists_share_their_probability() {
        let bounds = ListBounds {
            min_tools: 5,
            max_tools: 100,
            token_budget: Some(1_200),
        };
        let catalog = ExploredCatalog {
            n_tools: 500,
            all_tokens: 50_000,
            n_fitting: 12,
            bounds: &bounds,
        };
        for unit in 0..20 {
            let draw = SizeDraw::of_unit(1, &unit.to_string());
            let choice = catalog.explore(Ok(40), share(0.6), draw).unwrap();
            assert_eq!(choice.check(), Ok(()));
            assert_eq!(choice.candidates, tools(&[5, 10, 20]));
            assert_eq!(choice.same_as_largest, tools(&[40, 80]));
            assert_eq!(choice.greedy, ListSize::Tools(20));
            for size in [20, 40, 80] {
                let probability = choice.probability(ListSize::Tools(size));
                assert!((probability - 0.6).abs() < 1e-12, "{probability}");
            }
            assert!((choice.probability(ListSize::Tools(5)) - 0.2).abs() < 1e-12);
            assert!(choice.probability(ListSize::All) <= 0.0);
        }
        // Of 30 tools, 20 are banned.
        let few = ExploredCatalog {
            n_tools: 30,
            all_tokens: 900,
            n_fitting: 10,
            bounds: &bounds,
        };
        let draw = SizeDraw { coin: 0, place: 0 };
        let shown = few.explore(Err(ShowAllReason::NotPaying), share(0.5), draw);
        let shown = shown.unwrap();
        assert_eq!(shown.candidates, tools(&[5, 10]));
        assert_eq!(shown.effective(ListSize::All), ListSize::Tools(10));
        assert_eq!(shown.greedy, ListSize::Tools(10));
    }

    #[test]
    fn an_earlier_choice_stays_while_its_size_is_possible() {
        let bounds = |max_tools, token_budget| ListBounds {
            min_tools: 5,
            max_tools,
            token_budget,
        };
        let keeps = |earlier: &SizeChoice, bounds: ListBounds, greedy, value| {
            let catalog = ExploredCatalog {
                n_tools: 60,
                all_tokens: 6_000,
                n_fitting: 60,
                bounds: &bounds,
            };
            let kept = catalog.keep(greedy, share(value), earlier);
            assert!(kept.is_none() || kept.as_ref() == Some(earlier));
            kept.is_some()
        };
        let draw = SizeDraw { coin: 0, place: 0 };
        let five = SizeChoice::new(ListSize::Tools(10), tools(&[5, 10]), share(0.5), draw);
        assert!(keeps(&five, bounds(20, None), Ok(20), 0.01));
        assert!(!keeps(&five, bounds(20, None), Ok(20), 0.0));
        assert!(!keeps(&five, bounds(4, None), Ok(4), 0.5));
        let cold = Err(ShowAllReason::ColdStart);
        assert!(!keeps(&five, bounds(20, None), cold, 0.5));
        let all = SizeChoice::new(ListSize::All, Vec::new(), share(0.5), draw);
        assert!(keeps(&all, bounds(20, None), Ok(20), 0.5));
        assert!(!keeps(&all, bounds(20, Some(5_999)), Ok(20), 0.5));
    }

    #[test]
    fn choices_that_contradict_themselves_are_refused() {
        let sound = SizeChoice::new(
            ListSize::Tools(10),
            tools(&[5, 10, 20]),
            share(0.3),
            SizeDraw { coin: 0, place: 0 },
        );
        assert_eq!(sound.size, ListSize::Tools(5));
        assert!((sound.propensity.get() - 0.1).abs() < 1e-12);
        assert_eq!(sound.check(), Ok(()));
        let other = |change: fn(&mut SizeChoice)| {
            let mut other = sound.clone();
            change(&mut other);
            other.check().unwrap_err().to_string()
        };
        assert!(other(|it| it.candidates.reverse()).contains("ascending order"));
        assert!(other(|it| it.size = ListSize::All).contains("size all is not one of"));
        assert!(other(|it| it.greedy = ListSize::Tools(7)).contains("size 7 is not"));
        assert!(other(|it| it.propensity = Propensity::CERTAIN).contains("propensity is 1, but"));
        assert!(other(|it| it.same_as_largest = it.candidates.clone()).contains("ascending order"));
        // However small it is, a propensity has to be right.
        let rare = SizeChoice::new(
            ListSize::Tools(10),
            tools(&[5, 10]),
            share(2e-10),
            SizeDraw { coin: 0, place: 0 },
        );
        assert_eq!((rare.size, rare.check()), (ListSize::Tools(5), Ok(())));
        let doubled = SizeChoice {
            propensity: Propensity::try_from(2e-10).unwrap(),
            ..rare
        };
        assert!(doubled.check().is_err());
        for value in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(Propensity::try_from(value).is_err());
        }
        for value in [-0.1, 1.1, f64::INFINITY, f64::NAN] {
            assert!(ExplorationShare::try_from(value).is_err());
        }
        let json = serde_json::to_string(&sound).unwrap();
        assert_eq!(serde_json::from_str::<SizeChoice>(&json).unwrap(), sound);
        let unsound = json.replace("\"5\"", "\"many\"");
        assert!(serde_json::from_str::<SizeChoice>(&unsound).is_err());
    }

    #[test]
    fn sizes_are_shown_as_often_as_their_propensity_says() {
        let candidates = tools(&[5, 10, 20, 40]);
        let greedy = ListSize::Tools(20);
        let n = 20_000_u32;
        let mut counts = std::collections::BTreeMap::new();
        for unit in 0..n {
            let draw = SizeDraw::of_unit(7, &unit.to_string());
            let choice = SizeChoice::new(greedy, candidates.clone(), share(0.4), draw);
            *counts.entry(choice.size).or_insert(0_u32) += 1;
        }
        for (size, count) in counts {
            let expected = if size == greedy { 0.7 } else { 0.1 };
            let rate = f64::from(count) / f64::from(n);
            // Five standard errors.
            let width = 5.0 * (expected * (1.0 - expected) / f64::from(n)).sqrt();
            assert!((rate - expected).abs() < width, "{size}: {rate}");
        }
    }

    proptest! {
        #[test]
        fn a_choice_is_within_the_bounds_and_its_probabilities_sum_to_one(
            n_tools in 1..300_usize, tokens in 1..500_u64, greedy in 1..100_usize,
            shows_all: bool, value in 0.001..=1.0_f64,
            (min_tools, more) in (0..30_usize, 0..120_usize),
            token_budget in proptest::option::of(0..50_000_u64),
            (coin, place) in (any::<u32>(), any::<u32>()),
        ) {
            let max_tools = (min_tools + more).max(1);
            let bounds = ListBounds { min_tools, max_tools, token_budget };
            let n_fitting = token_budget.map_or(n_tools, |budget| {
                usize::try_from(budget / tokens).unwrap().min(n_tools)
            });
            let catalog = ExploredCatalog {
                n_tools, all_tokens: tokens * n_tools as u64, n_fitting, bounds: &bounds,
            };
            let greedy = if shows_all {
                Err(ShowAllReason::NotPaying)
            } else {
                Ok(greedy.clamp(min_tools.min(max_tools), max_tools))
            };
            let draw = SizeDraw { coin, place };
            let choice = catalog.explore(greedy, share(value), draw).unwrap();
            prop_assert_eq!(choice.check(), Ok(()));
            let sum: f64 = choice.candidates.iter().map(|size| choice.probability(*size)).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
            let n_full = choice.candidates.iter().filter(|size| match size {
                ListSize::Tools(n) => *n >= n_fitting,
                ListSize::All => true,
            });
            prop_assert!(n_full.count() <= 1, "{:?}", choice.candidates);
            match choice.size {
                ListSize::Tools(n) => prop_assert!(n >= min_tools.min(max_tools) && n <= max_tools),
                ListSize::All => {
                    let fits = token_budget.is_none_or(|budget| catalog.all_tokens <= budget);
                    prop_assert!(shows_all || (n_tools <= max_tools && fits));
                }
            }
        }
    }
}
