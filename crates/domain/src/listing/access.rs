//! Whether somebody wants to read or to change something, and which tools change something.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::edit::member;
use crate::recommender::{IntendedAccess, IntentAnalysis};
use crate::retrieval::words;

/// What a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To find out something.
    Read,
    /// To change something, or to find out and to change something.
    Write,
}

/// What a tool's definition says of changes (`annotations.readOnlyHint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnly {
    /// It changes nothing.
    Yes,
    /// It may change something.
    No,
    /// It does not say; the specification takes that for "may change something".
    Unsaid,
}

impl ReadOnly {
    /// Returns what the JSON text of a definition says.
    #[must_use]
    pub fn of_definition(definition: &str) -> Self {
        let said = member(definition, "annotations")
            .filter(|annotations| annotations.starts_with('{'))
            .and_then(|annotations| member(annotations, "readOnlyHint"));
        match said {
            Some("true") => Self::Yes,
            Some("false") => Self::No,
            _ => Self::Unsaid,
        }
    }
}

/// Verbs of changes.
const WRITE: &str = "add append apply archive assign book cancel change clear close commit convert \
    copy create delete deploy disable drop edit enable execute fill fix fork import insert install \
    invite merge modify move open order pay post publish push put refund register remove rename \
    replace reply reset restart revoke rotate run save schedule send set share start stop submit \
    transfer update upload upsert write";
/// Verbs of those who want to know.
const READ: &str = "analyse analyze browse check compare count describe diff display explain fetch \
    find get inspect list lookup overview query read report review search show status summarise \
    summarize view";
/// Verbs of what is done with things of every kind.
const CORE: &str = "add change create delete edit fetch find get list lookup modify new read remove \
    retrieve search set show update view write";
/// Words that begin a question.
const QUESTIONS: [&str; 8] = [
    "how", "what", "when", "where", "which", "who", "whose", "why",
];

/// Returns what a text asks for, by its verbs; `None` when it has none that is known. A verb of
/// change decides: who only reads loses nothing by being shown more.
#[must_use]
pub fn access_of(text: &str) -> Option<Access> {
    let words = words(text);
    if words.iter().any(is_write_verb) {
        return Some(Access::Write);
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_question = QUESTIONS
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word));
    (is_question || words.iter().any(is_read_verb)).then_some(Access::Read)
}

/// Returns what a text says that somebody wants, by the verbs of its analysis; `None` where it does
/// not say. Whoever says it in a line of its own (`read`, `write`) is taken at their word. A question
/// whose only verbs may mean either asks to read.
#[must_use]
pub fn intended_access(text: &str, analysis: &IntentAnalysis) -> Option<Access> {
    if let Some(declared) = text.lines().rev().find_map(declared_access) {
        return Some(declared);
    }
    match analysis.access {
        IntendedAccess::Read => Some(Access::Read),
        IntendedAccess::Write => Some(Access::Write),
        IntendedAccess::Unknown => IntentAnalysis::is_question(text).then_some(Access::Read),
    }
}

/// Returns what a line says that consists of nothing else.
fn declared_access(line: &str) -> Option<Access> {
    match line.trim().to_ascii_lowercase().as_str() {
        "read" | "read-only" | "read only" | "readonly" => Some(Access::Read),
        "write" | "read-write" | "read write" | "read and write" => Some(Access::Write),
        _ => None,
    }
}

/// Returns whether a term is a verb of changing or asking that goes with any thing.
pub(crate) fn is_core_verb(term: &String) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    TERMS.get_or_init(|| terms(CORE)).contains(term)
}

/// Returns whether a term of a text is a verb of changing or of asking.
pub(super) fn is_verb(term: &String) -> bool {
    is_write_verb(term) || is_read_verb(term)
}

fn is_write_verb(term: &String) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    TERMS.get_or_init(|| terms(WRITE)).contains(term)
}

fn is_read_verb(term: &String) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    TERMS.get_or_init(|| terms(READ)).contains(term)
}

fn terms(verbs: &str) -> HashSet<String> {
    words(verbs).into_iter().collect()
}

/// Returns whether a tool changes something: as its definition says, or else by the first verb of
/// its name.
#[must_use]
pub fn is_write(name: &str, read_only: ReadOnly) -> bool {
    match read_only {
        ReadOnly::Yes => false,
        ReadOnly::No => true,
        ReadOnly::Unsaid => {
            let words = words(name);
            words
                .iter()
                .find(|word| is_verb(word))
                .is_some_and(is_write_verb)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_asks_to_read_or_to_write() {
        for (text, expected) in [
            ("List my tasks", Some(Access::Read)),
            ("How does billing work?", Some(Access::Read)),
            ("Create a new task", Some(Access::Write)),
            ("find the task and delete it", Some(Access::Write)),
            ("Updating the status of tasks", Some(Access::Write)),
            ("the latest release", None),
            ("", None),
        ] {
            assert_eq!(access_of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tool_says_whether_it_writes_or_its_name_does() {
        let definition = |hint: &str| format!(r#"{{"annotations":{{"readOnlyHint":{hint}}}}}"#);
        assert_eq!(ReadOnly::of_definition(&definition("true")), ReadOnly::Yes);
        assert_eq!(ReadOnly::of_definition(&definition("false")), ReadOnly::No);
        assert_eq!(ReadOnly::of_definition(&definition("1")), ReadOnly::Unsaid);
        assert_eq!(
            ReadOnly::of_definition(r#"{"annotations":3}"#),
            ReadOnly::Unsaid
        );
        assert!(is_write("delete_task", ReadOnly::Unsaid));
        assert!(!is_write("delete_task", ReadOnly::Yes));
        assert!(is_write("get_task", ReadOnly::No));
        assert!(!is_write("list_updates", ReadOnly::Unsaid));
        assert!(!is_write("echo", ReadOnly::Unsaid));
    }
}
