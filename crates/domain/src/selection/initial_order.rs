//! The order of tools before anything but their definitions is known.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::access::{ReadOnlyHint, is_write};
use crate::retrieval::words;

/// Verbs of tools that find the arguments for other tools; sessions often begin with them.
const FINDING: [&str; 7] = [
    "browse", "find", "list", "lookup", "query", "search", "show",
];

/// A tool that is known only by its definition.
#[derive(Clone, Copy, Debug)]
pub struct UnknownTool<'a> {
    /// Identifier of its server.
    pub server: &'a str,
    /// Name of the tool, as on its server.
    pub name: &'a str,
    /// Statement about changes.
    pub read_only: ReadOnlyHint,
}

/// Returns the positions of tools in the order of lists before anything is learned. Servers take
/// turns. Within a server, tools that find things come first, then reading tools, then writing
/// tools.
#[must_use]
pub fn initial_order(tools: &[UnknownTool<'_>]) -> Vec<usize> {
    let finding: Vec<String> = FINDING.iter().flat_map(|verb| words(verb)).collect();
    let kind = |tool: &UnknownTool<'_>| {
        let is_finding = words(tool.name)
            .first()
            .is_some_and(|verb| finding.contains(verb));
        match (is_write(tool.name, tool.read_only), is_finding) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 1,
        }
    };
    let mut order: Vec<usize> = (0..tools.len()).collect();
    order.sort_by_key(|at| (kind(&tools[*at]), *at));
    // The round in which each tool has its turn.
    let mut n_before: HashMap<&str, usize> = HashMap::new();
    let mut rounds = vec![0; tools.len()];
    for at in &order {
        let before = n_before.entry(tools[*at].server).or_default();
        rounds[*at] = *before;
        *before += 1;
    }
    // Larger servers are more likely to have the needed tool.
    let n_tools = |at: usize| n_before.get(tools[at].server).copied().unwrap_or(0);
    order.sort_by_key(|at| (rounds[*at], Reverse(n_tools(*at)), *at));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_alternate_with_search_tools_first() {
        let tools = [
            ("mail", "send_mail"),
            ("mail", "get_mail"),
            ("mail", "search_mails"),
            ("files", "write_file"),
            ("files", "list_files"),
        ]
        .map(|(server, name)| UnknownTool {
            server,
            name,
            read_only: ReadOnlyHint::Unsaid,
        });
        let names: Vec<&str> = (initial_order(&tools).into_iter())
            .map(|at| tools[at].name)
            .collect();
        let expected = [
            "search_mails",
            "list_files",
            "get_mail",
            "write_file",
            "send_mail",
        ];
        assert_eq!(names, expected);
        assert!(initial_order(&[]).is_empty());
    }
}
