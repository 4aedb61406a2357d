//! Counts of habits that make the sources hard to read. Each has a ceiling that may only fall.
//!
//! A count is taken over product sources: tests, benches, fakes and contract suites are left out. A
//! count above its ceiling fails, and so does one below it, so that the ceiling follows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// One source file of the product, without its test module.
struct Source {
    path: String,
    lines: Vec<String>,
}

/// Returns the product sources of all crates, sorted by path.
fn product() -> Vec<Source> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut paths);
    }
    paths.sort();
    let is_for_tests =
        Regex::new(r"/(tests|fake|contract)/|/(tests?|testing|scene|fake|contract|sample)\.rs$")
            .unwrap();
    let inline_tests = Regex::new(r"#\[cfg\(test\)\]\nmod \w+ \{").unwrap();
    let sources: Vec<Source> = paths
        .into_iter()
        .map(|path| {
            let in_crates = path.strip_prefix(&crates).unwrap();
            (in_crates.display().to_string(), path)
        })
        .filter(|(shown, _)| !is_for_tests.is_match(shown))
        .map(|(path, file)| {
            let text = fs::read_to_string(file).unwrap();
            let product = inline_tests.splitn(&text, 2).next().unwrap();
            Source {
                path,
                lines: product.lines().map(str::to_owned).collect(),
            }
        })
        .collect();
    assert!(sources.len() > 100, "{} product sources", sources.len());
    sources
}

/// Adds the sources in a folder, if it exists.
pub(crate) fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

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
        let room = source.path.split('/').next().unwrap();
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
        ("`Arc<dyn`", code_matching(&sources, r"Arc<dyn"), 267),
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
        ("parameters of type `bool`", bool_parameters(&sources), 55),
    ];
    let mut wrong = Vec::new();
    for (habit, found, ceiling) in counts {
        if found.len() > ceiling {
            wrong.push(format!(
                "{habit}: {} in place of at most {ceiling}:\n  {}",
                found.len(),
                found.join("\n  ")
            ));
        } else if found.len() < ceiling {
            wrong.push(format!(
                "{habit}: {} are left; lower the ceiling from {ceiling}",
                found.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
