//! What kind of question a text is: how something works, or what is to be thought of something as a
//! whole. Both ask for more tools than those of a thing that the text names.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::recommender::IntentAnalysis;
use crate::retrieval::words;

/// Words by which somebody asks for an opinion of something, for which all there is of it may count.
const BROAD: &str = "analyse analysis analyze assess assessment audit diagnose diagnosis evaluate \
    evaluation examine inspect investigate investigation review";
/// What a question of how something is done goes on with behind "how".
const HOW: [&str; 8] = ["can", "could", "did", "do", "does", "should", "to", "would"];
/// What it ends with behind "how something".
const WORKS: [&str; 4] = ["used", "work", "working", "works"];
/// What a question of what something is for goes on with behind "what".
const WHAT: [&str; 4] = ["can", "could", "does", "is"];
/// What that ends with.
const FOR: [&str; 3] = ["do", "for", "mean"];
/// Words of those who ask to be shown how.
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
/// Whom somebody helps who is asked to do something, not to explain it.
const WHOM: [&str; 6] = ["her", "him", "me", "out", "them", "us"];
/// The actions of the lexicon by which somebody asks for an explanation.
const EXPLAINING: [&str; 2] = ["explain", "learn"];

/// Returns whether a text asks to judge something as a whole.
pub(super) fn is_broad(text: &str) -> bool {
    static TERMS: OnceLock<HashSet<String>> = OnceLock::new();
    let terms = TERMS.get_or_init(|| words(BROAD).into_iter().collect());
    words(text).iter().any(|word| terms.contains(word))
}

/// Returns whether a text asks how something works, or how or with what it is done.
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
    use crate::recommender::Lexicon;

    #[test]
    fn questions_of_how_are_told_from_other_questions() {
        let lexicon = Lexicon::shipped();
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
    fn a_judgement_is_asked_for_in_any_form() {
        assert!(is_broad("An audit of the invoices"));
        assert!(is_broad("evaluating suppliers"));
        assert!(!is_broad("list the suppliers"));
    }
}
