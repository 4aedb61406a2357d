//! The candidates for an intent, before they are ranked.

mod content;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use content::{ToolMeanings, ToolTextReader};

use super::analysis::{IntentAnalysis, NegatedParts};
use super::lexicon::{Lexicon, words_of};
use crate::retrieval::IndexedTool;

/// The default number of candidates.
pub const DEFAULT_CANDIDATES: usize = 20;

/// The signals that named a tool as a candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateSignals {
    /// The actions of the text that the tool does.
    pub actions: Vec<String>,
    /// The domains of the text that the tool is about.
    pub domains: Vec<String>,
    /// The technical terms of the text that the tool has.
    pub terms: Vec<String>,
    /// The rank among the neighbours, from 0; `None` if it is not a neighbour.
    pub neighbour: Option<usize>,
    /// Whether the text negates the actions, the domains or a term of the tool.
    pub is_negated: bool,
}

impl CandidateSignals {
    /// Returns the number of actions, domains and terms that named the tool.
    #[must_use]
    pub fn n_named(&self) -> usize {
        self.actions.len() + self.domains.len() + self.terms.len()
    }
}

/// A tool that may be a match for a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// The position of the tool in the index.
    pub position: usize,
    /// The signals that named the tool.
    pub signals: CandidateSignals,
}

/// An index of the tools of a catalog by their actions, domains, technical terms and words.
#[derive(Clone, Debug, Default)]
pub struct CandidateIndex {
    n_tools: usize,
    actions: Postings,
    domains: Postings,
    /// By the names of terms in the lexicon.
    terms: Postings,
    /// By the stems of all words.
    words: Postings,
    /// For each tool, the meanings of its server and its name.
    said: Vec<OwnMeanings>,
}

/// The positions of the tools for each key, ascending.
type Postings = HashMap<Arc<str>, Vec<u32>>;

#[derive(Clone, Debug, Default)]
struct OwnMeanings {
    actions: Vec<Arc<str>>,
    domains: Vec<Arc<str>>,
    terms: Vec<Arc<str>>,
}

impl CandidateIndex {
    /// Builds the index. Actions and domains come from the names and first sentences of tools and
    /// from the names of their servers; technical terms also come from the names of parameters.
    #[must_use]
    pub fn new(tools: &[IndexedTool], lexicon: &Lexicon) -> Self {
        let mut contents = ToolTextReader::new(lexicon);
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
            let ToolMeanings {
                own_actions: actions,
                own_domains: domains,
                own_terms: terms,
                ..
            } = told;
            index.said.push(OwnMeanings {
                actions,
                domains,
                terms,
            });
        }
        index
    }

    /// Returns the candidates for a text, at most `limit`, ordered by the number of signals.
    ///
    /// `neighbours` are positions of tools, the nearest to the text first; invalid and repeated
    /// positions do not count. Each action, domain and term of the text is a signal for its tools,
    /// and so is a rank among the first `limit` neighbours. Ties are ordered by neighbour rank,
    /// then by position in the index. The nearest neighbours, [`Self::n_guaranteed`] of them, are
    /// candidates independent of the signals of other tools.
    ///
    /// A tool is negated if all actions of its name are negated, or all domains of its name and
    /// server, or one of their terms. Negated tools come last and are candidates only if places are
    /// left. For a long text, a negated tool among the nearest neighbours stays a candidate.
    #[must_use]
    pub fn candidates(
        &self,
        analysis: &IntentAnalysis,
        neighbours: &[usize],
        limit: usize,
    ) -> Vec<Candidate> {
        let named = self.tools_by_key(analysis);
        let ranks = self.ranks(neighbours);
        let refused = self.negated_tools(&analysis.negated);
        let mut counts = vec![0_usize; self.n_tools];
        for tools in named.iter().flat_map(|kind| kind.iter()) {
            for position in &tools.1 {
                counts[*position as usize] += 1;
            }
        }
        let mut order: Vec<usize> = (0..self.n_tools)
            .filter(|at| counts[*at] > 0 || ranks[*at].is_some())
            .collect();
        let kept = Self::n_guaranteed(limit);
        let by_count = |at: &usize| {
            let rank = ranks[*at].unwrap_or(usize::MAX);
            let count = counts[*at] + usize::from(rank < limit);
            (refused[*at], Reverse(count), rank, *at)
        };
        // The nearest neighbours come first here, so that truncation keeps them. The final order is
        // the one after it.
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
            CandidateSignals {
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

    /// Returns the number of nearest neighbours that are always among `limit` candidates: nine of
    /// ten. A smaller share loses tools for texts that name many things at once, since counts say
    /// little there.
    #[must_use]
    pub fn n_guaranteed(limit: usize) -> usize {
        limit - limit / 10
    }

    /// Returns the tools for each action, each domain and each term of a text.
    fn tools_by_key<'a>(&self, analysis: &'a IntentAnalysis) -> [Vec<(&'a str, Vec<u32>)>; 3] {
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
        // The rarest word first, so that the fewest positions are checked.
        all.sort_by_key(|tools| tools.len());
        let Some((rarest, others)) = all.split_first() else {
            return Vec::new();
        };
        let is_in_all = |at: &&u32| others.iter().all(|tools| tools.binary_search(at).is_ok());
        rarest.iter().filter(is_in_all).copied().collect()
    }

    /// Returns the rank among the neighbours for each tool.
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

    /// Returns for each tool whether it is negated.
    fn negated_tools(&self, negated: &NegatedParts) -> Vec<bool> {
        let is_in = |it: &str, negated: &[String]| negated.iter().any(|name| name == it);
        let all = |said: &[Arc<str>], negated: &[String]| {
            !said.is_empty() && said.iter().all(|it| is_in(it, negated))
        };
        let is_refused = |said: &OwnMeanings| {
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
