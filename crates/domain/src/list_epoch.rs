//! Epochs of lists: as long as one lasts, a list is the same for all who share it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::list_shown::ToolSet;

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
    /// When the epoch began.
    pub began_at: Timestamp,
}
