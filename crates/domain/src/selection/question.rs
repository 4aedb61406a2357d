//! Classification of questions: about a procedure ("how"), or about the assessment of an object as
//! a whole. Both need more tools than those of an object that is named in the text.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::recommendation::IntentAnalysis;
use crate::retrieval::words;

/// Words that ask for an assessment, for which all data of an object may matter.
const ASSESSMENT_WORDS: &str = "analyse analysis analyze assess assessment audit diagnose diagnosis evaluate \
    evaluation examine inspect investigate investigation review";
/// Words after "how" in a question about a procedure.
const HOW: [&str; 8] = ["can", "could", "did", "do", "does", "should", "to", "would"];
/// Last words of a question that begins with "how".
const WORKS: [&str; 4] = ["used", "work", "working", "works"];
/// Words after "what" in a question about a purpose.
const WHAT: [&str; 4] = ["can", "could", "does", "is"];
/// Last words of a question about a purpose.
const FOR: [&str; 3] = ["do", "for", "mean"];
/// Words that ask for instructions.
const MANUAL: [&str; 8] = [
    "docs",
    "documentation",
    "faq",
    "guide",
    "help",
    "instructions",
    "manual",
    "tutorial",
];
/// Objects of "help" in a request for action, not for an explanation.
const WHOM: [&str; 6] = ["her", "him", "me", "out", "them", "us"];
/// Actions of the lexicon that ask for an explanation.
const EXPLAINING: [&str; 2] = ["explain", "learn"];

/// Returns whether a text asks for the assessment of an object as a whole.
pub(super) fn asks_assessment(text: &str) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    let terms = TERMS.get_or_init(|| words(ASSESSMENT_WORDS).into_iter().collect());
    words(text).iter().any(|word| terms.contains(word))
}

/// Returns whether a text asks about a procedure or a purpose.
pub(super) fn asks_how(text: &str, analysis: &IntentAnalysis) -> bool {
    let said: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let starts = |first: &str, then: &[&str]| {
        said.first() == Some(&first) && said.get(1).is_some_and(|word| then.contains(word))
    };
    let is_for_what = starts("what", &WHAT) && said.last().is_some_and(|word| FOR.contains(word));
    let how = said.iter().position(|word| *word == "how");
    let is_of_working = how.is_some_and(|at| said[at..].iter().any(|word| WORKS.contains(word)));
    let wants_manual = said.iter().enumerate().any(|(at, word)| {
        let is_of_somebody = said.get(at + 1).is_some_and(|next| WHOM.contains(next));
        MANUAL.contains(word) && !is_of_somebody
    });
    let explains = (analysis.actions.iter()).any(|action| EXPLAINING.contains(&action.as_str()));
    starts("how", &HOW) || is_for_what || is_of_working || wants_manual || explains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommendation::Lexicon;

    #[test]
    fn questions_for_instructions_are_recognised() {
        let lexicon = Lexicon::built_in();
        for (text, expected) in [
            ("how can I invite somebody?", true),
            ("tell me how invoices are used", true),
            ("What is a webhook for?", true),
            ("is there a tutorial", true),
            ("describe the settings", true),
            ("how many invoices are open?", false),
            ("How long is the list", false),
            ("what is the newest invoice", false),
            ("help me to sort the invoices", false),
            ("", false),
        ] {
            let analysis = IntentAnalysis::of(text, &lexicon);
            assert_eq!(asks_how(text, &analysis), expected, "{text}");
        }
    }

    #[test]
    fn requests_for_an_assessment_are_recognised_in_any_form() {
        assert!(asks_assessment("An audit of the invoices"));
        assert!(asks_assessment("evaluating suppliers"));
        assert!(!asks_assessment("list the suppliers"));
    }
}
