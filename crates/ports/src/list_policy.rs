//! The list policy: selection of the tools in a list.

use std::fmt;

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};

/// Selects the tools of a list that a client is shown.
///
/// A selection is a pure computation: it neither blocks nor fails, and the same context, tools and
/// learned state give the same selection. Tools that are not selected can still be called.
/// Positions in a [`Selection::Without`] are ascending, without repetition, and below the number of
/// tools.
pub trait ListPolicy: Send + Sync + fmt::Debug {
    /// Returns the selection from `tools`, which are in the order of the list.
    fn select(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection;
}
