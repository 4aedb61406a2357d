//! The policies that can be simulated, and their names.

use std::fmt;
use std::str::FromStr;

/// A rule that makes a list of tools from forecasts. The search tool is in every list and does not
/// count as one of its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedPolicy {
    /// The default policy of the proxy: the list is chosen at the first call of a session and does
    /// not change. Its length is learned from earlier sessions.
    Live,
    /// The most likely tools at the first call of a session, for the whole session. Other tools are
    /// found by a search.
    Static,
    /// Like [`Self::Static`], but the answer of each search carries the definitions of the found
    /// tool and of the most likely ones that the client does not know yet.
    StaticInline,
    /// The most likely tools before each call.
    Rerank,
    /// A list that stays until a call outside it is too likely, and is then chosen again. Tools
    /// that the session has used stay in the list.
    Sticky,
    /// Before each call, every tool above a probability threshold. The threshold adapts to cover
    /// this share of the calls, in per cent from 1 to 99.
    Conformal(u8),
}

/// The text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown list policy {0:?}: expected live, static, static+inline, rerank, sticky, or \
     conformal-N with N from 1 to 99"
)]
pub struct ListPolicyError(String);

impl SimulatedPolicy {
    /// The policies that are compared by default.
    pub const DEFAULT: [Self; 9] = [
        Self::Live,
        Self::Static,
        Self::StaticInline,
        Self::Rerank,
        Self::Sticky,
        Self::Conformal(80),
        Self::Conformal(90),
        Self::Conformal(95),
        Self::Conformal(98),
    ];
}

impl fmt::Display for SimulatedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Static => f.write_str("static"),
            Self::StaticInline => f.write_str("static+inline"),
            Self::Rerank => f.write_str("rerank"),
            Self::Sticky => f.write_str("sticky"),
            Self::Conformal(percent) => write!(f, "conformal-{percent}"),
        }
    }
}

impl FromStr for SimulatedPolicy {
    type Err = ListPolicyError;

    fn from_str(name: &str) -> Result<Self, ListPolicyError> {
        let unknown = || ListPolicyError(name.chars().take(64).collect());
        match name {
            // `epoch` was the name of this policy before list lengths were learned.
            "live" | "epoch" => Ok(Self::Live),
            "static" => Ok(Self::Static),
            "static+inline" => Ok(Self::StaticInline),
            "rerank" => Ok(Self::Rerank),
            "sticky" => Ok(Self::Sticky),
            other => {
                let percent = other.strip_prefix("conformal-").ok_or_else(unknown)?;
                let known = (1..=99).find(|known: &u8| known.to_string() == percent);
                known.map(Self::Conformal).ok_or_else(unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_one_name() {
        for policy in SimulatedPolicy::DEFAULT {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for wrong in [
            "",
            "Static",
            "conformal",
            "conformal-0",
            "conformal-095",
            "conformal-100",
        ] {
            let error = wrong.parse::<SimulatedPolicy>().unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
