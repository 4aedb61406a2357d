//! Epochs of lists: as long as one lasts, a list is the same for all who share it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::list_shown::{SelectionMode, SelectionReason, ToolSet};

/// The list of a scope in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEpoch {
    /// Who shares the list: a text made of principal and profile.
    pub scope: String,
    /// The number of the epoch, from 1.
    pub epoch: u64,
    /// The name of the policy that chose the tools.
    pub policy: String,
    /// The tools, in the order of the list.
    pub tools: ToolSet,
    /// The tools that there were to choose from, whether they are shown or not.
    pub known: ToolSet,
    /// What chose the tools.
    pub mode: SelectionMode,
    /// Why something else than the policy chose them, or why all are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SelectionReason>,
    /// The tool for searching stands before all others.
    pub search_first: bool,
    /// The client, where the list is of one client alone: it is removed with the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<KeyedHash>,
    /// When the epoch began.
    pub began_at: Timestamp,
}

impl ListEpoch {
    /// What the scopes of work sessions begin with. Their epochs grow old: a store may remove
    /// them once they began longer ago than it keeps calls. All other scopes stay.
    pub const WORK_SCOPE: &str = "work:";
}
