//! The configuration sections `profiles.NAME`.

use std::time::Duration;

use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::ListPolicyName;
use serde::{Deserialize, Serialize};

use super::{FilteringConfig, policy};

/// The configuration section `profiles.NAME`: settings for clients with this profile that differ
/// from the general ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileConfig {
    /// Settings of lists.
    pub filtering: ProfileFilteringConfig,
}

/// The list policy of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyChoice {
    /// The policy of the client's class: `auto`.
    #[serde(rename = "auto")]
    OfClass,
    /// A policy by name.
    #[serde(untagged)]
    Named(ListPolicyName),
}

impl<'de> Deserialize<'de> for PolicyChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let policy = policy(deserializer)?;
        Ok(policy.map_or(Self::OfClass, Self::Named))
    }
}

/// The configuration section `profiles.NAME.filtering`. Values that are not set come from the
/// section `filtering`. A list of names replaces the general list as a whole, except for `forbid`,
/// which adds to it. A profile cannot allow a tool that is forbidden to all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileFilteringConfig {
    /// The list policy of clients without a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChoice>,
    /// Minimum list size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tools: Option<usize>,
    /// Maximum list size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tools: Option<usize>,
    /// Maximum number of tokens of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<u64>,
    /// Length of an epoch, during which a list that sessions share does not change.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Duration>,
    /// The fraction of calls that the policy `conformal` covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// Whether write gating is on: tools without a read-only hint are hidden from sessions that
    /// only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_writes: Option<bool>,
    /// Whether calls of tools that write gating hides are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<bool>,
    /// Minimum similarity between recent calls and the stated context, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_shift: Option<f64>,
    /// Patterns of tools that are always shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<Vec<NamePattern>>,
    /// Patterns of tools that are never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bans: Option<Vec<NamePattern>>,
    /// Patterns of tools that must not be called, in addition to those of the section `filtering`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forbid: Option<Vec<NamePattern>>,
    /// Patterns of the tools that `allowlist` shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<NamePattern>>,
    /// Patterns of the tools that `denylist` hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<NamePattern>>,
}

impl FilteringConfig {
    /// Returns the section with the settings of a profile applied.
    #[must_use]
    pub fn with_profile(&self, profile: &ProfileFilteringConfig) -> Self {
        fn or<T: Clone>(own: Option<&T>, general: &T) -> T {
            own.unwrap_or(general).clone()
        }
        Self {
            policy: match profile.policy {
                None => self.policy,
                Some(PolicyChoice::OfClass) => None,
                Some(PolicyChoice::Named(policy)) => Some(policy),
            },
            min_tools: or(profile.min_tools.as_ref(), &self.min_tools),
            max_tools: or(profile.max_tools.as_ref(), &self.max_tools),
            token_budget: profile.token_budget.or(self.token_budget),
            epoch: or(profile.epoch.as_ref(), &self.epoch),
            coverage: or(profile.coverage.as_ref(), &self.coverage),
            gate_writes: or(profile.gate_writes.as_ref(), &self.gate_writes),
            enforce: or(profile.enforce.as_ref(), &self.enforce),
            context_shift: or(profile.context_shift.as_ref(), &self.context_shift),
            pins: or(profile.pins.as_ref(), &self.pins),
            bans: or(profile.bans.as_ref(), &self.bans),
            forbid: {
                let of_profile = profile.forbid.iter().flatten();
                self.forbid.iter().chain(of_profile).cloned().collect()
            },
            allow: or(profile.allow.as_ref(), &self.allow),
            deny: or(profile.deny.as_ref(), &self.deny),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use validator::Validate;

    use super::*;

    #[test]
    fn profile_options_replace_general_ones_and_add_forbidden_tools() {
        let general: FilteringConfig = serde_json::from_str(
            r#"{"strategy":"prediction","policy":"hints","pins":["a"],"bans":["b"],"max_tools":9,
                "forbid":["x"]}"#,
        )
        .unwrap();
        let profile: ProfileFilteringConfig = serde_json::from_str(
            r#"{"policy":"auto","bans":["c","d"],"min_tools":2,"forbid":["y"]}"#,
        )
        .unwrap();
        let under = general.with_profile(&profile);
        assert_eq!(under.policy, None);
        let patterns = |names: &[&str]| {
            names
                .iter()
                .map(|it| NamePattern::new(it))
                .collect::<Vec<_>>()
        };
        assert_eq!(under.forbid, patterns(&["x", "y"]));
        assert_eq!((under.min_tools, under.max_tools), (2, 9));
        assert_eq!(
            (under.pins, under.bans),
            (patterns(&["a"]), patterns(&["c", "d"]))
        );
        assert_eq!(
            general.with_profile(&ProfileFilteringConfig::default()),
            general
        );

        let few: ProfileFilteringConfig = serde_json::from_str(r#"{"max_tools":3}"#).unwrap();
        let refusal = general
            .with_profile(&few)
            .validate()
            .unwrap_err()
            .to_string();
        assert!(
            refusal.contains("min_tools (5) must not be greater"),
            "{refusal}"
        );
    }
}
