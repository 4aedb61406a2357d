//! The meanings of the words of a text: verbs or things, wanted or negated.

use super::tokens::{Break, Token, WordUse};
use crate::recommendation::lexicon::{ActionAccess, Lexicon, Meaning, PhraseMatch, Word};
use crate::retrieval::words;

/// The certainty that a word is a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VerbCertainty {
    /// A past form, or a form with `s`, which may be a thing: "files sent by Ann", "list updates".
    Weak,
    /// A form that only verbs have at this place.
    Strong,
}

/// An action, a domain or a term in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) of: SignKind,
    pub(super) is_negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignKind {
    Action(usize, VerbCertainty),
    Domain(usize),
    Term(String),
}

/// The scope of a negation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NegationScope {
    /// No negation holds.
    #[default]
    Outside,
    /// A negation holds, and no thing was named yet.
    Begun,
    /// A negation holds, and a thing was named.
    Named,
}

/// The kind of the preceding word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PrecedingWord {
    /// The beginning of the text or of a clause.
    #[default]
    Nothing,
    Verb,
    Determiner,
    Relative,
    /// "to", or a negation.
    To,
    Other,
}

/// Finds the signs in the words of a text.
///
/// A negation holds until its clause ends: at punctuation, at a word that begins another clause, or
/// at an action after "and", "then" or "to" once a thing was named. A comma between two verbs does
/// not end it: "don't move, rename or delete anything". The object of a negated change is neither
/// wanted nor negated: "don't delete the table" says nothing against tables.
pub(super) fn signs(tokens: &[Token], lexicon: &Lexicon) -> Vec<Sign> {
    let mut walk = SignScanner {
        lexicon,
        words: tokens.iter().map(|token| token.word.clone()).collect(),
        tokens,
        scope: NegationScope::Outside,
        is_of_deed: false,
        before: PrecedingWord::Nothing,
        signs: Vec::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        at += walk.step(at);
    }
    walk.signs
}

struct SignScanner<'a> {
    lexicon: &'a Lexicon,
    tokens: &'a [Token],
    words: Vec<Word>,
    scope: NegationScope,
    /// Whether a change is negated in this scope. The things after it are then its objects.
    is_of_deed: bool,
    before: PrecedingWord,
    signs: Vec<Sign>,
}

impl<'a> SignScanner<'a> {
    /// Reads one word or phrase and returns its number of words.
    fn step(&mut self, at: usize) -> usize {
        let token = &self.tokens[at];
        self.read_punctuation(token.before);
        if let Some(name) = &token.name {
            self.add(SignKind::Term(name.clone()));
            self.note_thing();
        }
        let found = self.find(at);
        let n_words = found.map_or(1, |found| found.n_words);
        let meanings = found.map_or(&[][..], |found| found.meanings);
        if token.usage == WordUse::Spoken && self.read_structure_word(meanings) {
            return n_words;
        }
        let was = self.before;
        self.before = if *token.word.plain == *"to" {
            PrecedingWord::To
        } else {
            PrecedingWord::Other
        };
        let is_verb =
            token.usage == WordUse::Spoken && (n_words > 1 || is_verb_after(was, &token.word));
        let mut is_action = false;
        for meaning in meanings {
            let of = match meaning {
                Meaning::Action(action) | Meaning::PastAction(action) if is_verb => {
                    is_action = true;
                    let form = form(meaning, found, was, &token.word);
                    if form == VerbCertainty::Strong {
                        self.before = PrecedingWord::Verb;
                    }
                    if self.scope == NegationScope::Named
                        && matches!(was, PrecedingWord::To | PrecedingWord::Relative)
                    {
                        self.scope = NegationScope::Outside;
                    }
                    self.is_of_deed |= self.scope != NegationScope::Outside
                        && self.lexicon.action(*action).1 == ActionAccess::Write;
                    SignKind::Action(*action, form)
                }
                Meaning::Domain(domain) => SignKind::Domain(*domain),
                Meaning::Term(name) => SignKind::Term(name.clone()),
                _ => continue,
            };
            self.add(of);
        }
        let is_thing = meanings
            .iter()
            .any(|it| matches!(it, Meaning::Domain(_) | Meaning::Term(_)));
        if !is_action && (is_thing || was == PrecedingWord::Determiner) {
            self.note_thing();
        }
        if token.is_abbreviation && meanings.is_empty() && !words(&token.word.plain).is_empty() {
            self.add(SignKind::Term(token.word.plain.to_string()));
        }
        n_words
    }

