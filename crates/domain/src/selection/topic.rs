//! Matching of tools to a stated task by the objects in their names, for use before anything is
//! learned.
//!
//! Tools are grouped by *entity*: the object in a name that occurs in most tool names
//! (`list_task_comments` belongs to tasks). A text names entities; otherwise other objects in
//! names; otherwise synonyms of these; otherwise a domain of tools. If the text asks only to read,
//! only reading tools match. If it asks to write, or for an assessment, all tools of the entity
//! match. If it asks how something works, help tools match, too.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::access::{Access, ReadOnlyHint, intended_access, is_core_verb, is_verb, is_write};
use super::question::{asks_assessment, asks_how};
use crate::num::ratio;
use crate::recommendation::{IntentAnalysis, Lexicon};
use crate::retrieval::{Synonyms, words};

/// Minimum number of names with a word, before it can be a prefix that a server puts into each
/// name.
const MIN_QUALIFIED: usize = 3;
/// A match of more than this share of the tools is too unspecific to use.
const MAX_MATCH_SHARE: f64 = 0.9;
/// Words in names of help tools, before stemming.
const HELP_WORDS: &str = "about doc docs documentation faq guide handbook help howto instructions \
    knowledgebase manual onboarding overview readme support tutorial";

/// A tool, as far as matching by words needs it.
#[derive(Clone, Debug)]
pub struct TopicTool<'a> {
    /// Identifier of its server.
    pub server: &'a str,
    /// Name of the tool, as on its server.
    pub name: &'a str,
    /// The first sentence of its description.
    pub summary: String,
    /// Statement about changes.
    pub read_only: ReadOnlyHint,
}

/// The tools that a text asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Positions of the tools. Names with the most words of the text come first.
    pub tools: Vec<usize>,
    /// Number of words of the text in the name of each tool.
    pub n_said: Vec<usize>,
    /// The access that the text asks for; `None` if unknown.
    pub access: Option<Access>,
}

/// The vocabulary for matching.
#[derive(Clone, Debug, Default)]
pub struct TopicWords {
    /// Words of actions and domains.
    pub lexicon: Lexicon,
    /// Words with the same meaning.
    pub synonyms: Synonyms,
}

impl TopicWords {
    /// Returns the built-in vocabulary of riglm.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            lexicon: Lexicon::built_in(),
            synonyms: Synonyms::built_in(),
        }
    }
}

