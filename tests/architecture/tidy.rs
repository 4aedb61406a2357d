//! Counts of habits that make the sources hard to read. Each has a ceiling that may only fall.
//!
//! A count is taken over product sources: tests, benches, fakes and contract suites are left out.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::ceilings::{Count, assert_at_ceilings};
use super::sources::{Source, product};

/// Returns the lines that match, as `path:line: text`.
fn lines_matching(sources: &[Source], pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap();
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.lines.iter().enumerate() {
            if pattern.is_match(line) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    found
}

/// Returns lines of code that match; comments are left out.
fn code_matching(sources: &[Source], pattern: &str) -> Vec<String> {
    let mut found = lines_matching(sources, pattern);
    found.retain(|line| {
        !line
            .split(": ")
            .nth(1)
            .is_some_and(|code| code.starts_with("//"))
    });
    found
}

/// Returns the first lines of documentation that are a relative clause.
fn relative_clauses(sources: &[Source]) -> Vec<String> {
    let clause = Regex::new(
        r"^//[/!] (What|Who|Whose|How|Where|Which|Why|Returns (what|who|how|where|which|whose))\b",
    )
    .unwrap();
    let mut found = Vec::new();
    for source in sources {
        let mut was_comment = false;
        for line in &source.lines {
            let line = line.trim();
            if !was_comment && clause.is_match(line) {
                found.push(format!("{}: {line}", source.path));
            }
            was_comment = line.starts_with("///") || line.starts_with("//!");
        }
    }
    found
}

/// Returns the definitions whose name is one bare participle, such as `Told` or `kept`.
fn participles(sources: &[Source]) -> Vec<String> {
    const IRREGULAR: &str = "told|kept|said|known|held|shown|met|made|chosen|given|taken|seen|found|\
         sent|begun|born|brought|built|bought|caught|done|drawn|driven|eaten|fallen|felt|forgotten|\
         gone|got|grown|heard|hidden|laid|led|lent|lost|meant|paid|risen|sold|spent|stood|thought|\
         thrown|understood|won|woven|written|broken|newborn";
    let name = Regex::new(&format!(
        r"^(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?(?:fn|struct|enum|trait|type|mod) ([A-Za-z][a-z]+ed|(?i:{IRREGULAR}))\b"
    ))
    .unwrap();
    let verbs = ["need", "feed", "embed", "seed", "proceed", "Feed"];
    let mut found = Vec::new();
    for source in sources {
        for line in &source.lines {
            let line = line.trim();
            if let Some(name) = name.captures(line)
                && !verbs.contains(&&name[1])
            {
                found.push(format!("{}: {line}", source.path));
            }
        }
    }
    found
}

/// Returns the classes that are implemented in more than three files of a crate.
fn scattered_classes(sources: &[Source]) -> Vec<String> {
    let class = Regex::new(r"^impl(?:<[^>]*>)? ([A-Z][A-Za-z]+)(?:<[^>]*>)? \{").unwrap();
    let mut files: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let room = source.crate_name();
        for line in &source.lines {
            if let Some(name) = class.captures(line) {
                files
                    .entry((room.to_owned(), name[1].to_owned()))
                    .or_default()
                    .insert(&source.path);
            }
        }
    }
    files
        .into_iter()
        .filter(|(_, files)| files.len() > 3)
        .map(|((room, class), files)| format!("{room} {class}: {} files", files.len()))
        .collect()
}

/// Returns the files of fewer than 40 lines.
fn small_files(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.lines.len() < 40)
        .map(|source| format!("{}: {} lines", source.path, source.lines.len()))
        .collect()
}

/// Returns the functions with a parameter of type `bool`, without those whose signature a trait of
/// serde gives.
fn bool_parameters(sources: &[Source]) -> Vec<String> {
    let mut found = code_matching(sources, r"\bfn .*\w: bool[,)]");
    found.retain(|line| !line.contains("fn visit_bool"));
    found
}

#[test]
fn habits_harming_readability_never_increase() {
    let sources = product();
    let counts = [
        (
            "documentation that is a relative clause",
            relative_clauses(&sources),
            0,
        ),
        ("names that are a bare participle", participles(&sources), 2),
        (
            "classes in more than three files",
            scattered_classes(&sources),
            2,
        ),
        ("files of fewer than 40 lines", small_files(&sources), 84),
        ("`is_modern`", code_matching(&sources, r"\bis_modern\b"), 29),
        (
            "`is_aggregated()`",
            code_matching(&sources, r"\bis_aggregated\(\)"),
            0,
        ),
        (
            "tuples as parameters",
            code_matching(&sources, r"^\s*\([a-z_, ]+\): \("),
            2,
        ),
        ("`Arc<dyn`", code_matching(&sources, r"Arc<dyn"), 264),
        (
            "`PoisonError`",
            code_matching(&sources, r"\bPoisonError\b"),
            0,
        ),
        (
            "`Result<_, String>`",
            code_matching(&sources, r"Result<[^<>]*, String>"),
            0,
        ),
        ("parameters of type `bool`", bool_parameters(&sources), 53),
    ];
    let counts = counts.map(|(habit, found, ceiling)| Count {
        name: habit.to_owned(),
        number: found.len(),
        ceiling,
        offenders: found,
    });
    assert_at_ceilings(&counts);
}
