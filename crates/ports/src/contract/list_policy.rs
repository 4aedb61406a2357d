//! The clauses of [`ListPolicy`].

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_domain::privacy::principal::Principal;

use crate::list_policy::ListPolicy;

/// Expands to a module with one `tokio::test` for each clause of a list policy.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a list
/// policy.
#[macro_export]
macro_rules! list_policy_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(list_policy [$(#[$attribute])*] $fresh;
                an_empty_list_stays_empty,
                positions_are_ascending_and_in_the_list,
                the_same_question_has_the_same_answer,
                threads_get_the_selections_of_their_lists,
                a_large_list_is_selected_from,
            );
        }
    };
}

fn lists() -> Vec<Vec<ToolName>> {
    let names = [
        &[] as &[&str],
        &["get_note"],
        &["get_note", "delete_note", "get_user", "delete_user"],
        // A list can have a name twice, and names that no server should choose.
        &[
            "get_note",
            "get_note",
            "",
            "*",
            "notes__get_note",
            "é\u{0}\u{202e}",
        ],
    ];
    let mut lists: Vec<Vec<ToolName>> = Vec::new();
    lists.extend(
        names
            .iter()
            .map(|list| list.iter().copied().map(ToolName::from).collect()),
    );
    lists.push(
        (0..300)
            .map(|n| ToolName::from(format!("tool_{n}").as_str()))
            .collect(),
    );
    lists
}

fn select(policy: &dyn ListPolicy, principal: &str, tools: &[ToolName]) -> Selection {
    let upstream = UpstreamName::parse("notes").unwrap();
    let principal = Principal::from_name(principal);
    let context = SelectionContext {
        principal: &principal,
        upstream: &upstream,
    };
    policy.select(&context, tools)
}

/// Nothing can be left out of an empty list.
pub async fn an_empty_list_stays_empty(policy: &impl ListPolicy) {
    match select(policy, "alice", &[]) {
        Selection::All => {}
        Selection::Without(left_out) => assert!(left_out.is_empty(), "{left_out:?}"),
    }
}

/// The positions of tools that are left out are ascending, without repetition, and below the number
/// of tools.
pub async fn positions_are_ascending_and_in_the_list(policy: &impl ListPolicy) {
    for tools in lists() {
        if let Selection::Without(left_out) = select(policy, "alice", &tools) {
            assert!(left_out.is_sorted_by(|a, b| a < b), "{left_out:?}");
            let is_in_list = |position: &usize| *position < tools.len();
            assert!(left_out.iter().all(is_in_list), "{left_out:?}");
        }
    }
}

/// The same context and tools give the same selection, whatever was selected in between.
pub async fn the_same_question_has_the_same_answer(policy: &impl ListPolicy) {
    let ask = |principal| {
        lists()
            .iter()
            .map(|tools| select(policy, principal, tools))
            .collect()
    };
    let first: Vec<Selection> = ask("alice");
    let _: Vec<Selection> = ask("bob");
    let again: Vec<Selection> = ask("alice");
    assert_eq!(again, first);
}

/// Threads that ask at the same time get the selections of their own lists.
pub async fn threads_get_the_selections_of_their_lists(policy: &impl ListPolicy) {
    let lists = lists();
    let expected: Vec<Selection> = lists.iter().map(|it| select(policy, "alice", it)).collect();
    let (lists, expected) = (&lists, &expected);
    std::thread::scope(|scope| {
        for from in 0..4 {
            scope.spawn(move || {
                for n in 0..50 {
                    let n = (n + from) % lists.len();
                    assert_eq!(select(policy, "alice", &lists[n]), expected[n]);
                }
            });
        }
    });
}

/// A list with the largest number of tools that is usual at once has a selection.
pub async fn a_large_list_is_selected_from(policy: &impl ListPolicy) {
    let tools: Vec<ToolName> = (0..20_000)
        .map(|n| ToolName::from(format!("get_{n}").as_str()))
        .collect();
    let selection = select(policy, "alice", &tools);
    assert_eq!(select(policy, "alice", &tools), selection);
}
