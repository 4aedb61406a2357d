//! The choice of the tools that a list shows.

use std::fmt;

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};

/// Chooses which tools of a list a client is shown.
///
/// A choice is a pure computation: it neither blocks nor fails, and the same context, tools and
/// learned state give the same selection. What is left out stays callable. Positions in a
/// [`Selection::Without`] are ascending, without repetition, and below the number of tools.
pub trait ListPolicy: Send + Sync + fmt::Debug {
    /// Returns what to show of `tools`, which stand in the order of the list.
    fn select(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection;
}
