//! The strategies for the selection of lists.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Strategy for the selection of a list.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Strategy {
    /// Lists are forwarded unchanged.
    #[default]
    None,
    /// Only tools whose name matches `filtering.allow` are shown.
    Allowlist,
    /// Tools whose name matches `filtering.deny` are not shown.
    Denylist,
    /// Lists are selected by predictions, under the list policy of the client. At a cold start,
    /// every tool is shown.
    Prediction,
}

impl Strategy {
    /// All strategies.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the configuration name of the strategy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strategies_are_those_of_the_configuration() {
        for &strategy in Strategy::ALL {
            let json = serde_json::to_value(strategy).unwrap();
            assert_eq!(json, strategy.as_str());
            assert_eq!(strategy.as_str().parse(), Ok(strategy));
        }
        assert!("other".parse::<Strategy>().is_err());
    }

    #[test]
    fn names_of_strategies_are_stable() {
        let names: Vec<&str> = Strategy::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names, ["none", "allowlist", "denylist", "prediction"]);
    }
}
