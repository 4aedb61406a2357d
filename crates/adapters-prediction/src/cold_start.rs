//! The list policy of an installation that has learned nothing yet.

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

/// Shows every tool: without evidence, hiding a tool could only be a guess.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColdStart;

impl ListPolicy for ColdStart {
    fn select(&self, _context: &SelectionContext<'_>, _tools: &[ToolName]) -> Selection {
        Selection::All
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;
    use riglm_domain::principal::Principal;

    use super::*;

    #[test]
    fn a_cold_start_shows_every_tool() {
        let principal = Principal::local();
        let upstream = UpstreamName::parse("notes").unwrap();
        let context = SelectionContext {
            principal: &principal,
            upstream: &upstream,
        };
        let tools = ["a".into(), "b".into()];
        assert_eq!(ColdStart.select(&context, &tools), Selection::All);
        assert_eq!(ColdStart.select(&context, &[]), Selection::All);
    }
}
