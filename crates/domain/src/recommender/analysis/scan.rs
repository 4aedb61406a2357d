//! What the words of a text stand for: verbs or things, wanted or not.

use super::tokens::{Break, Token, Use};
use crate::recommender::lexicon::{ActionAccess, Found, Lexicon, Meaning, Word};
use crate::retrieval::words;

/// How surely a word is a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// A past form, or one with `s`, which may be a thing: "files sent by Ann", "list updates".
    Weak,
    /// A form that only verbs have at this place.
    Strong,
}

/// What was found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) of: SignOf,
    pub(super) is_negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignOf {
    Action(usize, Form),
    Domain(usize),
    Term(String),
}

/// Where a negation holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    /// Nowhere.
    #[default]
    Outside,
    /// From here on; no thing was named yet.
    Begun,
    /// A thing was named.
    Named,
}

/// What stands before the word that is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    /// The text begins, or a clause.
    #[default]
    Nothing,
    /// An action.
    Verb,
    Determiner,
    Relative,
    /// "to", or a negation.
    To,
    Other,
}

/// Walks over the words of a text.
///
/// A negation holds until its clause ends: at punctuation, at a word that begins another clause, or
/// at an action behind "and", "then" or "to" once a thing was named. A comma does not end it
/// between two verbs: "don't move, rename or delete anything". What a negated change would be done to
/// is neither wanted nor not: "don't delete the table" says nothing against tables.
pub(super) fn signs(tokens: &[Token], lexicon: &Lexicon) -> Vec<Sign> {
    let mut walk = Walk {
        lexicon,
        words: tokens.iter().map(|token| token.word.clone()).collect(),
        tokens,
        scope: Scope::Outside,
        is_of_deed: false,
        before: Before::Nothing,
        signs: Vec::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        at += walk.step(at);
    }
    walk.signs
}

struct Walk<'a> {
    lexicon: &'a Lexicon,
    tokens: &'a [Token],
    words: Vec<Word>,
    scope: Scope,
    /// Whether a change is negated in this scope: the things behind are what it is not done to.
    is_of_deed: bool,
    before: Before,
    signs: Vec<Sign>,
}

impl<'a> Walk<'a> {
    /// Reads one word or phrase and returns how many words it had.
    fn step(&mut self, at: usize) -> usize {
        let token = &self.tokens[at];
        self.pass(token.before);
        if let Some(name) = &token.name {
            self.add(SignOf::Term(name.clone()));
            self.thing();
        }
        let found = self.find(at);
        let n_words = found.map_or(1, |found| found.n_words);
        let meanings = found.map_or(&[][..], |found| found.meanings);
        if token.usage == Use::Spoken && self.structure(meanings) {
            return n_words;
        }
        let was = self.before;
        self.before = if *token.word.plain == *"to" {
            Before::To
        } else {
            Before::Other
        };
        let is_verb =
            token.usage == Use::Spoken && (n_words > 1 || is_verb_there(was, &token.word));
        let mut is_action = false;
        for meaning in meanings {
            let of = match meaning {
                Meaning::Action(action) | Meaning::PastAction(action) if is_verb => {
                    is_action = true;
                    let form = form(meaning, found, was, &token.word);
                    if form == Form::Strong {
                        self.before = Before::Verb;
                    }
                    if self.scope == Scope::Named && matches!(was, Before::To | Before::Relative) {
                        self.scope = Scope::Outside;
                    }
                    self.is_of_deed |= self.scope != Scope::Outside
                        && self.lexicon.action(*action).1 == ActionAccess::Write;
                    SignOf::Action(*action, form)
                }
                Meaning::Domain(domain) => SignOf::Domain(*domain),
                Meaning::Term(name) => SignOf::Term(name.clone()),
                _ => continue,
            };
            self.add(of);
        }
        let is_thing = meanings
            .iter()
            .any(|it| matches!(it, Meaning::Domain(_) | Meaning::Term(_)));
        if !is_action && (is_thing || was == Before::Determiner) {
            self.thing();
        }
        if token.is_abbreviation && meanings.is_empty() && !words(&token.word.plain).is_empty() {
            self.add(SignOf::Term(token.word.plain.to_string()));
        }
        n_words
    }

    /// Takes in what stands between two words.
    fn pass(&mut self, stop: Break) {
        let is_between_verbs = stop == Break::Comma && self.before == Before::Verb;
        if stop != Break::None {
            if !is_between_verbs {
                self.scope = Scope::Outside;
            }
            self.before = Before::Nothing;
        }
    }

    /// Takes in a word that tells how others are meant; returns whether it was one.
    fn structure(&mut self, meanings: &[Meaning]) -> bool {
        let mut is_structure = false;
        for meaning in meanings {
            match meaning {
                Meaning::Negation => {
                    self.scope = Scope::Begun;
                    self.is_of_deed = false;
                    self.before = Before::To;
                }
                Meaning::Clause => {
                    self.scope = Scope::Outside;
                    self.before = Before::Nothing;
                }
                Meaning::Determiner => self.before = Before::Determiner,
                Meaning::Relative => self.before = Before::Relative,
                Meaning::Aside => self.before = Before::Other,
                _ => continue,
            }
            is_structure = true;
        }
        is_structure
    }

    fn find(&self, at: usize) -> Option<Found<'a>> {
        let rest = &self.tokens[at..];
        let n = (rest.iter().skip(1)).take_while(|token| token.before == Break::None);
        let n = 1 + n.take(Lexicon::MAX_PHRASE - 1).count();
        self.lexicon.find(&self.words[at..at + n])
    }

    fn thing(&mut self) {
        if self.scope == Scope::Begun {
            self.scope = Scope::Named;
        }
    }

    fn add(&mut self, of: SignOf) {
        let is_negated = self.scope != Scope::Outside;
        if is_negated && self.is_of_deed && !matches!(of, SignOf::Action(..)) {
            return;
        }
        self.signs.push(Sign { of, is_negated });
    }
}

/// Returns whether an action is a verb behind what stands before it. Two verbs do not follow each
/// other: "run tests", "get order status"; behind a determiner stands a thing, unless the form is
/// that of doing: "instead of deleting".
fn is_verb_there(was: Before, word: &Word) -> bool {
    match was {
        Before::Verb => false,
        Before::Determiner => word.plain.ends_with("ing"),
        Before::Nothing | Before::Relative | Before::To | Before::Other => true,
    }
}

/// Returns how surely a word of an action is a verb behind what stands before it.
fn form(meaning: &Meaning, found: Option<Found<'_>>, was: Before, word: &Word) -> Form {
    if matches!(meaning, Meaning::PastAction(_)) {
        return Form::Weak;
    }
    let is_written = found.is_some_and(|it| it.n_words > 1 || it.written == &*word.plain);
    let may_be_thing = word.plain.ends_with('s') && !word.plain.ends_with("ss");
    let is_verb_with_s = matches!(was, Before::Nothing | Before::Relative);
    if is_written || !(word.plain.ends_with("ed") || (may_be_thing && !is_verb_with_s)) {
        Form::Strong
    } else {
        Form::Weak
    }
}
