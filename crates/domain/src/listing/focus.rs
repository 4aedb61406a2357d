//! Which tools are about what a text is about: a guess by words, for when nothing was learned.

use std::collections::{HashMap, HashSet};

use super::access::{Access, ReadOnly, access_of, is_verb, is_write};
use crate::retrieval::words;

/// A tool, as far as a guess by words needs it.
#[derive(Clone, Copy, Debug)]
pub struct Focus<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it says of changes.
    pub read_only: ReadOnly,
}

/// A word that more than this share of the tools have in their names tells nothing of any of them.
const COMMON: f64 = 0.5;

/// Returns the positions of the tools that are about the things a text names, ascending: every tool
/// that has one of its words in its name, verbs apart. A request about tasks keeps every task tool;
/// one that only reads keeps those that read. Empty where nothing in the text is the name of
/// anything.
#[must_use]
pub fn focused(text: &str, tools: &[Focus<'_>]) -> Vec<usize> {
    let said: HashSet<String> = words(text).into_iter().filter(is_thing).collect();
    let names: Vec<HashSet<String>> = tools
        .iter()
        .map(|tool| words(tool.name).into_iter().filter(is_thing).collect())
        .collect();
    let mut n_with: HashMap<&str, usize> = HashMap::new();
    for word in names.iter().flatten() {
        *n_with.entry(word).or_default() += 1;
    }
    let tells = |word: &String| {
        let n = n_with.get(word.as_str()).copied().unwrap_or(0);
        n > 0 && (n == 1 || ratio(n, tools.len()) <= COMMON)
    };
    let said: HashSet<&String> = said.iter().filter(|word| tells(word)).collect();
    let about = names.iter().enumerate().filter(|(_, name)| {
        let mut name = name.iter();
        name.any(|word| said.contains(word))
    });
    let only_reads = access_of(text) == Some(Access::Read);
    let wanted = about.filter(|(at, _)| {
        let tool = &tools[*at];
        !(only_reads && is_write(tool.name, tool.read_only))
    });
    wanted.map(|(at, _)| at).collect()
}

/// Returns whether a word may name a thing: verbs of asking and changing do not.
fn is_thing(word: &String) -> bool {
    !is_verb(word) && word.chars().nth(1).is_some()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of tools are far below 2^52"
)]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = [
        "list_onto_tasks",
        "get_onto_task_details",
        "create_onto_task",
        "update_onto_task",
        "list_onto_projects",
        "get_onto_project_graph",
        "create_onto_project",
        "web_search",
        "get_onto_docs",
    ];

    fn names(text: &str) -> Vec<&'static str> {
        let tools = NAMES.map(|name| Focus {
            name,
            read_only: ReadOnly::Unsaid,
        });
        focused(text, &tools)
            .into_iter()
            .map(|at| NAMES[at])
            .collect()
    }

    #[test]
    fn a_request_about_tasks_keeps_the_task_tools() {
        assert_eq!(names("List my tasks"), &NAMES[..2]);
        assert_eq!(names("Create a new task"), &NAMES[..4]);
        assert_eq!(names("Update task status"), &NAMES[..4]);
        assert_eq!(names("Analyze project health"), &NAMES[4..6]);
        assert_eq!(names("Search the web for news"), ["web_search"]);
        assert_eq!(names("good morning"), Vec::<&str>::new());
        // In the names of most tools, it tells nothing.
        assert_eq!(names("onto"), Vec::<&str>::new());
    }
}
