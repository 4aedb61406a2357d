//! From the configuration section `filtering` to a list policy.

use std::fmt;
use std::sync::Arc;

use riglm_domain::prediction::NamePattern;
use riglm_ports::list_policy::ListPolicy;
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

use crate::{AllowList, ColdStart, DenyList};

/// How the tools of a list are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Every list is passed on as it is.
    #[default]
    None,
    /// Only tools whose name fits `filtering.allow` are shown.
    Allowlist,
    /// Tools whose name fits `filtering.deny` are not shown.
    Denylist,
    /// The tools that are likely to be needed are shown. As long as nothing is learned this is a
    /// cold start: every tool is shown.
    Prediction,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::Allowlist,
        Self::Denylist,
        Self::Prediction,
    ];

    /// Returns the name under which the strategy is configured.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
            Self::Denylist => "denylist",
            Self::Prediction => "prediction",
        }
    }

    /// Returns the strategy with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == name)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The configuration section `filtering`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_bounds"), schema(function = "check_patterns"))]
pub struct FilteringConfig {
    /// Whether lists are filtered at all.
    pub enabled: bool,
    /// How tools are chosen.
    pub strategy: Strategy,
    /// The fewest tools that `prediction` leaves in a list that has as many. Without effect in a
    /// cold start.
    #[validate(range(max = 5_000, message = "expected a number from 0 to 5000"))]
    pub min_tools: u32,
    /// The most tools that `prediction` leaves in a list. Without effect in a cold start.
    #[validate(range(min = 1, max = 5_000, message = "expected a number from 1 to 5000"))]
    pub max_tools: u32,
    /// Names of the tools that `allowlist` shows; `*` stands for any run of characters.
    pub allow: Vec<String>,
    /// Names of the tools that `denylist` hides; `*` stands for any run of characters.
    pub deny: Vec<String>,
}

impl FilteringConfig {
    /// Returns whether lists may be made shorter: not with strategy `none`, nor where filtering is
    /// switched off.
    #[must_use]
    pub fn may_hide(&self) -> bool {
        self.enabled && self.strategy != Strategy::None
    }
}

impl Default for FilteringConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            strategy: Strategy::None,
            min_tools: 5,
            max_tools: 20,
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// Returns the policy that the section asks for, or `None` where every list is to pass as it
/// is: with strategy `none` and with `enabled = false`.
#[must_use]
pub fn list_policy_from(config: &FilteringConfig) -> Option<Arc<dyn ListPolicy>> {
    if !config.enabled {
        return None;
    }
    match config.strategy {
        Strategy::None => None,
        Strategy::Allowlist => Some(Arc::new(AllowList::new(patterns(&config.allow)))),
        Strategy::Denylist => Some(Arc::new(DenyList::new(patterns(&config.deny)))),
        Strategy::Prediction => Some(Arc::new(ColdStart)),
    }
}

fn patterns(texts: &[String]) -> Vec<NamePattern> {
    texts.iter().map(|text| NamePattern::new(text)).collect()
}

fn check_bounds(config: &FilteringConfig) -> Result<(), ValidationError> {
    if config.min_tools <= config.max_tools {
        return Ok(());
    }
    Err(ValidationError::new("min_tools").with_message(
        format!(
            "min_tools ({}) must not be greater than max_tools ({})",
            config.min_tools, config.max_tools
        )
        .into(),
    ))
}

fn check_patterns(config: &FilteringConfig) -> Result<(), ValidationError> {
    let (key, patterns) = match config.strategy {
        Strategy::Allowlist => ("allow", &config.allow),
        Strategy::Denylist => ("deny", &config.deny),
        Strategy::None | Strategy::Prediction => return Ok(()),
    };
    if !config.enabled || !patterns.is_empty() {
        return Ok(());
    }
    Err(ValidationError::new("patterns")
        .with_message(format!("this strategy needs at least one pattern in {key}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> FilteringConfig {
        serde_json::from_str(json).unwrap()
    }

    fn chosen(json: &str) -> String {
        list_policy_from(&config(json)).map_or("none".into(), |policy| format!("{policy:?}"))
    }

    #[test]
    fn each_strategy_has_its_policy() {
        assert_eq!(chosen("{}"), "none");
        assert_eq!(chosen(r#"{"strategy":"prediction"}"#), "ColdStart");
        assert_eq!(
            chosen(r#"{"strategy":"allowlist","allow":["get_*"]}"#),
            format!("{:?}", AllowList::new(vec![NamePattern::new("get_*")]))
        );
        assert_eq!(
            chosen(r#"{"strategy":"denylist","deny":["rm"]}"#),
            format!("{:?}", DenyList::new(vec![NamePattern::new("rm")]))
        );
        assert_eq!(
            chosen(r#"{"strategy":"prediction","enabled":false}"#),
            "none"
        );
    }

    #[test]
    fn names_of_strategies_are_those_of_the_configuration() {
        for strategy in Strategy::ALL {
            let json = serde_json::to_value(strategy).unwrap();
            assert_eq!(json, strategy.as_str());
            assert_eq!(Strategy::parse(strategy.as_str()), Some(strategy));
        }
        assert_eq!(Strategy::parse("other"), None);
    }

    #[test]
    fn bounds_and_patterns_are_checked() {
        let refusal = |json: &str| config(json).validate().unwrap_err().to_string();
        assert!(config("{}").validate().is_ok());
        assert!(
            config(r#"{"min_tools":20,"max_tools":20}"#)
                .validate()
                .is_ok()
        );
        assert!(
            refusal(r#"{"min_tools":21,"max_tools":20}"#)
                .contains("min_tools (21) must not be greater than max_tools (20)")
        );
        assert!(refusal(r#"{"max_tools":0,"min_tools":0}"#).contains("from 1 to 5000"));
        assert!(refusal(r#"{"strategy":"allowlist"}"#).contains("at least one pattern in allow"));
        assert!(
            config(r#"{"strategy":"denylist","enabled":false}"#)
                .validate()
                .is_ok()
        );
    }
}
