//! The tools that a text may mean, before they are ranked.

mod content;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use content::{Contents, Told};

use super::analysis::{IntentAnalysis, Negated};
use super::lexicon::{Lexicon, words_of};
use crate::retrieval::IndexedTool;

/// How many candidates there are, unless told otherwise.
pub const DEFAULT_CANDIDATES: usize = 20;

/// What named a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The actions of the text that it does.
    pub actions: Vec<String>,
    /// The domains of the text that it is about.
    pub domains: Vec<String>,
    /// The technical terms of the text that it has.
    pub terms: Vec<String>,
    /// Its place among the neighbours, from 0; `None` when it is none of them.
    pub neighbour: Option<usize>,
    /// Whether the text says that what it does, or what it is about, is not wanted.
    pub is_negated: bool,
}

impl Signals {
    /// Returns how many actions, domains and terms named the tool.
    #[must_use]
    pub fn n_named(&self) -> usize {
        self.actions.len() + self.domains.len() + self.terms.len()
    }
}

/// A tool that a text may mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// The position of the tool in the index.
    pub position: usize,
    /// What named it.
    pub signals: Signals,
}

/// The tools of a catalog by what they do, what they are about, and their words.
#[derive(Clone, Debug, Default)]
pub struct CandidateIndex {
    n_tools: usize,
    actions: Postings,
    domains: Postings,
    /// By the names of terms in the lexicon.
    terms: Postings,
    /// By the stems of all words.
    words: Postings,
    /// For each tool what its server and its name say of it.
    said: Vec<Said>,
}

/// Which tools a key names, in their order.
type Postings = HashMap<Arc<str>, Vec<u32>>;

#[derive(Clone, Debug, Default)]
struct Said {
    actions: Vec<Arc<str>>,
    domains: Vec<Arc<str>>,
    terms: Vec<Arc<str>>,
}

impl CandidateIndex {
    /// Reads tools: what the names and the first sentences of tools say they do and are about, what
    /// their servers are called, and which parameters they have.
    #[must_use]
    pub fn new(tools: &[IndexedTool], lexicon: &Lexicon) -> Self {
        let mut contents = Contents::new(lexicon);
        let mut index = Self {
            n_tools: tools.len(),
            ..Self::default()
        };
        for (position, tool) in (0_u32..).zip(tools) {
            let told = contents.of(tool.text());
            add(&mut index.actions, &told.actions, position);
            add(&mut index.domains, &told.domains, position);
            add(&mut index.terms, &told.terms, position);
            add(&mut index.words, &told.words, position);
            let Told {
                own_actions: actions,
                own_domains: domains,
                own_terms: terms,
                ..
            } = told;
            index.said.push(Said {
                actions,
                domains,
                terms,
            });
        }
        index
    }

    /// Returns the tools that a text may mean, at most `limit`, those that most names first.
    ///
    /// `neighbours` are positions of tools, the nearest to the text first; what is no position or
    /// repeats does not count. Each action, domain and term of the text names tools, and so do the
    /// neighbours, as many of them as there may be candidates. Tools come by how many named them,
    /// then in the order of the neighbours, then of the index. The nearest neighbours, as many as
    /// [`Self::kept`] says, are among the candidates whatever else names other tools.
    ///
    /// A tool all of whose actions, or all of whose domains, by its name are negated, or that has a
    /// negated term in its name, comes after all others: it is a candidate where places are left. Of a
    /// long text, one that is among the nearest neighbours is a candidate all the same.
    #[must_use]
    pub fn candidates(
        &self,
        analysis: &IntentAnalysis,
        neighbours: &[usize],
        limit: usize,
    ) -> Vec<Candidate> {
        let named = self.named(analysis);
        let ranks = self.ranks(neighbours);
        let refused = self.refused(&analysis.negated);
        let mut counts = vec![0_usize; self.n_tools];
        for tools in named.iter().flat_map(|kind| kind.iter()) {
            for position in &tools.1 {
                counts[*position as usize] += 1;
            }
        }
        let mut order: Vec<usize> = (0..self.n_tools)
            .filter(|at| counts[*at] > 0 || ranks[*at].is_some())
            .collect();
        let kept = Self::kept(limit);
        let by_count = |at: &usize| {
            let rank = ranks[*at].unwrap_or(usize::MAX);
            let count = counts[*at] + usize::from(rank < limit);
            (refused[*at], Reverse(count), rank, *at)
        };
        order.sort_unstable_by_key(|at| {
            let is_kept = ranks[*at].is_some_and(|rank| rank < kept);
            (!analysis.is_long && refused[*at], !is_kept, by_count(at))
        });
        order.truncate(limit);
        order.sort_unstable_by_key(by_count);
        let signals = |position: usize| {
            let of = |kind: &[(&str, Vec<u32>)]| {
                let has = |tools: &Vec<u32>| {
                    u32::try_from(position).is_ok_and(|it| tools.binary_search(&it).is_ok())
                };
                let having = kind.iter().filter(|(_, tools)| has(tools));
                having.map(|(name, _)| (*name).to_owned()).collect()
            };
            Signals {
                actions: of(&named[0]),
                domains: of(&named[1]),
                terms: of(&named[2]),
                neighbour: ranks[position],
                is_negated: refused[position],
            }
        };
        let candidate = |position| Candidate {
            position,
            signals: signals(position),
        };
        order.into_iter().map(candidate).collect()
    }

