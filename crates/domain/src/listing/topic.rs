//! Which tools are about what somebody says that they do, when nothing was learned: by the things
//! that names of tools name.
//!
//! Tools are sorted by their *entity*: of the things in a name the one that most names have
//! (`list_task_comments` is of tasks). A text names entities, or else other things in names, or
//! means one of them by another word, or a domain that tools are of. Of these tools those that read
//! are wanted by who only reads; who changes something, or judges something as a whole, wants all.
//! Who asks how something works wants the tools that tell it, whatever else.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::access::{Access, ReadOnly, intended_access, is_core_verb, is_verb, is_write};
use super::question::{asks_how, is_broad};
use crate::recommender::{IntentAnalysis, Lexicon};
use crate::retrieval::{Synonyms, words};

/// A word that stands in as many names as this may be one that a server puts into each.
const MIN_QUALIFIED: usize = 3;
/// A choice of more than this share of the tools tells nothing.
const MOST: f64 = 0.9;
/// Words in names of tools that tell how to use what there is, before stemming.
const HELPING: &str = "about doc docs documentation faq guide handbook help howto instructions \
    knowledgebase manual onboarding overview readme support tutorial";

/// A tool, as far as a choice by words needs it.
#[derive(Clone, Debug)]
pub struct TopicTool<'a> {
    /// What tells its server from others.
    pub server: &'a str,
    /// Its name, as its server has it.
    pub name: &'a str,
    /// The first sentence of its description.
    pub summary: String,
    /// What it says of changes.
    pub read_only: ReadOnly,
}

/// The tools that a text asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Their positions; those whose names have most of what the text names come first.
    pub tools: Vec<usize>,
    /// How much of what the text names the name of each of them has.
    pub n_said: Vec<usize>,
    /// What the text asks for; `None` where it does not say.
    pub access: Option<Access>,
}

/// The words by which texts are read.
#[derive(Clone, Debug, Default)]
pub struct TopicWords {
    /// What actions and domains are.
    pub lexicon: Lexicon,
    /// What means the same.
    pub synonyms: Synonyms,
}

impl TopicWords {
    /// Returns the words that come with riglm.
    #[must_use]
    pub fn shipped() -> Self {
        Self {
            lexicon: Lexicon::shipped(),
            synonyms: Synonyms::shipped(),
        }
    }
}

