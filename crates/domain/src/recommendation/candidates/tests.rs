use proptest::prelude::*;

use super::*;
use crate::catalog::tool::ToolRef;
use crate::id::{ToolName, UpstreamName};
use crate::retrieval::{ParameterText, ToolText};

fn tool(server: &str, name: &str, description: &str) -> IndexedTool {
    let text = ToolText {
        name: name.into(),
        description: description.into(),
        parameters: vec![ParameterText {
            name: "target_zone".into(),
            ..ParameterText::default()
        }],
        ..ToolText::default()
    };
    let text = text.on_server(server, "", "");
    let tool = ToolRef {
        upstream: UpstreamName::parse(server).unwrap(),
        tool: ToolName::from(name),
    };
    IndexedTool::new(tool, text)
}

fn catalog() -> Vec<IndexedTool> {
    [
        (
            "serena",
            "find_symbol",
            "Finds where a symbol or function is defined. Deletes nothing.",
        ),
        ("serena", "rename_symbol", "Renames a symbol."),
        ("playwright", "browser_click", "Clicks on a web page."),
        ("files", "delete_file", "Deletes a file."),
        ("files", "list_updates", "Lists what was updated."),
        ("mail", "send_email", "Sends an email."),
        ("weather", "forecast", "The weather of the next days."),
    ]
    .map(|(server, name, description)| tool(server, name, description))
    .into()
}

fn candidates(text: &str, neighbours: &[usize], limit: usize) -> Vec<Candidate> {
    let lexicon = Lexicon::built_in();
    let index = CandidateIndex::new(&catalog(), &lexicon);
    index.candidates(&IntentAnalysis::of(text, &lexicon), neighbours, limit)
}

fn positions(found: &[Candidate]) -> Vec<usize> {
    found.iter().map(|it| it.position).collect()
}

#[test]
fn the_tool_with_most_signals_comes_first() {
    let text = "I want to find where a Python function is defined";
    let found = candidates(text, &[6, 0], DEFAULT_CANDIDATES);
    assert_eq!(found[0].position, 0);
    let signals = &found[0].signals;
    assert_eq!(signals.actions, ["find"]);
    assert_eq!(signals.domains, ["code"]);
    assert_eq!(signals.terms, ["function"]);
    assert_eq!(signals.neighbour, Some(1));
    assert_eq!(signals.n_named(), 3);
    assert_eq!(positions(&found), [0, 6, 1]);
    assert_eq!(found[1].signals.n_named(), 0);
}

#[test]
fn the_nearest_neighbours_are_kept_despite_other_signals() {
    let found = candidates("find a symbol or delete the file", &[6, 2, 5], 3);
    let mut kept = positions(&found);
    kept.sort_unstable();
    assert_eq!(kept, [2, 5, 6]);
    assert_eq!(CandidateIndex::n_guaranteed(DEFAULT_CANDIDATES), 18);
}

#[test]
fn actions_of_a_tool_come_from_name_and_first_sentence() {
    let actions = |text: &str| {
        let found = candidates(text, &[], 7);
        let named = found.iter().filter(|it| !it.signals.actions.is_empty());
        named.map(|it| it.position).collect::<Vec<_>>()
    };
    assert_eq!(actions("delete it"), [3]);
    assert_eq!(actions("update it"), [1]);
    assert_eq!(actions("click it"), [2]);
}

#[test]
fn names_are_found_by_all_of_their_words() {
    let terms = |text: &str| {
        let found = candidates(text, &[], 7);
        let named = found.iter().filter(|it| !it.signals.terms.is_empty());
        named.map(|it| it.position).collect::<Vec<_>>()
    };
    assert_eq!(terms("browser_click"), [2]);
    assert_eq!(terms("targetZone").len(), 7);
    assert!(terms("click_forecast").is_empty());
}

#[test]
fn negated_tools_come_last() {
    let found = candidates("find the file but don't delete it", &[3, 0, 4], 3);
    assert_eq!(positions(&found), [4, 0, 3]);
    assert!(found[2].signals.is_negated && !found[0].signals.is_negated);
    let found = candidates("find the file but don't delete it", &[3, 0, 4], 2);
    assert_eq!(positions(&found), [0, 4]);
    // In a long text one of the nearest neighbours stays all the same, any other tool has no place.
    let long = format!(
        "find the file but don't delete it{}",
        " and so on".repeat(10)
    );
    assert_eq!(positions(&candidates(&long, &[3, 0, 4], 2)), [0, 3]);
    assert_eq!(positions(&candidates(&long, &[0, 4, 3], 2)), [4, 0]);
    let found = candidates("the forecast without the browser", &[2, 6], 7);
    assert_eq!(positions(&found), [6, 2]);
    let found = candidates("tell the weather, not with playwright", &[2, 6], 7);
    assert!(
        found
            .last()
            .is_some_and(|it| it.position == 2 && it.signals.is_negated)
    );
}

#[test]
fn repeated_and_unknown_neighbours_are_ignored() {
    let found = candidates("", &[99, 5, 5, 2, usize::MAX], 7);
    assert_eq!(positions(&found), [5, 2]);
    assert_eq!(found[1].signals.neighbour, Some(1));
    assert!(candidates("find it", &[1], 0).is_empty());
    let nothing = CandidateIndex::new(&[], &Lexicon::built_in());
    let analysis = IntentAnalysis::of("find it", &Lexicon::built_in());
    assert!(nothing.candidates(&analysis, &[0], 5).is_empty());
}

proptest! {
    #[test]
    fn candidates_are_few_unique_and_keep_the_nearest(
        text in "([a-z]{2,8}|find|delete|file|weather|don't|web|symbol| ){0,12}",
        neighbours in proptest::collection::vec(0_usize..9, 0..12),
        limit in 0_usize..8,
    ) {
        let lexicon = Lexicon::built_in();
        let analysis = IntentAnalysis::of(&text, &lexicon);
        let index = CandidateIndex::new(&catalog(), &lexicon);
        let found = index.candidates(&analysis, &neighbours, limit);
        prop_assert_eq!(&found, &index.candidates(&analysis, &neighbours, limit));
        prop_assert!(found.len() <= limit);
        let unique: std::collections::BTreeSet<_> = positions(&found).into_iter().collect();
        prop_assert_eq!(unique.len(), found.len());
        let mut nearest: Vec<usize> = Vec::new();
        for at in neighbours.iter().copied().filter(|at| *at < 7) {
            if !nearest.contains(&at) {
                nearest.push(at);
            }
        }
        let refused = index.negated_tools(&analysis.negated);
        for at in nearest.into_iter().take(CandidateIndex::n_guaranteed(limit)) {
            prop_assert!(unique.contains(&at) || refused[at]);
        }
        for one in found {
            let is_named = one.signals.n_named() > 0 || one.signals.neighbour.is_some();
            prop_assert!(is_named, "{one:?}");
        }
    }
}
