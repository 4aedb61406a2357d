//! Lists of tools as clients saw them under a list policy.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::catalog::tool::ToolRef;
use crate::id::SessionId;
use crate::privacy::principal::Principal;
use crate::selection::expected_coverage::ExpectedCoverage;
use crate::selection::exploration::SizeChoice;

/// An immutable set of tools in the order of a list, identified by its content.
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
            // A zero byte separates the names, so that their boundaries count.
            digest.update([0]);
            digest.update(tool.tool.as_str());
            digest.update([0]);
        }
        Self {
            id: hex::encode(digest.finalize()),
            tools,
        }
    }

    /// Returns the hash that identifies the set.
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

/// A list that was shown to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListShown {
    /// The session.
    pub session: SessionId,
    /// The principal of the client.
    pub principal: Principal,
    /// The time at which the list was shown, unique within the session.
    pub shown_at: Timestamp,
    /// The epoch of the list.
    pub epoch: u64,
    /// The name of the list policy that selected the tools.
    pub policy: String,
    /// The tools that were shown.
    pub tools: ToolSet,
    /// The number of tools that were available for selection.
    pub n_available: u64,
    /// The details of the selection; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionDetails>,
}

impl ListShown {
    /// Returns the shown tools that are not in the default pool, in the order of the list; `None`
    /// if the pool is not known.
    #[must_use]
    pub fn added_to_pool(&self) -> Option<Vec<&ToolRef>> {
        let pool = &self.selection.as_ref()?.pool;
        Some(difference(&self.tools, pool))
    }

    /// Returns the tools of the default pool that were not shown, in the order of the pool; `None`
    /// if the pool is not known.
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

/// The details of the selection of a list: its mode, reason and sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionDetails {
    /// The mode of the selection.
    pub mode: SelectionMode,
    /// Whether this is a fallback: the planned mode was not available.
    pub is_fallback: bool,
    /// The reason for the fallback, or for showing all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SelectionReason>,
    /// The decision about the size of the list, if sizes are explored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_choice: Option<SizeChoice>,
    /// The expected coverage with which the tools were selected; `None` if a prediction did not
    /// select exactly these tools, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_coverage: Option<ExpectedCoverage>,
    /// The default pool from which the selection started.
    pub pool: ToolSet,
    /// The number of tokens in the shown definitions.
    pub shown_tokens: u64,
    /// The number of tokens in all definitions that were available for selection.
    pub available_tokens: u64,
}

/// The method by which the tools of a list were selected.
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
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SelectionMode {
    /// By the predictions.
    Prediction,
    /// By the numbers of calls, in place of a prediction.
    Frequency,
    /// The default pool only.
    Pool,
    /// No selection: all tools are shown.
    All,
    /// By name patterns of the operator.
    Names,
    /// By the context that the client declared.
    Context,
    /// By the tool definitions of the servers, before anything was learned.
    General,
}

