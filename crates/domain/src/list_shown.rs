//! Lists of tools as clients saw them under a policy.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hexadecimal::hex;
use crate::id::SessionId;
use crate::principal::Principal;
use crate::tool::ToolRef;

/// A set of tools in the order of a list, identified by its content and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSet {
    /// SHA-256 over the keys of the tools, in hexadecimal.
    id: String,
    tools: Vec<ToolRef>,
}

impl ToolSet {
    /// Returns the set of these tools, in this order.
    #[must_use]
    pub fn new(tools: Vec<ToolRef>) -> Self {
        let mut digest = Sha256::new();
        for tool in &tools {
            digest.update(tool.upstream.as_str());
            digest.update([0]);
            digest.update(tool.tool.as_str());
            digest.update([0]);
        }
        Self {
            id: hex(&digest.finalize()),
            tools,
        }
    }

    /// Returns what identifies the set.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[ToolRef] {
        &self.tools
    }
}

/// A list that a session was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListShown {
    /// The session.
    pub session: SessionId,
    /// Who asked.
    pub principal: Principal,
    /// When it was shown. A session is shown one list at a moment.
    pub shown_at: Timestamp,
    /// The epoch of the list.
    pub epoch: u64,
    /// The name of the policy that chose the tools.
    pub policy: String,
    /// The tools that were shown.
    pub tools: ToolSet,
    /// How many tools there were to choose from.
    pub n_available: u64,
    /// How the tools were chosen and what that came to; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionDetails>,
}

impl ListShown {
    /// Returns the tools that were shown beside those of the default pool, in the order of the list;
    /// `None` where the pool is not known.
    #[must_use]
    pub fn added_to_pool(&self) -> Option<Vec<&ToolRef>> {
        let pool = &self.selection.as_ref()?.pool;
        Some(difference(&self.tools, pool))
    }

    /// Returns the tools of the default pool that were not shown, in its order; `None` where the pool
    /// is not known.
    #[must_use]
    pub fn removed_from_pool(&self) -> Option<Vec<&ToolRef>> {
        let pool = &self.selection.as_ref()?.pool;
        Some(difference(pool, &self.tools))
    }
}

fn difference<'a>(of: &'a ToolSet, without: &ToolSet) -> Vec<&'a ToolRef> {
    let without: HashSet<&ToolRef> = without.tools().iter().collect();
    let left = of.tools().iter().filter(|tool| !without.contains(tool));
    left.collect()
}

/// How the tools of a list were chosen, and what the list came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionDetails {
    /// What chose the tools.
    pub mode: SelectionMode,
    /// Something else was to choose them, and could not.
    pub is_fallback: bool,
    /// Why something else chose them, or why all are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SelectionReason>,
    /// The default pool that the choice started from.
    pub pool: ToolSet,
    /// How many tokens the definitions have that are shown.
    pub shown_tokens: u64,
    /// How many tokens the definitions have that there were to choose from.
    pub available_tokens: u64,
}

/// What chose the tools of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionMode {
    /// What the predictor learned.
    Prediction,
    /// How often tools were called, in place of a prediction.
    Frequency,
    /// The default pool alone.
    Pool,
    /// Nothing: all tools are shown.
    All,
    /// Patterns of names that the operator wrote.
    Names,
    /// What the client said that it does, as nothing was learned.
    Context,
}

impl SelectionMode {
    /// All modes.
    pub const ALL: [Self; 6] = [
        Self::Prediction,
        Self::Frequency,
        Self::Pool,
        Self::All,
        Self::Names,
        Self::Context,
    ];

    /// Returns the name under which the mode is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prediction => "prediction",
            Self::Frequency => "frequency",
            Self::Pool => "pool",
            Self::All => "all",
            Self::Names => "names",
            Self::Context => "context",
        }
    }

    /// Returns the mode with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Why something else than the policy chose the tools of a list, or why all are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionReason {
    /// Too little is known of what the session needs.
    ColdStart,
    /// The predictor failed or did not answer in time.
    PredictorFailed,
    /// Nothing was learned yet.
    NothingLearned,
    /// There are so few tools that a choice would save nothing.
    SmallCatalog,
    /// A shorter list would cost more than it saves.
    NotPaying,
    /// The operator wants it so.
    Operator,
}

impl SelectionReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::ColdStart,
        Self::PredictorFailed,
        Self::NothingLearned,
        Self::SmallCatalog,
        Self::NotPaying,
        Self::Operator,
    ];

    /// Returns the name under which the reason is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ColdStart => "cold_start",
            Self::PredictorFailed => "predictor_failed",
            Self::NothingLearned => "nothing_learned",
            Self::SmallCatalog => "small_catalog",
            Self::NotPaying => "not_paying",
            Self::Operator => "operator",
        }
    }

    /// Returns the reason with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json_and_lead_back() {
        for mode in SelectionMode::ALL {
            assert_eq!(SelectionMode::parse(mode.as_str()), Some(mode));
            let json = serde_json::to_value(mode).unwrap();
            assert_eq!(json, mode.as_str());
        }
        for reason in SelectionReason::ALL {
            assert_eq!(SelectionReason::parse(reason.as_str()), Some(reason));
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json, reason.as_str());
        }
        assert_eq!(SelectionMode::parse("magic"), None);
        assert_eq!(SelectionReason::parse("magic"), None);
    }

    #[test]
    fn a_list_of_an_older_version_is_read() {
        let json = r#"{"session":"019b7ca9-8c88-7909-8909-090909090909","principal":"local",
            "shown_at":"2026-01-02T03:04:05Z","epoch":1,"policy":"p",
            "tools":{"id":"","tools":[]},"n_available":3}"#;
        let list: ListShown = serde_json::from_str(json).unwrap();
        assert_eq!(list.selection, None);
    }
}
