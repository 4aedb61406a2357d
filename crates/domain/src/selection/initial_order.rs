//! The order of tools before anything but their definitions is known.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::access::{ReadOnlyHint, is_write};
use crate::retrieval::words;

/// Verbs of tools that find the arguments for other tools; sessions often begin with them.
const FINDING: [&str; 7] = [
    "browse", "find", "list", "lookup", "query", "search", "show",
];

/// Definitions of more than this many times the median size of a catalog are large.
const LARGE: usize = 3;

/// A tool that is known only by its definition.
#[derive(Clone, Copy, Debug)]
pub struct UnknownTool<'a> {
    /// Identifier of its server.
    pub server: &'a str,
    /// Name of the tool, as on its server.
    pub name: &'a str,
    /// Statement about changes.
    pub read_only: ReadOnlyHint,
    /// Size of the definition in bytes; 0 for all tools if it is unknown.
    pub n_bytes: usize,
}

/// Returns the positions of tools in the order of lists before anything is learned. Servers take
/// turns, the one with the most tools first. Within a server, tools that find things come first, then
/// reading tools, then writing tools; of equal ones, those with short names, which are the general
/// ones, and small ones. Definitions of more than three times the median size come after all others,
/// since one takes the room of several.
///
/// The order of the servers in `tools` has no effect.
#[must_use]
pub fn initial_order(tools: &[UnknownTool<'_>]) -> Vec<usize> {
    let finding: Vec<String> = FINDING.iter().flat_map(|verb| words(verb)).collect();
    let mut sizes: Vec<usize> = tools.iter().map(|tool| tool.n_bytes).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let is_large = |at: usize| tools[at].n_bytes > median.saturating_mul(LARGE);
    let rank = |at: usize| {
        let tool = &tools[at];
        let is_finding = words(tool.name)
            .first()
            .is_some_and(|verb| finding.contains(verb));
        let kind = match (is_write(tool.name, tool.read_only), is_finding) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 1,
        };
        (is_large(at), kind, tool.name.len(), tool.n_bytes, at)
    };
    let mut order: Vec<usize> = (0..tools.len()).collect();
    order.sort_by_cached_key(|at| rank(*at));
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
    order.sort_by_key(|at| {
        let size = Reverse(n_tools(*at));
        (is_large(*at), rounds[*at], size, tools[*at].server)
    });
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            n_bytes: 0,
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

    /// A server, a name, and a size in bytes.
    type Row = (usize, String, usize);

    fn catalog(rows: &[Row]) -> Vec<UnknownTool<'_>> {
        const SERVERS: [&str; 4] = ["a", "b", "c", "d"];
        let tools = rows.iter().map(|(server, name, n_bytes)| UnknownTool {
            server: SERVERS[*server],
            name,
            read_only: ReadOnlyHint::Unsaid,
            n_bytes: *n_bytes,
        });
        tools.collect()
    }

    fn first(rows: &[Row], n: usize) -> Vec<&str> {
        let order = initial_order(&catalog(rows)).into_iter().take(n);
        order.map(|at| rows[at].1.as_str()).collect()
    }

    #[test]
    fn a_large_definition_waits_for_all_others_and_still_has_its_turn() {
        let mut rows: Vec<Row> = (0..9).map(|n| (0, format!("get_{n}"), 500)).collect();
        rows.push((1, "search".into(), 9_000));
        rows.push((1, "delete_all".into(), 900));
        assert_eq!(first(&rows, 2), ["get_0", "delete_all"]);
        assert_eq!(first(&rows, 11)[10], "search");
        // If all are large, none is.
        for row in &mut rows {
            row.2 = 9_000;
        }
        assert_eq!(first(&rows, 2), ["get_0", "search"]);
    }

    #[test]
    fn of_the_same_kind_short_names_and_small_definitions_come_first() {
        let rows = [
            (0, "list_allowed_directories".into(), 100),
            (0, "list_b".into(), 200),
            (0, "list_a".into(), 300),
            (0, "rm".into(), 50),
        ];
        let expected = ["list_b", "list_a", "list_allowed_directories", "rm"];
        assert_eq!(first(&rows, 4), expected);
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (
            0..4_usize,
            "(list_|get_|delete_)?[a-z]{1,6}",
            0..20_000_usize,
        );
        proptest::collection::vec(row, 0..40)
    }

    proptest! {
        #[test]
        fn every_tool_has_one_place_and_large_ones_are_last(rows in rows()) {
            let order = initial_order(&catalog(&rows));
            let mut all = order.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..rows.len()).collect::<Vec<_>>());
            let mut sizes: Vec<usize> = rows.iter().map(|row| row.2).collect();
            sizes.sort_unstable();
            let limit = sizes.get(sizes.len() / 2).copied().unwrap_or(0) * LARGE;
            prop_assert!(order.iter().map(|at| rows[*at].2 > limit).is_sorted());
            // At least half of a catalog is not large, so that large ones are the exception.
            prop_assert!(rows.iter().filter(|row| row.2 > limit).count() <= rows.len() / 2);
        }

        #[test]
        fn the_order_of_servers_has_no_effect(rows in rows()) {
            let mut other = rows.clone();
            other.sort_by_key(|row| std::cmp::Reverse(row.0));
            let names = |rows: &[Row]| -> Vec<Row> {
                initial_order(&catalog(rows)).into_iter().map(|at| rows[at].clone()).collect()
            };
            prop_assert_eq!(names(&rows), names(&other));
        }
    }
}
