//! The list policies and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A list policy: the rule of how a list is made and when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListPolicyName {
    /// A list does not change during an epoch: by a schedule for revision 2026-07-28, a work
    /// session for earlier revisions.
    Epoch,
    /// Like [`Self::Epoch`], but tools are appended to the list if that pays.
    Append,
    /// A list that is adjusted to cover a share of the calls, for clients without a prompt cache.
    Conformal,
    /// All tools, with marks on the tools to load at once.
    Hints,
    /// All tools.
    All,
    /// The tools whose names match a pattern.
    Allowlist,
    /// The tools whose names match no pattern.
    Denylist,
}

/// The text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown list policy {0:?}: expected epoch, append, conformal, hints, all, allowlist or \
     denylist"
)]
pub struct UnknownPolicy(String);

impl ListPolicyName {
    /// All policies.
    pub const EACH: [Self; 7] = [
        Self::Epoch,
        Self::Append,
        Self::Conformal,
        Self::Hints,
        Self::All,
        Self::Allowlist,
        Self::Denylist,
    ];

    /// Returns the name of the policy in the configuration, in records and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Append => "append",
            Self::Conformal => "conformal",
            Self::Hints => "hints",
            Self::All => "all",
            Self::Allowlist => "allowlist",
            Self::Denylist => "denylist",
        }
    }

    /// Returns whether the policy may hide tools.
    #[must_use]
    pub fn may_hide(self) -> bool {
        !matches!(self, Self::Hints | Self::All)
    }

    /// Returns the replacement for this policy if lists may not depend on the session or on other
    /// requests, as revision 2026-07-28 requires ("must not vary per-connection or as a side effect
    /// of other requests").
    #[must_use]
    pub fn without_session(self) -> Self {
        match self {
            Self::Append | Self::Conformal => Self::Epoch,
            other => other,
        }
    }
}

impl fmt::Display for ListPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ListPolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::EACH
            .into_iter()
            .find(|policy| policy.as_str() == name);
        known.ok_or_else(|| UnknownPolicy(name.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_one_name() {
        for policy in ListPolicyName::EACH {
            assert_eq!(policy.as_str().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        let error = "Epochs".parse::<ListPolicyName>().unwrap_err();
        assert!(error.to_string().contains("\"Epochs\""));
    }
}
