//! The list policies and their names.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A list policy: the rule of how a list is made and when it changes.
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
    VariantArray,
    Display,
    EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownPolicy, parse_err_fn = UnknownPolicy::new)]
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

impl UnknownPolicy {
    fn new(name: &str) -> Self {
        Self(name.chars().take(64).collect())
    }
}

impl ListPolicyName {
    /// All policies.
    pub const EACH: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the policy in the configuration, in records and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_one_name() {
        for policy in ListPolicyName::EACH {
            assert_eq!(policy.as_str().parse(), Ok(*policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        let error = "Epochs".parse::<ListPolicyName>().unwrap_err();
        assert!(error.to_string().contains("\"Epochs\""));
    }
}
