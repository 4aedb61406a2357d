//! The factors of the ranking of recommended tools, and their weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A factor of the ranking.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Factor {
    /// The fit of the tool to the intent.
    Relevance,
    /// The success rate of its calls.
    SuccessRate,
    /// The frequency of its use, weighted by age.
    Popularity,
    /// The speed of its answers.
    Performance,
    /// The ratings of its users.
    UserRating,
}

impl Factor {
    /// The number of factors.
    pub const N: usize = Self::VARIANTS.len();
    /// All factors, in display order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the factor in the configuration, in storage and in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The values of all factors for one tool, in the order of [`Factor::ALL`], each of 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factors([f64; Factor::N]);

impl Factors {
    /// Returns these values, in the order of [`Factor::ALL`]. Values outside of 0 to 1 are clamped,
    /// and NaN becomes 0.
    #[must_use]
    pub fn new(values: [f64; Factor::N]) -> Self {
        Self(values.map(|value| {
            if value.is_nan() {
                0.0
            } else {
                value.clamp(0.0, 1.0)
            }
        }))
    }

    /// Returns the value of a factor.
    #[must_use]
    pub fn of(&self, factor: Factor) -> f64 {
        self.0[factor.index()]
    }

    /// Returns the values in the order of [`Factor::ALL`].
    #[must_use]
    pub fn values(&self) -> &[f64; Factor::N] {
        &self.0
    }
}

/// The weights of the factors: numbers of 0 to 1 that sum to 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "NamedWeights")]
pub struct FactorWeights([f64; Factor::N]);

/// The reason for which numbers are no weights.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// A weight is outside of 0 to 1, or not a number.
    #[error("{factor}: expected a number from 0 to 1, got {value}", factor = .factor.as_str())]
    Range {
        /// The factor.
        factor: Factor,
        /// The rejected value.
        value: f64,
    },
    /// The weights do not sum to 1.
    #[error("the weights sum to {0}, not to 1")]
    Sum(f64),
    /// A factor has no weight.
    #[error("{factor}: missing weight", factor = .0.as_str())]
    Missing(Factor),
    /// There is a weight with a name that is no factor.
    #[error("unknown factor {0:?}")]
    Unknown(String),
}

/// The weights by the names of their factors, as the configuration has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedWeights {
    relevance: f64,
    success_rate: f64,
    popularity: f64,
    performance: f64,
    user_rating: f64,
}

impl TryFrom<NamedWeights> for FactorWeights {
    type Error = WeightsError;

    fn try_from(weights: NamedWeights) -> Result<Self, WeightsError> {
        // In the order of `Factor::ALL`.
        Self::new([
            weights.relevance,
            weights.success_rate,
            weights.popularity,
            weights.performance,
            weights.user_rating,
        ])
    }
}

impl FactorWeights {
    /// The maximum difference of the sum from 1.
    pub const TOLERANCE: f64 = 1e-6;

    /// Checks weights, in the order of [`Factor::ALL`].
    ///
    /// # Errors
    ///
    /// Returns [`WeightsError`] for a weight outside of 0 to 1, and for weights without the sum 1.
    pub fn new(weights: [f64; Factor::N]) -> Result<Self, WeightsError> {
        for (&factor, value) in Factor::ALL.iter().zip(weights) {
            if !(0.0..=1.0).contains(&value) {
                return Err(WeightsError::Range { factor, value });
            }
        }
        let sum: f64 = weights.iter().sum();
        if (sum - 1.0).abs() > Self::TOLERANCE {
            return Err(WeightsError::Sum(sum));
        }
        Ok(Self(weights))
    }

    /// Reads weights by the names of their factors. All factors must be there.
    ///
    /// # Errors
    ///
    /// Returns [`WeightsError`] as [`Self::new`] does, and for names that are missing or unknown.
    pub fn from_named(weights: &BTreeMap<String, f64>) -> Result<Self, WeightsError> {
        let mut unknown = weights
            .keys()
            .filter(|name| name.parse::<Factor>().is_err());
        if let Some(name) = unknown.next() {
            return Err(WeightsError::Unknown(name.clone()));
        }
        let mut values = [0.0; Factor::N];
        for &factor in Factor::ALL {
            let weight = weights.get(factor.as_str());
            values[factor.index()] = *weight.ok_or(WeightsError::Missing(factor))?;
        }
        Self::new(values)
    }

    /// Returns the weights by the names of their factors.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let named = Factor::ALL.iter();
        named
            .map(|factor| (factor.as_str().to_owned(), self.of(*factor)))
            .collect()
    }

    /// Returns the weight of a factor.
    #[must_use]
    pub fn of(&self, factor: Factor) -> f64 {
        self.0[factor.index()]
    }

    /// Returns the weights in the order of [`Factor::ALL`].
    #[must_use]
    pub fn values(&self) -> &[f64; Factor::N] {
        &self.0
    }

    /// Returns the score of a tool: the weighted sum of its factors, of 0 to 1.
    #[must_use]
    pub fn score(&self, factors: &Factors) -> f64 {
        let each = self.0.iter().zip(factors.values());
        each.map(|(weight, value)| weight * value).sum()
    }
}

impl Default for FactorWeights {
    /// Relevance .35, success rate .25, popularity .15, performance .15, user rating .10.
    fn default() -> Self {
        Self([0.35, 0.25, 0.15, 0.15, 0.10])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn configured_weights_have_the_names_of_the_factors() {
        let weights = FactorWeights::new([0.4, 0.3, 0.15, 0.1, 0.05]).unwrap();
        let text = serde_json::to_string(&weights.by_name()).unwrap();
        let read = |text: &str| serde_json::from_str::<FactorWeights>(text);
        assert_eq!(read(&text).unwrap(), weights);
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error(r#"{"relevance":1}"#).contains("missing field `success_rate`"));
        assert!(error(&text.replace("0.4", "0.5")).contains("sum to"));
        assert!(error(&text.replace("0.4", "-0.4")).contains("relevance"));
    }

    #[test]
    fn the_default_weights_are_valid() {
        let default = FactorWeights::default();
        assert_eq!(FactorWeights::new(*default.values()), Ok(default));
        assert_eq!(FactorWeights::from_named(&default.by_name()), Ok(default));
    }

    #[test]
    fn invalid_weights_are_refused_with_the_factor() {
        let error = |weights| FactorWeights::new(weights).unwrap_err().to_string();
        let negative = error([1.2, -0.2, 0.0, 0.0, 0.0]);
        assert!(negative.starts_with("relevance: "), "{negative}");
        let negative = error([0.9, -0.1, 0.2, 0.0, 0.0]);
        assert!(negative.starts_with("success_rate: "), "{negative}");
        assert!(error([0.2, 0.2, 0.2, 0.2, f64::NAN]).starts_with("user_rating: "));
        assert!(error([0.2, 0.2, 0.2, 0.2, 0.1]).contains("sum to 0.9"));
        let mut named = FactorWeights::default().by_name();
        named.insert("luck".into(), 0.0);
        let unknown = FactorWeights::from_named(&named);
        assert_eq!(unknown, Err(WeightsError::Unknown("luck".into())));
        named.remove("luck");
        named.remove("popularity");
        let missing = FactorWeights::from_named(&named);
        assert_eq!(missing, Err(WeightsError::Missing(Factor::Popularity)));
    }

    proptest! {
        #[test]
        fn scores_are_between_zero_and_one(values in proptest::array::uniform5(-2.0..2.0_f64)) {
            let score = FactorWeights::default().score(&Factors::new(values));
            prop_assert!((0.0..=1.0 + 1e-12).contains(&score));
        }
    }
}
