//! Analysis of an intent by its words: actions, domains, technical terms and negations.

mod language;
mod scan;
#[cfg(test)]
mod tests;
mod tokens;

pub use language::{Language, Script};
use scan::{Sign, SignKind, VerbCertainty, signs};
use tokens::tokens;

use super::lexicon::{ActionAccess, Lexicon};
use crate::retrieval::Query;

/// The access that a text asks for: to read or to change data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IntendedAccess {
    /// All of its actions read, or it is a question without any action.
    Read,
    /// One of its actions changes something.
    Write,
    /// The text does not say.
    #[default]
    Unknown,
}

/// The parts of a text that are negated and not wanted elsewhere in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NegatedParts {
    /// The names of actions, in the order of the text.
    pub actions: Vec<String>,
    /// The names of domains, in the order of the lexicon.
    pub domains: Vec<String>,
    /// Technical terms, in the order of the text.
    pub terms: Vec<String>,
}

/// The analysis of an intent. Nothing in it repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IntentAnalysis {
    /// The names of the actions, in the order of the text.
    pub actions: Vec<String>,
    /// The names of the domains, in the order of the lexicon.
    pub domains: Vec<String>,
    /// Technical terms, in the order of the text: terms of the lexicon by their name there, and
    /// words that are written as identifiers, files, addresses or abbreviations.
    pub terms: Vec<String>,
    /// The negated parts of the text.
    pub negated: NegatedParts,
    /// The language of the text, if it can be detected.
    pub language: Language,
    /// The script of most of its letters.
    pub script: Script,
    /// The access that the text asks for.
    pub access: IntendedAccess,
    /// Whether the text is long. A negation in a long text is about details, and their tools are
    /// needed all the same; in a brief text it is about tools.
    pub is_long: bool,
}

impl IntentAnalysis {
    /// The maximum number of actions, of domains and of terms.
    pub const MAX_OF_EACH: usize = 32;
    /// The maximum number of words of a brief text.
    pub const BRIEF_WORDS: usize = 25;

    /// Analyses a text, at most [`Query::MAX_BYTES`] of it.
    ///
    /// A word counts as an action if it is a verb: not after a determiner ("the build") or another
    /// verb ("run tests"), and not in names and quotation marks. Past forms, and forms with `s` in
    /// the middle of a clause, count only if the text has no other action.
    #[must_use]
    pub fn of(text: &str, lexicon: &Lexicon) -> Self {
        let text = Query::readable_part(text);
        let signs = signs(&tokens(text, lexicon), lexicon);
        let script = Script::of(text);
        let actions = |is_negated| actions(&signs, is_negated);
        let (asked, refused) = (actions(false), actions(true));
        let name = |at: &usize| lexicon.action(*at).0.to_owned();
        let is_refused = |at: &&usize| !asked.contains(at);
        let (domains, negated_domains) = domains(&signs, lexicon);
        let terms = |is_negated| terms(&signs, is_negated);
        let (wanted_terms, mut negated_terms) = (terms(false), terms(true));
        negated_terms.retain(|term| !wanted_terms.contains(term));
        Self {
            negated: NegatedParts {
                actions: refused.iter().filter(is_refused).map(name).collect(),
                domains: negated_domains,
                terms: negated_terms,
            },
            access: access(&asked, text, lexicon),
            actions: asked.iter().map(name).collect(),
            domains,
            terms: wanted_terms,
            language: Language::of(text, script),
            script,
            is_long: text.split_whitespace().nth(Self::BRIEF_WORDS).is_some(),
        }
    }

    /// Returns whether a text is a question, by its first word or its end.
    #[must_use]
    pub fn is_question(text: &str) -> bool {
        is_question(text)
    }

    /// Returns whether the text has no action, domain or term to find tools by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.domains.is_empty() && self.terms.is_empty()
    }
}

/// Returns the positions of the actions in the lexicon, without repetitions: strong forms, or weak
/// forms if there are no strong ones.
fn actions(signs: &[Sign], is_negated: bool) -> Vec<usize> {
    let of_form = |wanted: VerbCertainty| {
        let found = signs.iter().filter(|sign| sign.is_negated == is_negated);
        let places = found.filter_map(move |sign| match sign.of {
            SignKind::Action(at, form) if form == wanted => Some(at),
            _ => None,
        });
        deduplicate(places)
    };
    let strong = of_form(VerbCertainty::Strong);
    if strong.is_empty() {
        return of_form(VerbCertainty::Weak);
    }
    strong
}

/// Returns the names of the wanted domains, and of the domains that are only negated.
fn domains(signs: &[Sign], lexicon: &Lexicon) -> (Vec<String>, Vec<String>) {
    let places = |is_negated: bool| {
        let found = signs.iter().filter(|sign| sign.is_negated == is_negated);
        let mut places = deduplicate(found.filter_map(|sign| match sign.of {
            SignKind::Domain(at) => Some(at),
            _ => None,
        }));
        places.sort_unstable();
        places
    };
    let (asked, mut negated) = (places(false), places(true));
    negated.retain(|at| !asked.contains(at));
    let names = |places: &[usize]| {
        let names = places.iter().map(|at| lexicon.domain(*at).to_owned());
        names.collect()
    };
    (names(&asked), names(&negated))
}

fn terms(signs: &[Sign], is_negated: bool) -> Vec<String> {
    let found = signs.iter().filter(|sign| sign.is_negated == is_negated);
    deduplicate(found.filter_map(|sign| match &sign.of {
        SignKind::Term(name) => Some(name.clone()),
        _ => None,
    }))
}

fn deduplicate<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if kept.len() < IntentAnalysis::MAX_OF_EACH && !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

fn access(actions: &[usize], text: &str, lexicon: &Lexicon) -> IntendedAccess {
    let mut accesses = actions.iter().map(|at| lexicon.action(*at).1);
    if accesses.clone().any(|it| it == ActionAccess::Write) {
        return IntendedAccess::Write;
    }
    let is_read = if actions.is_empty() {
        is_question(text)
    } else {
        accesses.all(|it| it == ActionAccess::Read)
    };
    if is_read {
        IntendedAccess::Read
    } else {
        IntendedAccess::Unknown
    }
}

fn is_question(text: &str) -> bool {
    const BEGINNINGS: [&str; 18] = [
        "how", "what", "whats", "when", "where", "which", "who", "whose", "whom", "why", "is",
        "are", "was", "were", "does", "did", "has", "have",
    ];
    let text = text.trim();
    let first: String = (text.chars())
        .take_while(|it| !it.is_whitespace())
        .filter(|it| it.is_alphanumeric())
        .collect();
    let is_begun = BEGINNINGS.iter().any(|it| first.eq_ignore_ascii_case(it));
    is_begun || text.ends_with(['?', '？', '؟'])
}
