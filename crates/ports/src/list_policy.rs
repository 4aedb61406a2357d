//! The list policy: selection of the tools in a list.

use std::fmt;

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};

/// Selects the tools of a list that a client is shown.
///
/// Tools that are not selected can still be called.
///
/// # Promises
///
/// - A selection is a pure computation that never fails: the same context and tools give the same
///   selection, whatever was selected before and in other threads, for lists of any length.
/// - Positions in a [`Selection::Without`] are ascending, without repetition, and below the number
///   of tools. Nothing can be left out of an empty list.
///
/// `contract::list_policy` has clauses for them.
pub trait ListPolicy: Send + Sync + fmt::Debug {
    /// Returns the selection from `tools`, which are in the order of the list.
    fn select(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection;
}