/// Returns the tools that match a text; `None` without a match, or if it is too unspecific.
#[must_use]
pub fn topic(text: &str, tools: &[TopicTool<'_>], known: &TopicWords) -> Option<Topic> {
    let analysis = IntentAnalysis::of(text, &known.lexicon);
    let access = intended_access(text, &analysis);
    let names = NameObjects::of(tools);
    let said = object_terms(text);
    let is_question_of_how = asks_how(text, &analysis);
    let mut chosen: Vec<usize> = names.matching_tools(&said, &analysis, tools, known);
    if access == Some(Access::Read) && !asks_assessment(text) {
        let reads = |at: &usize| !is_write(tools[*at].name, tools[*at].read_only);
        let reading: Vec<usize> = chosen.iter().copied().filter(reads).collect();
        // If all of them write, the text is still about one of them.
        if !reading.is_empty() {
            chosen = reading;
        }
    }
    if is_question_of_how {
        chosen.extend(help_tools(tools));
    }
    chosen.sort_by_key(|at| (Reverse(names.n_said(*at, &said)), *at));
    let mut seen = HashSet::new();
    chosen.retain(|at| seen.insert(*at));
    let is_little = !chosen.is_empty() && ratio(chosen.len(), tools.len()) <= MAX_MATCH_SHARE;
    is_little.then(|| Topic {
        n_said: (chosen.iter()).map(|at| names.n_said(*at, &said)).collect(),
        tools: chosen,
        access,
    })
}

/// Returns the terms of a text that may name objects.
fn object_terms(text: &str) -> Vec<String> {
    let mut terms = words(text);
    // A verb at the start is the action, even if it could also be an object.
    if terms.first().is_some_and(is_verb) {
        terms.remove(0);
    }
    let mut seen = HashSet::new();
    terms.retain(|term| is_word(term) && !is_core_verb(term) && seen.insert(term.clone()));
    terms
}

/// The objects in the names of tools.
#[derive(Debug)]
struct NameObjects {
    /// By position of the tool, in the order of its name.
    things: Vec<Vec<String>>,
    /// The entity of each tool; `None` if its name has no object.
    entities: Vec<Option<String>>,
}

impl NameObjects {
    fn of(tools: &[TopicTool<'_>]) -> Self {
        let things: Vec<Vec<String>> = tools.iter().map(|tool| name_objects(tool.name)).collect();
        let qualifiers = qualifiers(tools, &things);
        let is_qualifier = |server: &str, thing: &str| {
            let of_server = qualifiers.get(server);
            of_server.is_some_and(|qualifiers| qualifiers.contains(thing))
        };
        let mut n_with: HashMap<&str, usize> = HashMap::new();
        for (thing, _) in distinct_objects(&things) {
            *n_with.entry(thing).or_default() += 1;
        }
        let entities = tools.iter().zip(&things).map(|(tool, things)| {
            let own = things.iter().filter(|it| !is_qualifier(tool.server, it));
            // `max_by_key` returns the last maximum; with `rev` it is the first object in the name.
            let entity = own.rev().max_by_key(|thing| n_with.get(thing.as_str()));
            entity.cloned()
        });
        Self {
            entities: entities.collect(),
            things,
        }
    }

    /// Returns the positions of the tools that match the terms, ascending. It stops at the first
    /// step with a match.
    fn matching_tools(
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
        let mut found = self.tools_of_entities(said, tools);
        if found.is_empty() {
            found = self.tools_with_objects(said);
        }
        if found.is_empty() {
            found = self.tools_of_entities(&alike(), tools);
        }
        if found.is_empty() {
            found = self.tools_with_objects(&alike());
        }
        if found.is_empty() {
            found = tools_of_domains(&analysis.domains, tools, &known.lexicon);
        }
        found
    }

    /// Returns the tools of the entities among these terms and of their parts, and the tools whose
    /// names end with one of these terms.
    fn tools_of_entities(&self, said: &[String], tools: &[TopicTool<'_>]) -> Vec<usize> {
        let all: HashSet<&str> = self.entities.iter().flatten().map(String::as_str).collect();
        let named: HashSet<&str> = (said.iter().map(String::as_str))
            .filter(|term| all.contains(term))
            .collect();
        let wholes = self.parent_entities(&all, tools);
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

    /// Returns for each entity the entities that it is a part of: entities with more tools that
    /// each of its tools mentions in its first sentence ("Lists the subtasks of a task").
    fn parent_entities<'a>(
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

    /// Returns the tools with one of these terms as an object in their names.
    fn tools_with_objects(&self, said: &[String]) -> Vec<usize> {
        let said: HashSet<&String> = said.iter().collect();
        let has_one = |at: &usize| self.things[*at].iter().any(|thing| said.contains(thing));
        (0..self.things.len()).filter(has_one).collect()
    }

    /// Returns the number of terms that occur in the name of a tool.
    fn n_said(&self, at: usize, said: &[String]) -> usize {
        let in_name = said.iter().filter(|term| self.things[at].contains(term));
        in_name.count()
    }
}

/// Returns the objects in a name: its words without the verb at the start and without generic
/// verbs.
fn name_objects(name: &str) -> Vec<String> {
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

/// Returns the qualifiers of each server: words that the server puts into its names in addition to
/// the object. Each name with a qualifier has another object, too.
fn qualifiers<'a>(
    tools: &[TopicTool<'a>],
    things: &'a [Vec<String>],
) -> HashMap<&'a str, HashSet<&'a str>> {
    let mut counts: HashMap<(&str, &str), (usize, usize)> = HashMap::new();
    for (thing, at) in distinct_objects(things) {
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

/// Returns the distinct objects of each tool, with its position.
fn distinct_objects(things: &[Vec<String>]) -> impl Iterator<Item = (&str, usize)> {
    let all = things.iter().enumerate();
    all.flat_map(|(at, things)| {
        let set: HashSet<&str> = things.iter().map(String::as_str).collect();
        set.into_iter().map(move |thing| (thing, at))
    })
}

/// Returns the tools whose names belong to one of these domains.
fn tools_of_domains(domains: &[String], tools: &[TopicTool<'_>], lexicon: &Lexicon) -> Vec<usize> {
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

/// Returns the help tools that change nothing.
fn help_tools<'a>(tools: &'a [TopicTool<'_>]) -> impl Iterator<Item = usize> + 'a {
    let helping: HashSet<String> = words(HELP_WORDS).into_iter().collect();
    let all = tools.iter().enumerate();
    let telling = all.filter(move |(_, tool)| {
        let tells = words(tool.name).iter().any(|word| helping.contains(word));
        tells && !is_write(tool.name, tool.read_only)
    });
    telling.map(|(at, _)| at)
}

/// Returns whether a term has more than one character; shorter terms name nothing.
fn is_word(term: &str) -> bool {
    term.chars().nth(1).is_some()
}

#[cfg(test)]
mod tests;