    /// Reads the punctuation between two words.
    fn read_punctuation(&mut self, stop: Break) {
        let is_between_verbs = stop == Break::Comma && self.before == PrecedingWord::Verb;
        if stop != Break::None {
            if !is_between_verbs {
                self.scope = NegationScope::Outside;
            }
            self.before = PrecedingWord::Nothing;
        }
    }

    /// Reads a word that changes the meaning of other words, such as a negation. Returns whether it
    /// was one.
    fn read_structure_word(&mut self, meanings: &[Meaning]) -> bool {
        let mut is_structure = false;
        for meaning in meanings {
            match meaning {
                Meaning::Negation => {
                    self.scope = NegationScope::Begun;
                    self.is_of_deed = false;
                    // A verb can follow a negation, as it can follow "to".
                    self.before = PrecedingWord::To;
                }
                Meaning::Clause => {
                    self.scope = NegationScope::Outside;
                    self.before = PrecedingWord::Nothing;
                }
                Meaning::Determiner => self.before = PrecedingWord::Determiner,
                Meaning::Relative => self.before = PrecedingWord::Relative,
                Meaning::Aside => self.before = PrecedingWord::Other,
                _ => continue,
            }
            is_structure = true;
        }
        is_structure
    }

    fn find(&self, at: usize) -> Option<PhraseMatch<'a>> {
        let rest = &self.tokens[at..];
        let n = (rest.iter().skip(1)).take_while(|token| token.before == Break::None);
        let n = 1 + n.take(Lexicon::MAX_PHRASE - 1).count();
        self.lexicon.find(&self.words[at..at + n])
    }

    fn note_thing(&mut self) {
        if self.scope == NegationScope::Begun {
            self.scope = NegationScope::Named;
        }
    }

    fn add(&mut self, of: SignKind) {
        let is_negated = self.scope != NegationScope::Outside;
        if is_negated && self.is_of_deed && !matches!(of, SignKind::Action(..)) {
            return;
        }
        self.signs.push(Sign { of, is_negated });
    }
}

/// Returns whether an action is a verb after the preceding word. A verb does not follow another
/// verb: "run tests", "get order status". After a determiner comes a thing, unless the form ends
/// with "ing": "instead of deleting".
fn is_verb_after(was: PrecedingWord, word: &Word) -> bool {
    match was {
        PrecedingWord::Verb => false,
        PrecedingWord::Determiner => word.plain.ends_with("ing"),
        PrecedingWord::Nothing
        | PrecedingWord::Relative
        | PrecedingWord::To
        | PrecedingWord::Other => true,
    }
}

/// Returns the certainty that a word of an action is a verb after the preceding word.
fn form(
    meaning: &Meaning,
    found: Option<PhraseMatch<'_>>,
    was: PrecedingWord,
    word: &Word,
) -> VerbCertainty {
    if matches!(meaning, Meaning::PastAction(_)) {
        return VerbCertainty::Weak;
    }
    let is_written = found.is_some_and(|it| it.n_words > 1 || it.written == &*word.plain);
    // Words with "ss", like "access", are no inflected forms.
    let may_be_thing = word.plain.ends_with('s') && !word.plain.ends_with("ss");
    let is_verb_with_s = matches!(was, PrecedingWord::Nothing | PrecedingWord::Relative);
    if is_written || !(word.plain.ends_with("ed") || (may_be_thing && !is_verb_with_s)) {
        VerbCertainty::Strong
    } else {
        VerbCertainty::Weak
    }
}
