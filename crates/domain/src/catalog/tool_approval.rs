//! Approvals of tool definitions, for upstreams whose changed tools are hidden until approved.

use jiff::Timestamp;

use crate::catalog::tool::ToolSighting;
use crate::privacy::principal::Principal;

/// The approver of the tools in the first list of an upstream, which are trusted without an
/// operator.
pub const FIRST_LIST: &str = "first list";

/// A tool of an upstream as it was approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolApproval {
    /// The approved name and definition. A definition that is too long to be stored has no text.
    pub sighting: ToolSighting,
    /// The time of the approval.
    pub approved_at: Timestamp,
    /// The principal that approved the tool.
    pub approved_by: Principal,
}
