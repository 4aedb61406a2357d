//! Configured exploration of list sizes.

use riglm_domain::num::check_share;
use riglm_domain::selection::ExplorationShare;
use serde::{Deserialize, Serialize};
use validator::Validate;

/// The configuration section `filtering.exploration`: lists whose size is drawn at random, so that
/// the costs of sizes can be compared without bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ExplorationConfig {
    /// Share of the lists with a random size, 0 to 1. 0 turns exploration off.
    #[validate(custom(function = "check_share"))]
    pub share: f64,
    /// Seed of the draws. Equal seeds have the same draws for the same lists. Without one, each run
    /// has other draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl ExplorationConfig {
    /// Returns the share of the lists with a random size; 0 for an invalid one.
    #[must_use]
    pub fn share(&self) -> ExplorationShare {
        ExplorationShare::try_from(self.share).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_from_zero_to_one() {
        let read = |json: &str| serde_json::from_str::<ExplorationConfig>(json).unwrap();
        assert!(read("{}").share().is_off());
        let config = read(r#"{"share":0.25,"seed":18446744073709551615}"#);
        assert!(config.validate().is_ok() && (config.share().get() - 0.25).abs() < 1e-12);
        assert_eq!(config.seed, Some(u64::MAX));
        for json in [r#"{"share":1.01}"#, r#"{"share":-0.1}"#] {
            let error = read(json).validate().unwrap_err().to_string();
            assert!(error.contains("expected a number from 0 to 1"), "{error}");
            assert!(read(json).share().is_off());
        }
        assert!(serde_json::from_str::<ExplorationConfig>(r#"{"seed":-1}"#).is_err());
    }
}
