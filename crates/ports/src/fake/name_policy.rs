//! A list policy that leaves out tools by name.

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};

use crate::list_policy::ListPolicy;

/// Leaves out the tools with these names.
#[derive(Clone, Debug, Default)]
pub struct WithoutNames(pub Vec<ToolName>);

impl ListPolicy for WithoutNames {
    fn select(&self, _context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        let left_out: Vec<usize> = tools
            .iter()
            .enumerate()
            .filter(|(_, tool)| self.0.contains(tool))
            .map(|(position, _)| position)
            .collect();
        if left_out.is_empty() {
            Selection::All
        } else {
            Selection::Without(left_out)
        }
    }
}
