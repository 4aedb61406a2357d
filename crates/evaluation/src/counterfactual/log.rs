//! Logged list sizes with their outcomes.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::selection::{ListSize, SizeChoice, SizeChoiceError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::policy::SizePolicy;

/// The maximum number of features of a session.
const MAX_FEATURES: usize = 64;

/// A session whose list size was decided with a known probability, and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedChoice {
    /// The name of the cluster. Sessions of different clusters are independent of each other.
    pub cluster: String,
    /// The decision about the list size.
    pub choice: SizeChoice,
    /// Number of tools of the catalog.
    pub n_tools: usize,
    /// Finite numbers that were known before the decision. All sessions have equally many.
    pub features: Vec<f64>,
    /// The outcome.
    pub outcome: SessionOutcome,
}

impl LoggedChoice {
    /// Returns the size that a policy gives the session. Of sizes with the same list, it is the
    /// candidate.
    pub(super) fn size_under(&self, policy: SizePolicy) -> ListSize {
        let size = policy.size(self.choice.greedy, self.n_tools);
        self.choice.effective(size)
    }
}

/// The outcome of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOutcome {
    /// Weighed cost, in tokens at the price of an uncached one.
    pub cost: f64,
    /// Number of searches.
    pub searches: f64,
    /// Share of the calls whose tool was in the list, from 0 to 1.
    pub coverage: f64,
}

/// A number of an outcome.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoStaticStr, EnumString, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum OutcomeMeasure {
    /// The weighed cost of a session.
    #[default]
    Cost,
    /// The number of searches of a session.
    Searches,
    /// The share of the calls of a session whose tool was in the list.
    Coverage,
}

impl OutcomeMeasure {
    /// All measures.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the measure.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub(super) fn of(self, outcome: &SessionOutcome) -> f64 {
        match self {
            Self::Cost => outcome.cost,
            Self::Searches => outcome.searches,
            Self::Coverage => outcome.coverage,
        }
    }
}

/// The error for a session that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// The decision contradicts itself.
    #[error(transparent)]
    Choice(#[from] SizeChoiceError),
    /// The session has another number of features than the first one.
    #[error("expected {expected} features, as in the first session, not {found}")]
    FeatureCount {
        /// The number of the first session.
        expected: usize,
        /// The number of this session.
        found: usize,
    },
    /// The session has too many features.
    #[error("expected at most {MAX_FEATURES} features, not {0}")]
    TooManyFeatures(usize),
    /// A number is not finite, or out of its range.
    #[error("{name} must be {range}, not {value}")]
    OutOfRange {
        /// The name of the number.
        name: &'static str,
        /// The permitted numbers.
        range: &'static str,
        /// The rejected number.
        value: f64,
    },
}

/// Logged choices, each of them valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceLog {
    choices: Vec<LoggedChoice>,
}

impl ChoiceLog {
    /// Adds a session.
    ///
    /// # Errors
    ///
    /// Returns [`ChoiceError`] if its decision contradicts itself, for numbers that are not finite
    /// or out of range, and for another number of features than in the first session.
    pub fn push(&mut self, session: LoggedChoice) -> Result<(), ChoiceError> {
        session.choice.check()?;
        let found = session.features.len();
        if found > MAX_FEATURES {
            return Err(ChoiceError::TooManyFeatures(found));
        }
        let expected = self
            .choices
            .first()
            .map_or(found, |first| first.features.len());
        if found != expected {
            return Err(ChoiceError::FeatureCount { expected, found });
        }
        let SessionOutcome {
            cost,
            searches,
            coverage,
        } = session.outcome;
        let finite = "a finite number";
        let positive = "a finite number of at least 0";
        let features = session.features.iter();
        let numbers = features
            .map(|value| ("a feature", finite, *value, value.is_finite()))
            .chain([
                ("cost", positive, cost, cost.is_finite() && cost >= 0.0),
                (
                    "searches",
                    positive,
                    searches,
                    searches.is_finite() && searches >= 0.0,
                ),
                (
                    "coverage",
                    "a number from 0 to 1",
                    coverage,
                    (0.0..=1.0).contains(&coverage),
                ),
            ]);
        for (name, range, value, is_sound) in numbers {
            if !is_sound {
                return Err(ChoiceError::OutOfRange { name, range, value });
            }
        }
        self.choices.push(session);
        Ok(())
    }

    /// Returns the sessions, in the order of their addition.
    #[must_use]
    pub fn choices(&self) -> &[LoggedChoice] {
        &self.choices
    }

    /// Returns the number of sessions whose size was drawn at random.
    #[must_use]
    pub fn n_explored(&self) -> usize {
        let explored = self.choices.iter().filter(|one| one.choice.is_explored());
        explored.count()
    }

    /// Returns the sizes that were candidates in any session, ascending.
    pub(super) fn sizes(&self) -> Vec<ListSize> {
        let all = (self.choices.iter()).flat_map(|one| one.choice.candidates.iter().copied());
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the number of the cluster of each session, below the number of clusters. Clusters
    /// have a pseudo-random order, which depends on nothing but their names: so a fold is no period
    /// of time.
    pub(super) fn clusters(&self) -> Vec<usize> {
        let names: BTreeSet<&str> = self
            .choices
            .iter()
            .map(|one| one.cluster.as_str())
            .collect();
        let mut names: Vec<_> = (names.into_iter())
            .map(|name| (<[u8; 32]>::from(Sha256::digest(name)), name))
            .collect();
        names.sort_unstable();
        let numbers = names.into_iter().enumerate();
        let numbers: BTreeMap<&str, usize> = numbers.map(|(n, (_, name))| (name, n)).collect();
        let of = |one: &LoggedChoice| numbers.get(one.cluster.as_str()).copied().unwrap_or(0);
        self.choices.iter().map(of).collect()
    }
}
