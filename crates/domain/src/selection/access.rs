//! Classification of texts and tools as reading or writing.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::mcp::edit::member;
use crate::recommendation::{IntendedAccess, IntentAnalysis};
use crate::retrieval::words;

/// The access that a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading data.
    Read,
    /// Changing data, or both reading and changing.
    Write,
}

/// The statement of a tool definition about changes (`annotations.readOnlyHint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnlyHint {
    /// The tool changes nothing.
    Yes,
    /// The tool may change data.
    No,
    /// No statement; the specification reads this as "may change data".
    Unsaid,
}

impl ReadOnlyHint {
    /// Returns the statement in a definition, JSON text.
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

/// Verbs that change data.
const WRITE: &str = "add append apply archive assign book cancel change clear close commit convert \
    copy create delete deploy disable drop edit enable execute fill fix fork import insert install \
    invite merge modify move open order pay post publish push put refund register remove rename \
    replace reply reset restart revoke rotate run save schedule send set share start stop submit \
    transfer update upload upsert write";
/// Verbs that read data.
const READ: &str = "analyse analyze browse check compare count describe diff display explain fetch \
    find get inspect list lookup overview query read report review search show status summarise \
    summarize view";
/// Generic verbs, which go with every kind of object.
const CORE: &str = "add change create delete edit fetch find get list lookup modify new read remove \
    retrieve search set show update view write";
/// Words at the start of a question.
const QUESTIONS: [&str; 8] = [
    "how", "what", "when", "where", "which", "who", "whose", "why",
];

/// Returns the access that a text asks for, by its verbs; `None` without a known verb. Any writing
/// verb decides for [`Access::Write`], because a client that only reads loses nothing by seeing
/// more tools.
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

/// Returns the intended access of a text, by the verbs of its analysis; `None` if it is unknown. An
/// explicit declaration on a line of its own (`read`, `write`) takes precedence. A question in
/// which all verbs are ambiguous asks to read.
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

/// Returns the declaration of a line that contains nothing else.
fn declared_access(line: &str) -> Option<Access> {
    match line.trim().to_ascii_lowercase().as_str() {
        "read" | "read-only" | "read only" | "readonly" => Some(Access::Read),
        "write" | "read-write" | "read write" | "read and write" => Some(Access::Write),
        _ => None,
    }
}

/// Returns whether a term is a generic verb, which goes with every kind of object.
pub(crate) fn is_core_verb(term: &String) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    TERMS.get_or_init(|| terms(CORE)).contains(term)
}

/// Returns whether a term is a verb of reading or writing.
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

/// Returns whether a tool changes data: by the statement of its definition, otherwise by the first
/// verb in its name.
#[must_use]
pub fn is_write(name: &str, read_only: ReadOnlyHint) -> bool {
    match read_only {
        ReadOnlyHint::Yes => false,
        ReadOnlyHint::No => true,
        ReadOnlyHint::Unsaid => {
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
    fn the_annotation_or_the_name_marks_a_writing_tool() {
        let definition = |hint: &str| format!(r#"{{"annotations":{{"readOnlyHint":{hint}}}}}"#);
        assert_eq!(
            ReadOnlyHint::of_definition(&definition("true")),
            ReadOnlyHint::Yes
        );
        assert_eq!(
            ReadOnlyHint::of_definition(&definition("false")),
            ReadOnlyHint::No
        );
        assert_eq!(
            ReadOnlyHint::of_definition(&definition("1")),
            ReadOnlyHint::Unsaid
        );
        assert_eq!(
            ReadOnlyHint::of_definition(r#"{"annotations":3}"#),
            ReadOnlyHint::Unsaid
        );
        assert!(is_write("delete_task", ReadOnlyHint::Unsaid));
        assert!(!is_write("delete_task", ReadOnlyHint::Yes));
        assert!(is_write("get_task", ReadOnlyHint::No));
        assert!(!is_write("list_updates", ReadOnlyHint::Unsaid));
        assert!(!is_write("echo", ReadOnlyHint::Unsaid));
    }
}
