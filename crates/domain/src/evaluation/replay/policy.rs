//! The policies that can be simulated, and their names.

use std::fmt;
use std::str::FromStr;

/// How a list of tools is made of forecasts. The search tool, which every list has, is not among
/// its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedPolicy {
    /// As the proxy lists by default: chosen at the first call of a session and left as it is, as long
    /// as the sessions before say that it should be.
    Live,
    /// The most likely tools at the first call of a session, for the whole session. What is not
    /// listed is found by a search.
    Static,
    /// As [`Self::Static`], and the answer of each search carries the definitions of the found
    /// tool and of the most likely ones that the client does not know yet.
    StaticInline,
    /// The most likely tools before each call.
    Rerank,
    /// A list that stays until a tool outside it is called for too likely, and is made anew then.
    /// What the session used stays listed.
    Sticky,
    /// Before each call every tool that is likely enough; how likely that is, is steered to cover
    /// this share of the calls, in per cent from 1 to 99.
    Conformal(u8),
}

/// A text is no name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no list policy: there are live, static, static+inline, rerank, sticky, and conformal-N with N from 1 to 99"
)]
pub struct ListPolicyError(String);

impl SimulatedPolicy {
    /// The policies that are compared when none is chosen.
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
            // Its name before lists had a learned length.
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
