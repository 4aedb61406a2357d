//! From what is known of each tool to one score with its parts.

use std::collections::BTreeMap;

use super::{Hit, Past, RankingRules, Term, ToolIndex};
use crate::retrieval::query::Query;
use crate::retrieval::semantic::standardised;
use crate::retrieval::servers::server_scores;
use crate::tool::ToolKey;

/// How many of the best hits say what goes with them.
const N_ANCHORS: usize = 5;
/// The places that the servers of the others do not change.
const N_FIRST: usize = 5;
/// How near to the last of them a bonus may bring a tool.
const SHORT_OF: f64 = 0.999;

/// How many standard deviations the nearest tool is above the mean at most.
const MAX_DEVIATION: f64 = 3.5;

/// The parts of the scores of all tools.
#[derive(Debug)]
pub(super) struct Parts {
    by_term: Vec<(Term, Vec<f64>)>,
    total: Vec<f64>,
}

impl Parts {
    fn new(n_tools: usize) -> Self {
        Self {
            by_term: Vec::new(),
            total: vec![0.0; n_tools],
        }
    }

    fn add(&mut self, term: Term, values: Vec<f64>) {
        for (total, value) in self.total.iter_mut().zip(&values) {
            *total += value;
        }
        self.by_term.push((term, values));
    }

    /// Returns the positions of all tools, best first; ties by position.
    fn order(&self, limit: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.total.len()).collect();
        let by_score =
            |a: &usize, b: &usize| self.total[*b].total_cmp(&self.total[*a]).then(a.cmp(b));
        if limit > 0 && limit < order.len() {
            order.select_nth_unstable_by(limit - 1, by_score);
        }
        order.truncate(limit);
        order.sort_unstable_by(by_score);
        order
    }
}

impl ToolIndex {
    /// Scores all tools by words, vectors, slots and history.
    pub(super) fn parts(
        &self,
        query: &Query,
        rules: &RankingRules,
        (coverage, cosines): (&[f64], &[f64]),
        past: Option<Past<'_>>,
    ) -> Parts {
        let mut parts = Parts::new(self.tools().len());
        let fused = |term: Term, scores: Vec<f64>| match &rules.rank_fusion {
            None => scores,
            Some(fusion) => {
                let weights = &fusion.weights;
                let (weight, floor) = match term {
                    Term::Words => (weights.words, 0.0),
                    Term::Meaning => (weights.meaning, f64::NEG_INFINITY),
                    Term::Memory => (weights.memory, 0.0),
                    Term::Companions => (weights.companions, 0.0),
                    _ => (weights.frequency, 0.0),
                };
                fusion.shares(&scores, floor, weight)
            }
        };
        parts.add(Term::Words, fused(Term::Words, spread(coverage)));
        if !cosines.is_empty() {
            let nearness = scaled(&bounded(standardised(cosines)), rules.meaning);
            parts.add(Term::Meaning, fused(Term::Meaning, nearness));
        }
        if rules.rank_fusion.is_none() && !query.slots.is_empty() && rules.slots != 0.0 {
            let taken = self
                .tools()
                .iter()
                .map(|tool| rules.slots * tool.analysed.taken.share(&query.slots));
            parts.add(Term::Slots, taken.collect());
        }
        let Some(past) = past else {
            return parts;
        };
        let weights = &rules.history;
        if !query.vectors.is_empty() && weights.memory != 0.0 {
            let texts = &query.vectors;
            let found = past.history.memory(texts, weights, past.now, past.without);
            let memory = self.of_tools(&found, weights.memory);
            parts.add(Term::Memory, fused(Term::Memory, memory));
        }
        if weights.companions != 0.0 {
            let found = past
                .history
                .companions(&self.anchors(&parts, past.session_tools));
            let companions = self.of_tools(&found, weights.companions);
            parts.add(Term::Companions, fused(Term::Companions, companions));
        }
        if weights.frequency != 0.0 {
            let found = past.history.frequencies().into_iter().collect();
            let frequency = self.of_tools(&found, weights.frequency);
            parts.add(Term::Frequency, fused(Term::Frequency, frequency));
        }
        parts
    }

    /// Returns the best hits. The tools of a server whose other tools fit move up, but not into
    /// the first places.
    pub(super) fn best(&self, mut parts: Parts, rules: &RankingRules, limit: usize) -> Vec<Hit> {
        if rules.server != 0.0 && rules.rank_fusion.is_none() && limit > N_FIRST {
            let servers = self.server_bonus(&parts, rules.server);
            parts.add(Term::Server, servers);
        }
        let order = parts.order(limit);
        let hit = |position: usize| Hit {
            position,
            score: parts.total[position],
            terms: (parts.by_term.iter())
                .map(|(term, values)| (*term, values[position]))
                .filter(|(_, value)| *value != 0.0)
                .collect(),
            coverage: 0.0,
            cosine: None,
        };
        order.into_iter().map(hit).collect()
    }

    fn server_bonus(&self, parts: &Parts, weight: f64) -> Vec<f64> {
        let first = parts.order(N_FIRST);
        let Some(last) = first.last().map(|last| parts.total[*last]) else {
            return Vec::new();
        };
        let of_servers = server_scores(&parts.total, &self.words.server_of, self.words.n_servers);
        let mut bonus: Vec<f64> = (self.words.server_of.iter().zip(&parts.total))
            .map(|(server, score)| {
                (weight * of_servers[*server]).min(SHORT_OF * (last - score).max(0.0))
            })
            .collect();
        for position in first {
            bonus[position] = 0.0;
        }
        bonus
    }

    /// Returns what says which tools go along: the best hits by their score, which is small where
    /// little of the query fits, and the tools that the session has used.
    fn anchors(&self, parts: &Parts, session_tools: &[ToolKey]) -> Vec<(ToolKey, f64)> {
        let mut anchors: Vec<(ToolKey, f64)> =
            session_tools.iter().map(|tool| (*tool, 1.0)).collect();
        for position in parts.order(N_ANCHORS) {
            let key = self.tools()[position].key;
            if !session_tools.contains(&key) {
                anchors.push((key, parts.total[position].clamp(0.0, 1.0)));
            }
        }
        anchors
    }

    fn of_tools(&self, values: &BTreeMap<ToolKey, f64>, weight: f64) -> Vec<f64> {
        let mut of = vec![0.0; self.tools().len()];
        for (key, value) in values {
            if let Some(position) = self.words.by_key.get(key) {
                of[*position] = weight * value;
            }
        }
        of
    }
}

/// Returns `coverage / sqrt(max)`: the best tool counts the square root of what it covers, so
/// that words decide where they cover much and vectors where they cover little.
fn spread(coverage: &[f64]) -> Vec<f64> {
    let largest = coverage.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return coverage.to_vec();
    }
    scaled(coverage, 1.0 / largest.sqrt())
}

/// Returns the values, made smaller where the largest one is above a bound: the largest of many is
/// further from their mean by chance alone, and large catalogs would have no use for words.
fn bounded(values: Vec<f64>) -> Vec<f64> {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if largest <= MAX_DEVIATION {
        return values;
    }
    scaled(&values, MAX_DEVIATION / largest)
}

fn scaled(values: &[f64], by: f64) -> Vec<f64> {
    values.iter().map(|value| value * by).collect()
}
