//! Matching of tools to a text by words, for use before anything is learned.

use std::collections::{HashMap, HashSet};

use super::access::{Access, ReadOnlyHint, access_of, is_verb, is_write};
use crate::num::ratio;
use crate::retrieval::words;

/// A tool, as far as matching by words needs it.
#[derive(Clone, Copy, Debug)]
pub struct NamedTool<'a> {
    /// Name of the tool.
    pub name: &'a str,
    /// Statement about changes.
    pub read_only: ReadOnlyHint,
}

/// Words in the names of more than this share of the tools distinguish no tool and are ignored.
const MAX_COMMON_SHARE: f64 = 0.5;

/// Returns the positions of the tools with a word of the text in their names, ascending. Verbs are
/// ignored: a text about tasks matches every task tool. If the text asks only to read, writing
/// tools are left out. Empty if no word of the text is in a name.
#[must_use]
pub fn tools_named_in(text: &str, tools: &[NamedTool<'_>]) -> Vec<usize> {
    let said: HashSet<String> = words(text).into_iter().filter(is_object_word).collect();
    let names: Vec<HashSet<String>> = tools
        .iter()
        .map(|tool| {
            words(tool.name)
                .into_iter()
                .filter(is_object_word)
                .collect()
        })
        .collect();
    let mut n_with: HashMap<&str, usize> = HashMap::new();
    for word in names.iter().flatten() {
        *n_with.entry(word).or_default() += 1;
    }
    let tells = |word: &String| {
        let n = n_with.get(word.as_str()).copied().unwrap_or(0);
        n > 0 && (n == 1 || ratio(n, tools.len()) <= MAX_COMMON_SHARE)
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

/// Returns whether a word may name an object: not a verb of reading or writing.
fn is_object_word(word: &String) -> bool {
    !is_verb(word) && word.chars().nth(1).is_some()
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
        let tools = NAMES.map(|name| NamedTool {
            name,
            read_only: ReadOnlyHint::Unsaid,
        });
        tools_named_in(text, &tools)
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
        // A word in most names distinguishes no tool.
        assert_eq!(names("onto"), Vec::<&str>::new());
    }
}
