//! The source files of the product.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// One source file of the product, without its test module.
pub(crate) struct Source {
    /// The path in the folder of the crates, such as `app/src/clock.rs`.
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
}

impl Source {
    /// Returns the folder name of the crate.
    pub(crate) fn crate_name(&self) -> &str {
        self.path.split('/').next().unwrap()
    }
}

/// Returns the product sources of all crates, sorted by path.
pub(crate) fn product() -> Vec<Source> {
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