impl SelectionMode {
    /// All modes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the mode is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reason for a fallback of the selection, or for showing all tools.
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
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SelectionReason {
    /// No session has ended yet that a list could follow, or the operator shows all tools while too
    /// little is known.
    ColdStart,
    /// The predictor failed or missed its deadline.
    PredictorFailed,
    /// Nothing was learned yet.
    NothingLearned,
    /// The tools are so few or so short that hiding some would save less than one search costs.
    SmallCatalog,
    /// In earlier sessions, the searches for hidden tools would have cost more than a shorter list
    /// saves.
    NotPaying,
    /// The size of the list was drawn at random, to learn about sizes.
    Exploration,
    /// The operator configured it.
    Operator,
}

impl SelectionReason {
    /// All reasons.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the reason is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns a sentence for operators that explains the selection of a list.
#[must_use]
pub fn explain_selection(mode: SelectionMode, reason: Option<SelectionReason>) -> &'static str {
    use SelectionReason::{
        ColdStart, Exploration, NotPaying, NothingLearned, Operator, PredictorFailed, SmallCatalog,
    };
    match (mode, reason) {
        (SelectionMode::All, Some(SmallCatalog)) => {
            "All tools: the catalog is so small that hiding tools could not save tokens."
        }
        (SelectionMode::All, Some(NotPaying)) => {
            "All tools: in past sessions, a shorter list would have cost more tokens for searches \
             than it saved."
        }
        (SelectionMode::All, Some(ColdStart)) => {
            "All tools: no session has ended yet to learn the list size from, and the catalog has \
             at most filtering.max_tools tools or costs less than one weighted search; or \
             prediction.bands.show_all_below asks for all tools."
        }
        (SelectionMode::All, Some(NothingLearned)) => {
            "All tools: nothing is learned yet, and the catalog has at most filtering.max_tools \
             tools or costs less than one weighted search."
        }
        (SelectionMode::All, Some(PredictorFailed)) => {
            "All tools: the predictor failed, and the numbers of calls are unknown."
        }
        (SelectionMode::All, Some(Exploration)) => {
            "All tools: filtering.exploration drew the size of the list at random."
        }
        (SelectionMode::Prediction, Some(Exploration)) => {
            "The most likely tools: filtering.exploration drew their number at random."
        }
        (SelectionMode::All, Some(Operator) | None) => {
            "All tools: the list policy of the client asks for all tools."
        }
        (SelectionMode::Prediction, None) => {
            "The most likely tools. In past sessions, a list of this length cost the fewest tokens."
        }
        (SelectionMode::Prediction, Some(_)) => {
            "The most likely tools, up to filtering.max_tools: no session has ended yet to learn \
             the list size from."
        }
        (SelectionMode::General, _) => {
            "Nothing is learned yet: the tools of all servers in turn, tools that find things \
             first."
        }
        (SelectionMode::Context, None) => {
            "The tools that match the context of the client, then likely tools as soon as \
             predictions can use texts."
        }
        (SelectionMode::Context, Some(_)) => {
            "The tools that match the context of the client: nothing else is known yet."
        }
        (SelectionMode::Frequency, Some(NothingLearned)) => {
            "The most called tools of the last 30 days: learning is off."
        }
        (SelectionMode::Frequency, _) => {
            "The most called tools of the last 30 days: the predictor failed."
        }
        (SelectionMode::Pool, _) => "The default pool of filtering.pools: nothing better is known.",
        (SelectionMode::Names, _) => "The tools whose names match the patterns of the operator.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enum_names_match_json_and_round_trip() {
        for mode in SelectionMode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(*mode));
            let json = serde_json::to_value(mode).unwrap();
            assert_eq!(json, mode.as_str());
        }
        for reason in SelectionReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json, reason.as_str());
        }
        assert!("magic".parse::<SelectionMode>().is_err());
        assert!("magic".parse::<SelectionReason>().is_err());
    }

    #[test]
    fn a_list_of_an_older_version_is_read() {
        let json = r#"{"session":"019b7ca9-8c88-7909-8909-090909090909","principal":"local",
            "shown_at":"2026-01-02T03:04:05Z","epoch":1,"policy":"p",
            "tools":{"id":"","tools":[]},"n_available":3}"#;
        let list: ListShown = serde_json::from_str(json).unwrap();
        assert_eq!(list.selection, None);
    }

    #[test]
    fn a_selection_of_an_older_version_expects_nothing() {
        let old = serde_json::json!({
            "mode": "prediction", "is_fallback": false, "pool": {"id": "", "tools": []},
            "shown_tokens": 1, "available_tokens": 2,
        });
        let selection: SelectionDetails = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(selection.expected_coverage, None);
        assert_eq!(serde_json::to_value(&selection).unwrap(), old);
        let expecting = SelectionDetails {
            expected_coverage: ExpectedCoverage::try_from(0.75).ok(),
            ..selection
        };
        let json = serde_json::to_value(&expecting).unwrap();
        assert_eq!(json["expected_coverage"], 0.75);
        let read: SelectionDetails = serde_json::from_value(json).unwrap();
        assert_eq!(read, expecting);
    }
}