    /// Returns how many of the nearest neighbours are always among `limit` candidates: nine of ten.
    /// Fewer lose tools of texts that name many things at once, where counting says little.
    #[must_use]
    pub fn kept(limit: usize) -> usize {
        limit - limit / 10
    }

    /// Returns which tools the actions, the domains and the terms of a text name.
    fn named<'a>(&self, analysis: &'a IntentAnalysis) -> [Vec<(&'a str, Vec<u32>)>; 3] {
        let of = |postings: &Postings, keys: &'a [String]| {
            let named = |key: &'a String| {
                let tools = postings.get(key.as_str()).cloned().unwrap_or_default();
                (key.as_str(), tools)
            };
            keys.iter().map(named).collect()
        };
        let term = |term: &'a String| (term.as_str(), self.with_term(term));
        [
            of(&self.actions, &analysis.actions),
            of(&self.domains, &analysis.domains),
            analysis.terms.iter().map(term).collect(),
        ]
    }

    /// Returns the tools with a term of the lexicon, or with all the words of a name.
    fn with_term(&self, term: &str) -> Vec<u32> {
        if let Some(tools) = self.terms.get(term) {
            return tools.clone();
        }
        let words = words_of(term);
        let all: Option<Vec<&Vec<u32>>> = (words.iter())
            .map(|word| self.words.get(&*word.stem))
            .collect();
        let Some(mut all) = all else {
            return Vec::new();
        };
        all.sort_by_key(|tools| tools.len());
        let Some((rarest, others)) = all.split_first() else {
            return Vec::new();
        };
        let is_in_all = |at: &&u32| others.iter().all(|tools| tools.binary_search(at).is_ok());
        rarest.iter().filter(is_in_all).copied().collect()
    }

    /// Returns for each tool its place among the neighbours.
    fn ranks(&self, neighbours: &[usize]) -> Vec<Option<usize>> {
        let mut ranks = vec![None; self.n_tools];
        let mut n = 0;
        for position in neighbours {
            if let Some(rank @ None) = ranks.get_mut(*position) {
                *rank = Some(n);
                n += 1;
            }
        }
        ranks
    }

    /// Returns for each tool whether it is what is not wanted.
    fn refused(&self, negated: &Negated) -> Vec<bool> {
        let is_in = |it: &str, negated: &[String]| negated.iter().any(|name| name == it);
        let all = |said: &[Arc<str>], negated: &[String]| {
            !said.is_empty() && said.iter().all(|it| is_in(it, negated))
        };
        let is_refused = |said: &Said| {
            all(&said.actions, &negated.actions)
                || all(&said.domains, &negated.domains)
                || said.terms.iter().any(|it| is_in(it, &negated.terms))
        };
        self.said.iter().map(is_refused).collect()
    }
}

fn add(postings: &mut Postings, keys: &[Arc<str>], position: u32) {
    for key in keys {
        match postings.get_mut(key) {
            Some(tools) => tools.push(position),
            None => {
                postings.insert(key.clone(), vec![position]);
            }
        }
    }
}
