//! The configuration subsection `recommend.tuning`.

use std::time::Duration;

use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The subsection `recommend.tuning`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct WeightTuningConfig {
    /// Whether `riglm serve` tunes the weights automatically.
    pub enabled: bool,
    /// The time between two runs.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_interval"))]
    pub interval: Duration,
    /// The minimum number of recommendations with feedback.
    #[validate(range(min = 50, max = 20_000))]
    pub min_examples: usize,
    /// The seed of random numbers: the same seed and feedback give the same weights.
    pub seed: u32,
}

impl Default for WeightTuningConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            interval: Duration::from_hours(24),
            min_examples: 200,
            seed: 0,
        }
    }
}

fn check_interval(interval: &Duration) -> Result<(), ValidationError> {
    if (Duration::from_mins(1)..=Duration::from_hours(24 * 365)).contains(interval) {
        return Ok(());
    }
    let message = "expected a duration from 1m to 365days";
    Err(ValidationError::new("range").with_message(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        let check = |text: &str| {
            let config: WeightTuningConfig = serde_json::from_str(text).unwrap();
            config.validate().map_err(|errors| errors.to_string())
        };
        assert_eq!(check(r#"{"enabled":true,"interval":"1day"}"#), Ok(()));
        let short = check(r#"{"interval":"59s"}"#).unwrap_err();
        assert!(
            short.contains("interval") && short.contains("1m"),
            "{short}"
        );
        let few = check(r#"{"min_examples":49}"#).unwrap_err();
        assert!(few.contains("min_examples"), "{few}");
    }
}
