//! What a tool must look like to be shown, where changes of tools are held back.

use jiff::Timestamp;

use crate::principal::Principal;
use crate::tool::ToolSighting;

/// Who approves the tools of the first list of an upstream: nobody, they are trusted.
pub const FIRST_LIST: &str = "first list";

/// A tool of an upstream as it was approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolApproval {
    /// Its name and what it looked like. A definition that is too long to be kept has no text.
    pub sighting: ToolSighting,
    /// When it was approved.
    pub approved_at: Timestamp,
    /// Who approved it.
    pub approved_by: Principal,
}