/// Returns the tools that are about what a text says is done; `None` where that cannot be told, or
/// is so much that nothing is gained.
#[must_use]
pub fn topic(text: &str, tools: &[TopicTool<'_>], known: &TopicWords) -> Option<Topic> {
    let analysis = IntentAnalysis::of(text, &known.lexicon);
    let access = intended_access(text, &analysis);
    let names = Names::of(tools);
    let said = said(text);
    let is_question_of_how = asks_how(text, &analysis);
    let mut chosen: Vec<usize> = names.about(&said, &analysis, tools, known);
    if access == Some(Access::Read) && !is_broad(text) {
        let reads = |at: &usize| !is_write(tools[*at].name, tools[*at].read_only);
        let reading: Vec<usize> = chosen.iter().copied().filter(reads).collect();
        // Where all of them change something, it is one of them all the same.
        if !reading.is_empty() {
            chosen = reading;
        }
    }
    if is_question_of_how {
        chosen.extend(helping(tools));
    }
    chosen.sort_by_key(|at| (Reverse(names.n_said(*at, &said)), *at));
    let mut seen = HashSet::new();
    chosen.retain(|at| seen.insert(*at));
    let is_little = !chosen.is_empty() && ratio(chosen.len(), tools.len()) <= MOST;
    is_little.then(|| Topic {
        n_said: (chosen.iter()).map(|at| names.n_said(*at, &said)).collect(),
        tools: chosen,
        access,
    })
}

/// Returns the terms of a text that may name things.
fn said(text: &str) -> Vec<String> {
    let mut terms = words(text);
    // What a text begins with is what is to be done, even where it could be a thing.
    if terms.first().is_some_and(is_verb) {
        terms.remove(0);
    }
    let mut seen = HashSet::new();
    terms.retain(|term| is_word(term) && !is_core_verb(term) && seen.insert(term.clone()));
    terms
}

/// The things in the names of tools.
#[derive(Debug)]
struct Names {
    /// By the position of the tool, in the order of its name.
    things: Vec<Vec<String>>,
    /// The entity of each tool; `None` of one whose name has no thing.
    entities: Vec<Option<String>>,
}

impl Names {
    fn of(tools: &[TopicTool<'_>]) -> Self {
        let things: Vec<Vec<String>> = tools.iter().map(|tool| things(tool.name)).collect();
        let qualifiers = qualifiers(tools, &things);
        let is_qualifier = |server: &str, thing: &str| {
            let of_server = qualifiers.get(server);
            of_server.is_some_and(|qualifiers| qualifiers.contains(thing))
        };
        let mut n_with: HashMap<&str, usize> = HashMap::new();
        for (thing, _) in distinct(&things) {
            *n_with.entry(thing).or_default() += 1;
        }
        let entities = tools.iter().zip(&things).map(|(tool, things)| {
            let own = things.iter().filter(|it| !is_qualifier(tool.server, it));
            // Of several the first: maximum by key takes the last one.
            let entity = own.rev().max_by_key(|thing| n_with.get(thing.as_str()));
            entity.cloned()
        });
        Self {
            entities: entities.collect(),
            things,
        }
    }

    /// Returns the tools that are about the things that are said, ascending.
    fn about(
        &self,
        said: &[String],
        analysis: &IntentAnalysis,
        tools: &[TopicTool<'_>],
        known: &TopicWords,
    ) -> Vec<usize> {
        let alike = || -> Vec<String> {
            let alike = said.iter().flat_map(|term| known.synonyms.of(term));
            alike.cloned().collect()
        };
        let mut found = self.of_entities(said, tools);
        if found.is_empty() {
            found = self.with_things(said);
        }
        if found.is_empty() {
            found = self.of_entities(&alike(), tools);
        }
        if found.is_empty() {
            found = self.with_things(&alike());
        }
        if found.is_empty() {
            found = of_domains(&analysis.domains, tools, &known.lexicon);
        }
        found
    }

    /// Returns the tools of the entities among these words, of what is a part of them, and those
    /// whose name ends with one of them.
    fn of_entities(&self, said: &[String], tools: &[TopicTool<'_>]) -> Vec<usize> {
        let all: HashSet<&str> = self.entities.iter().flatten().map(String::as_str).collect();
        let named: HashSet<&str> = (said.iter().map(String::as_str))
            .filter(|term| all.contains(term))
            .collect();
        let wholes = self.wholes(&all, tools);
        let is_part = |entity: &str| {
            let wholes = wholes.get(entity).into_iter().flatten();
            wholes.copied().any(|whole| named.contains(whole))
        };
        let is_about = |at: &usize| {
            let entity = self.entities[*at].as_deref();
            let is_named = |thing: &str| named.contains(thing);
            entity.is_some_and(|entity| is_named(entity) || is_part(entity))
                || self.things[*at].last().is_some_and(|last| is_named(last))
        };
        (0..tools.len()).filter(is_about).collect()
    }

    /// Returns the entities that others are parts of: those with more tools that every one of their
    /// tools names in its first sentence ("Lists the subtasks of a task").
    fn wholes<'a>(
        &'a self,
        entities: &HashSet<&'a str>,
        tools: &[TopicTool<'_>],
    ) -> HashMap<&'a str, Vec<&'a str>> {
        let mut of: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, entity) in self.entities.iter().enumerate() {
            if let Some(entity) = entity {
                of.entry(entity).or_default().push(at);
            }
        }
        let summaries: Vec<HashSet<String>> = (tools.iter())
            .map(|tool| words(&tool.summary).into_iter().collect())
            .collect();
        let n_of = |entity: &str| of.get(entity).map_or(0, Vec::len);
        let wholes = of.iter().map(|(part, tools)| {
            let named_by_all =
                |whole: &&&str| tools.iter().all(|at| summaries[*at].contains(**whole));
            let larger = entities.iter().filter(|whole| n_of(whole) > tools.len());
            (*part, larger.filter(named_by_all).copied().collect())
        });
        wholes.collect()
    }

    /// Returns the tools that have one of these words in their names, as a thing.
    fn with_things(&self, said: &[String]) -> Vec<usize> {
        let said: HashSet<&String> = said.iter().collect();
        let has_one = |at: &usize| self.things[*at].iter().any(|thing| said.contains(thing));
        (0..self.things.len()).filter(has_one).collect()
    }

    /// Returns how many of the things that are said stand in the name of a tool.
    fn n_said(&self, at: usize, said: &[String]) -> usize {
        let in_name = said.iter().filter(|term| self.things[at].contains(term));
        in_name.count()
    }
}

/// Returns the things in a name: its words without the verb that it begins with, and without verbs
/// that only say what is done with any thing.
fn things(name: &str) -> Vec<String> {
    let all = words(name);
    let is_thing = |term: &&String| is_word(term) && !is_core_verb(term);
    let behind = match all.split_first() {
        Some((first, rest)) if is_verb(first) => rest,
        _ => &all,
    };
    let behind: Vec<String> = behind.iter().filter(is_thing).cloned().collect();
    if behind.is_empty() {
        return all.iter().filter(is_thing).cloned().collect();
    }
    behind
}

/// Returns the words that a server puts into names beside what they name: each name with one of them
/// has another thing.
fn qualifiers<'a>(
    tools: &[TopicTool<'a>],
    things: &'a [Vec<String>],
) -> HashMap<&'a str, HashSet<&'a str>> {
    let mut counts: HashMap<(&str, &str), (usize, usize)> = HashMap::new();
    for (thing, at) in distinct(things) {
        let count = counts.entry((tools[at].server, thing)).or_default();
        count.0 += 1;
        let others = things[at].iter().filter(|other| *other != thing);
        count.1 += usize::from(others.count() > 0);
    }
    let mut n_tools: HashMap<&str, usize> = HashMap::new();
    for tool in tools {
        *n_tools.entry(tool.server).or_default() += 1;
    }
    let mut qualifiers: HashMap<&str, HashSet<&str>> = HashMap::new();
    for ((server, thing), (n, n_beside)) in counts {
        let is_of_most = 2 * n > n_tools.get(server).copied().unwrap_or(0);
        if n >= MIN_QUALIFIED && n == n_beside && is_of_most {
            qualifiers.entry(server).or_default().insert(thing);
        }
    }
    qualifiers
}

/// Returns the things of each tool, without repetitions, with its position.
fn distinct(things: &[Vec<String>]) -> impl Iterator<Item = (&str, usize)> {
    let all = things.iter().enumerate();
    all.flat_map(|(at, things)| {
        let set: HashSet<&str> = things.iter().map(String::as_str).collect();
        set.into_iter().map(move |thing| (thing, at))
    })
}

/// Returns the tools whose names are of one of these domains.
fn of_domains(domains: &[String], tools: &[TopicTool<'_>], lexicon: &Lexicon) -> Vec<usize> {
    if domains.is_empty() {
        return Vec::new();
    }
    let is_of_one = |at: &usize| {
        let spoken = tools[*at].name.replace(['_', '-', '.', '/'], " ");
        let of_name = IntentAnalysis::of(&spoken, lexicon).domains;
        of_name.iter().any(|domain| domains.contains(domain))
    };
    (0..tools.len()).filter(is_of_one).collect()
}

/// Returns the tools that tell how to use what there is, and change nothing.
fn helping<'a>(tools: &'a [TopicTool<'_>]) -> impl Iterator<Item = usize> + 'a {
    let helping: HashSet<String> = words(HELPING).into_iter().collect();
    let all = tools.iter().enumerate();
    let telling = all.filter(move |(_, tool)| {
        let tells = words(tool.name).iter().any(|word| helping.contains(word));
        tells && !is_write(tool.name, tool.read_only)
    });
    telling.map(|(at, _)| at)
}

/// Returns whether a term has more than one character: others name nothing.
fn is_word(term: &str) -> bool {
    term.chars().nth(1).is_some()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of tools are far below 2^52"
)]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
