//! The expected coverage of a list.

use serde::{Deserialize, Serialize};

/// The number of values from 0 to 1, without the first.
const N_STEPS: f64 = 1_000_000.0;

/// The expected coverage of a list: the probability, as predicted when the list was selected, that
/// the next call is of a listed tool. A number from 0 to 1, in whole millionths.
///
/// # Examples
///
/// ```
/// use riglm_domain::selection::ExpectedCoverage;
///
/// let expected = ExpectedCoverage::try_from(2.0 / 3.0).unwrap();
/// assert_eq!(expected.get(), 0.666_667);
/// assert!(ExpectedCoverage::try_from(f64::NAN).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct ExpectedCoverage(f64);

// The type never holds NaN.
impl Eq for ExpectedCoverage {}

/// The error for an expected coverage that is not a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("an expected coverage must be a number from 0 to 1, not {0}")]
pub struct ExpectedCoverageError(f64);

impl ExpectedCoverage {
    /// Returns the probability, from 0 to 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for ExpectedCoverage {
    type Error = ExpectedCoverageError;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        if !(0.0..=1.0).contains(&value) {
            return Err(ExpectedCoverageError(value));
        }
        // Six digits are the same in JSON and in each database. Adding 0 turns -0 into 0.
        Ok(Self((value * N_STEPS).round() / N_STEPS + 0.0))
    }
}

impl From<ExpectedCoverage> for f64 {
    fn from(expected: ExpectedCoverage) -> Self {
        expected.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_numbers_than_shares_are_refused() {
        for value in [-1e-9, 1.000_001, f64::NAN, f64::INFINITY] {
            assert!(ExpectedCoverage::try_from(value).is_err(), "{value}");
        }
        for json in ["-1", "2", "\"1\"", "null"] {
            assert!(
                serde_json::from_str::<ExpectedCoverage>(json).is_err(),
                "{json}"
            );
        }
        let none = ExpectedCoverage::try_from(-0.0).unwrap();
        assert_eq!(serde_json::to_string(&none).unwrap(), "0.0");
        // Databases may drop the decimal point.
        let all: ExpectedCoverage = serde_json::from_str("1").unwrap();
        assert_eq!(Ok(all), ExpectedCoverage::try_from(1.0));
    }

    proptest! {
        #[test]
        fn a_share_stays_the_same_in_json(value in 0.0..=1.0_f64) {
            let expected = ExpectedCoverage::try_from(value).unwrap();
            prop_assert!((expected.get() - value).abs() <= 0.5 / N_STEPS + f64::EPSILON);
            prop_assert_eq!(ExpectedCoverage::try_from(expected.get()), Ok(expected));
            let json = serde_json::to_string(&expected).unwrap();
            prop_assert!(json.len() <= "0.123456".len(), "{}", json);
            prop_assert_eq!(serde_json::from_str::<ExpectedCoverage>(&json).unwrap(), expected);
        }
    }
}
