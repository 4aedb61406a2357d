//! The order of tools of which nothing is known but their names.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::access::{ReadOnly, is_write};
use crate::retrieval::words;

/// Verbs of tools that sessions begin with: they find what others are called with.
const FINDING: [&str; 7] = [
    "browse", "find", "list", "lookup", "query", "search", "show",
];

/// A tool of which nothing is known but what its server says.
#[derive(Clone, Copy, Debug)]
pub struct UnknownTool<'a> {
    /// What tells its server from others.
    pub server: &'a str,
    /// Its name, as its server has it.
    pub name: &'a str,
    /// What it says of changes.
    pub read_only: ReadOnly,
}

/// Returns the positions of tools in the order in which they are shown before anything was learned:
/// servers take turns, and of each those come first that find something, then those that read, then
/// those that change something.
#[must_use]
pub fn typical_order(tools: &[UnknownTool<'_>]) -> Vec<usize> {
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
    // The round of its server in which a tool has its turn.
    let mut n_before: HashMap<&str, usize> = HashMap::new();
    let mut rounds = vec![0; tools.len()];
    for at in &order {
        let before = n_before.entry(tools[*at].server).or_default();
        rounds[*at] = *before;
        *before += 1;
    }
    // Larger servers are more likely to be the one.
    let n_tools = |at: usize| n_before.get(tools[at].server).copied().unwrap_or(0);
    order.sort_by_key(|at| (rounds[*at], Reverse(n_tools(*at)), *at));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_and_those_that_find_come_first() {
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
            read_only: ReadOnly::Unsaid,
        });
        let names: Vec<&str> = (typical_order(&tools).into_iter())
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
        assert!(typical_order(&[]).is_empty());
    }
}
