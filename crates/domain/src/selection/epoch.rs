//! Epochs of lists. During an epoch a list does not change, and is the same for all who share it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::privacy::canonical::KeyedHash;
use crate::selection::expected_coverage::ExpectedCoverage;
use crate::selection::exploration::SizeChoice;
use crate::selection::shown::{SelectionMode, SelectionReason, ToolSet};

/// The list of a scope in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEpoch {
    /// The scope that shares the list: a text made of principal and profile.
    pub scope: String,
    /// The number of the epoch, from 1.
    pub epoch: u64,
    /// The name of the list policy that selected the tools.
    pub policy: String,
    /// The tools, in the order of the list.
    pub tools: ToolSet,
    /// The tools that were available for selection, shown or not.
    pub known: ToolSet,
    /// The mode of the selection.
    pub mode: SelectionMode,
    /// The reason for a fallback of the selection, or for showing all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SelectionReason>,
    /// The decision about the size of the list, if sizes are explored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_choice: Option<SizeChoice>,
    /// The expected coverage with which the tools were selected; `None` if a prediction did not
    /// select them, or if tools were added since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_coverage: Option<ExpectedCoverage>,
    /// Whether the search tool comes before all others.
    pub search_first: bool,
    /// The client, if the list is of one client alone. Removing the client removes the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<KeyedHash>,
    /// The start of the epoch.
    pub began_at: Timestamp,
}

impl ListEpoch {
    /// The prefix of the scopes of work sessions. Their epochs expire: a store may delete an epoch
    /// that began before its retention time of calls. All other scopes stay.
    pub const WORK_SCOPE: &str = "work:";
}
