//! List policies from the configuration section `filtering`.

mod costs;
mod filtering;
mod profiles;

use std::fmt;
use std::sync::Arc;

use riglm_domain::prediction::NamePattern;
use riglm_ports::list_policy::ListPolicy;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::{AllowList, DenyList};

pub use costs::CostsConfig;
pub use filtering::{ClientRuleConfig, FilteringConfig, PoolConfig};
pub use profiles::{PolicyChoice, ProfileConfig, ProfileFilteringConfig};

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

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the policy by name patterns that the section configures. Returns `None` with the
/// strategies `none` and `prediction`, and with `enabled = false`.
#[must_use]
pub fn list_policy_from(config: &FilteringConfig) -> Option<Arc<dyn ListPolicy>> {
    if !config.enabled {
        return None;
    }
    match config.strategy {
        Strategy::None | Strategy::Prediction => None,
        Strategy::Allowlist => Some(Arc::new(AllowList::new(patterns(&config.allow)))),
        Strategy::Denylist => Some(Arc::new(DenyList::new(patterns(&config.deny)))),
    }
}

fn patterns(texts: &[String]) -> Vec<NamePattern> {
    texts.iter().map(|text| NamePattern::new(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> FilteringConfig {
        serde_json::from_str(json).unwrap()
    }

    fn policy_of(json: &str) -> String {
        list_policy_from(&config(json)).map_or("none".into(), |policy| format!("{policy:?}"))
    }

    #[test]
    fn each_strategy_has_its_policy() {
        assert_eq!(policy_of("{}"), "none");
        assert_eq!(policy_of(r#"{"strategy":"prediction"}"#), "none");
        assert_eq!(
            policy_of(r#"{"strategy":"allowlist","allow":["get_*"]}"#),
            format!("{:?}", AllowList::new(vec![NamePattern::new("get_*")]))
        );
        assert_eq!(
            policy_of(r#"{"strategy":"denylist","deny":["rm"]}"#),
            format!("{:?}", DenyList::new(vec![NamePattern::new("rm")]))
        );
        assert_eq!(
            policy_of(r#"{"strategy":"prediction","enabled":false}"#),
            "none"
        );
    }

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
