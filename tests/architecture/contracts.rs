//! Every port has a contract suite, and every suite is run: on the fakes, and on an adapter.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

/// Returns the texts of all sources in a folder, with their paths.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    super::sources::collect(folder, &mut paths);
    assert!(!paths.is_empty(), "no sources in {}", folder.display());
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// Returns the first groups of all matches, sorted.
fn found(pattern: &str, sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let texts = sources.iter().map(|(_, text)| text);
    let matches = texts.flat_map(|text| pattern.captures_iter(text));
    matches.map(|groups| groups[1].to_owned()).collect()
}

/// Returns whether a file belongs to the suites.
fn is_suite(path: &Path) -> bool {
    let path = path.display().to_string();
    path.ends_with("/contract.rs") || path.contains("/contract/")
}

#[test]
fn every_port_is_named_by_a_contract_suite() {
    let all = sources(&crates().join("ports/src"));
    let (suites, ports): (Vec<_>, Vec<_>) = all.into_iter().partition(|(path, _)| is_suite(path));
    let traits = found(r"(?m)^pub trait (\w+)", &ports);
    assert!(traits.len() > 30, "{} traits", traits.len());
    let without: Vec<&String> = traits
        .iter()
        .filter(|name| {
            let word = Regex::new(&format!(r"\b{name}\b")).unwrap();
            !suites.iter().any(|(_, text)| word.is_match(text))
        })
        .collect();
    assert!(without.is_empty(), "ports without a suite: {without:?}");
}

#[test]
fn every_contract_suite_runs_on_a_fake_and_on_an_adapter() {
    let suites = sources(&crates().join("ports/src/contract"));
    let mut suites = found(r"macro_rules! (\w+_contract)\b", &suites);
    let root = fs::read_to_string(crates().join("ports/src/contract.rs")).unwrap();
    suites.extend(found(
        r"macro_rules! (\w+_contract)\b",
        &[(PathBuf::new(), root)],
    ));
    let expanded = r"(?m)^\s*(?:\$\()?riglm_ports::(\w+_contract)!";
    let on_fakes = found(expanded, &sources(&crates().join("ports/tests")));
    assert_eq!(on_fakes, suites);
    let mut on_adapters = BTreeSet::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.ends_with("ports") {
            on_adapters.extend(found(expanded, &sources(&folder)));
        }
    }
    assert_eq!(on_adapters, suites);
}
