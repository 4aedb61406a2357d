//! List policies that select tools by name patterns of the operator.
//!
//! Earlier calls have no influence. A pattern can match the name at the server, or the namespaced
//! name that clients see with several upstreams.

use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::id::ToolName;
use riglm_domain::prediction::{NamePattern, Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

/// Shows the tools whose name matches a pattern. Without patterns it shows none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    patterns: Vec<NamePattern>,
}

impl AllowList {
    /// Returns a policy that shows the tools that match `patterns`.
    #[must_use]
    pub fn new(patterns: Vec<NamePattern>) -> Self {
        Self { patterns }
    }
}

impl ListPolicy for AllowList {
    fn select(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        hide(tools, |tool| !fits_any(&self.patterns, context, tool))
    }
}

/// Shows the tools whose name matches no pattern. Without patterns it shows all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyList {
    patterns: Vec<NamePattern>,
}

impl DenyList {
    /// Returns a policy that hides the tools that match `patterns`.
    #[must_use]
    pub fn new(patterns: Vec<NamePattern>) -> Self {
        Self { patterns }
    }
}

impl ListPolicy for DenyList {
    fn select(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        hide(tools, |tool| fits_any(&self.patterns, context, tool))
    }
}

fn fits_any(patterns: &[NamePattern], context: &SelectionContext<'_>, tool: &ToolName) -> bool {
    let names = tool_aliases(context.upstream, tool);
    let fits = |pattern: &NamePattern| names.iter().any(|name| pattern.matches(name));
    patterns.iter().any(fits)
}

/// Returns the selection without the hidden tools. If there are none, it is [`Selection::All`], so
/// that the list is forwarded byte for byte.
fn hide(tools: &[ToolName], is_hidden: impl Fn(&ToolName) -> bool) -> Selection {
    let hidden: Vec<usize> = tools
        .iter()
        .enumerate()
        .filter(|(_, tool)| is_hidden(tool))
        .map(|(position, _)| position)
        .collect();
    if hidden.is_empty() {
        Selection::All
    } else {
        Selection::Without(hidden)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use proptest::prelude::*;
    use riglm_domain::id::UpstreamName;
    use riglm_domain::privacy::principal::Principal;

    use super::*;

    fn select(policy: &dyn ListPolicy, tools: &[ToolName]) -> Selection {
        let principal = Principal::local();
        let upstream = UpstreamName::parse("notes").unwrap();
        let context = SelectionContext {
            principal: &principal,
            upstream: &upstream,
        };
        policy.select(&context, tools)
    }

    fn patterns(texts: &[&str]) -> Vec<NamePattern> {
        texts.iter().map(|text| NamePattern::new(text)).collect()
    }

    fn tools(names: &[&str]) -> Vec<ToolName> {
        names.iter().copied().map(ToolName::from).collect()
    }

    fn names_of_notes() -> Vec<NamePattern> {
        patterns(&["get_*", "*_7*", "notes__delete_user", ""])
    }

    riglm_ports::list_policy_contract!(
        allow_list,
        ready(Box::new(AllowList::new(names_of_notes())))
    );
    riglm_ports::list_policy_contract!(
        empty_allow_list,
        ready(Box::new(AllowList::new(Vec::new())))
    );
    riglm_ports::list_policy_contract!(deny_list, ready(Box::new(DenyList::new(names_of_notes()))));

    #[test]
    fn an_allow_list_shows_only_matching_tools() {
        let listed = tools(&["get_note", "delete_note", "get_user"]);
        let get = AllowList::new(patterns(&["get_*"]));
        assert_eq!(select(&get, &listed), Selection::Without(vec![1]));
        let all = AllowList::new(patterns(&["*"]));
        assert_eq!(select(&all, &listed), Selection::All);
        let shown = AllowList::new(patterns(&["notes__get_note", "other__get_user"]));
        assert_eq!(select(&shown, &listed), Selection::Without(vec![1, 2]));
        let none = AllowList::new(Vec::new());
        assert_eq!(select(&none, &listed), Selection::Without(vec![0, 1, 2]));
    }

    #[test]
    fn a_deny_list_hides_only_matching_tools() {
        let listed = tools(&["get_note", "delete_note", "delete_user"]);
        let no_deletes = DenyList::new(patterns(&["delete_*", "absent"]));
        assert_eq!(select(&no_deletes, &listed), Selection::Without(vec![1, 2]));
        assert_eq!(select(&DenyList::new(Vec::new()), &listed), Selection::All);
    }

    fn names() -> impl proptest::strategy::Strategy<Value = Vec<ToolName>> {
        proptest::collection::vec("[ab_]{0,4}", 0..24)
            .prop_map(|names| names.iter().map(|name| name.as_str().into()).collect())
    }

    fn lists() -> impl proptest::strategy::Strategy<Value = Vec<NamePattern>> {
        proptest::collection::vec("[ab_*]{0,4}", 0..4)
            .prop_map(|texts| texts.iter().map(|text| NamePattern::new(text)).collect())
    }

    fn hidden_positions(selection: Selection) -> Vec<usize> {
        match selection {
            Selection::All => Vec::new(),
            Selection::Without(positions) => positions,
        }
    }

    proptest! {
        #[test]
        fn positions_are_ascending_unique_and_in_range(tools in names(), patterns in lists()) {
            let lists: [&dyn ListPolicy; 2] =
                [&AllowList::new(patterns.clone()), &DenyList::new(patterns)];
            for list in lists {
                let positions = hidden_positions(select(list, &tools));
                prop_assert!(positions.is_sorted_by(|a, b| a < b));
                prop_assert!(positions.iter().all(|position| *position < tools.len()));
            }
        }

        #[test]
        fn allow_and_deny_lists_are_complementary(tools in names(), patterns in lists()) {
            let allowed = hidden_positions(select(&AllowList::new(patterns.clone()), &tools));
            let denied = hidden_positions(select(&DenyList::new(patterns), &tools));
            let mut both: Vec<usize> = allowed.into_iter().chain(denied).collect();
            both.sort_unstable();
            prop_assert_eq!(both, (0..tools.len()).collect::<Vec<_>>());
        }
    }
}
