//! Scoring: the terms of each tool, and their sum.

use std::collections::BTreeMap;

use super::{RankingHistory, RankingRules, RankingTerm, SearchHit, ToolIndex};
use crate::catalog::tool::ToolKey;
use crate::retrieval::query::Query;
use crate::retrieval::semantic::standard_scores;
use crate::retrieval::servers::server_scores;

/// The number of best hits that are anchors for companions.
const N_ANCHORS: usize = 5;
/// The number of first places that the bonus of servers does not change.
const N_FIRST: usize = 5;
/// The share of the distance to the last of these places that a bonus may add.
const BONUS_SHARE: f64 = 0.999;

/// The maximum number of standard deviations of the nearest tool above the mean.
const MAX_DEVIATION: f64 = 3.5;

/// The terms of the scores of all tools.
#[derive(Debug)]
pub(super) struct TermScores {
    by_term: Vec<(RankingTerm, Vec<f64>)>,
    total: Vec<f64>,
}

impl TermScores {
    fn new(n_tools: usize) -> Self {
        Self {
            by_term: Vec::new(),
            total: vec![0.0; n_tools],
        }
    }

    fn add(&mut self, term: RankingTerm, values: Vec<f64>) {
        for (total, value) in self.total.iter_mut().zip(&values) {
            *total += value;
        }
        self.by_term.push((term, values));
    }

    /// Returns the positions of the best `limit` tools, best first; ties by position.
    fn order(&self, limit: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.total.len()).collect();
        let by_score =
            |a: &usize, b: &usize| self.total[*b].total_cmp(&self.total[*a]).then(a.cmp(b));
        // A partial selection is faster than sorting all tools.
        if limit > 0 && limit < order.len() {
            order.select_nth_unstable_by(limit - 1, by_score);
        }
        order.truncate(limit);
        order.sort_unstable_by(by_score);
        order
    }
}

impl ToolIndex {
    /// Computes the terms of all tools for words, vectors, slots and history.
    pub(super) fn score_terms(
        &self,
        query: &Query,
        rules: &RankingRules,
        coverage: &[f64],
        cosines: &[f64],
        past: Option<RankingHistory<'_>>,
    ) -> TermScores {
        let mut parts = TermScores::new(self.tools().len());
        let fused = |term: RankingTerm, scores: Vec<f64>| match &rules.rank_fusion {
            None => scores,
            Some(fusion) => {
                let weights = &fusion.weights;
                let (weight, floor) = match term {
                    RankingTerm::Words => (weights.words, 0.0),
                    // Standard scores may be negative, and still have a rank.
                    RankingTerm::Meaning => (weights.meaning, f64::NEG_INFINITY),
                    RankingTerm::Memory => (weights.memory, 0.0),
                    RankingTerm::Companions => (weights.companions, 0.0),
                    _ => (weights.frequency, 0.0),
                };
                fusion.rank_shares(&scores, floor, weight)
            }
        };
        parts.add(
            RankingTerm::Words,
            fused(RankingTerm::Words, scale_coverage(coverage)),
        );
        if !cosines.is_empty() {
            let nearness = scale(
                &limit_deviation(standard_scores(cosines)),
                rules.weights.meaning,
            );
            parts.add(RankingTerm::Meaning, fused(RankingTerm::Meaning, nearness));
        }
        if rules.rank_fusion.is_none() && !query.slots.is_empty() && rules.weights.slots != 0.0 {
            let taken = self
                .tools()
                .iter()
                .map(|tool| rules.weights.slots * tool.analysed.taken.share(&query.slots));
            parts.add(RankingTerm::Slots, taken.collect());
        }
        let Some(past) = past else {
            return parts;
        };
        let weights = &rules.weights;
        if !query.vectors.is_empty() && weights.memory != 0.0 {
            let texts = &query.vectors;
            let found = past
                .history
                .memory(texts, rules.half_life_days, past.now, past.without);
            let memory = self.of_tools(&found, weights.memory);
            parts.add(RankingTerm::Memory, fused(RankingTerm::Memory, memory));
        }
        if weights.companions != 0.0 {
            let found = past
                .history
                .companions(&self.anchors(&parts, past.session_tools));
            let companions = self.of_tools(&found, weights.companions);
            parts.add(
                RankingTerm::Companions,
                fused(RankingTerm::Companions, companions),
            );
        }
        if weights.frequency != 0.0 {
            let found = past.history.frequencies().into_iter().collect();
            let frequency = self.of_tools(&found, weights.frequency);
            parts.add(
                RankingTerm::Frequency,
                fused(RankingTerm::Frequency, frequency),
            );
        }
        parts
    }

    /// Returns the best hits. Tools of a server whose other tools fit get a bonus, but do not enter
    /// the first places.
    pub(super) fn best_hits(
        &self,
        mut parts: TermScores,
        rules: &RankingRules,
        limit: usize,
    ) -> Vec<SearchHit> {
        if rules.weights.server != 0.0 && rules.rank_fusion.is_none() && limit > N_FIRST {
            let servers = self.server_bonus(&parts, rules.weights.server);
            parts.add(RankingTerm::Server, servers);
        }
        let order = parts.order(limit);
        let hit = |position: usize| SearchHit {
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

    fn server_bonus(&self, parts: &TermScores, weight: f64) -> Vec<f64> {
        let first = parts.order(N_FIRST);
        let Some(last) = first.last().map(|last| parts.total[*last]) else {
            return Vec::new();
        };
        let of_servers = server_scores(&parts.total, &self.words.server_of, self.words.n_servers);
        let mut bonus: Vec<f64> = (self.words.server_of.iter().zip(&parts.total))
            .map(|(server, score)| {
                (weight * of_servers[*server]).min(BONUS_SHARE * (last - score).max(0.0))
            })
            .collect();
        for position in first {
            bonus[position] = 0.0;
        }
        bonus
    }

    /// Returns the anchors for companions: the best hits with their scores as weights, which are
    /// small if little of the query fits, and the tools of the session.
    fn anchors(&self, parts: &TermScores, session_tools: &[ToolKey]) -> Vec<(ToolKey, f64)> {
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

/// Returns `coverage / sqrt(max)`. The best tool gets the square root of its coverage, so that
/// words decide if they cover much, and vectors decide if words cover little.
fn scale_coverage(coverage: &[f64]) -> Vec<f64> {
    let largest = coverage.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return coverage.to_vec();
    }
    scale(coverage, 1.0 / largest.sqrt())
}

/// Returns the values, scaled down if the largest one is above `MAX_DEVIATION`. The largest of many
/// values is further from their mean by chance alone, and would outweigh words in large catalogs.
fn limit_deviation(values: Vec<f64>) -> Vec<f64> {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if largest <= MAX_DEVIATION {
        return values;
    }
    scale(&values, MAX_DEVIATION / largest)
}

fn scale(values: &[f64], by: f64) -> Vec<f64> {
    values.iter().map(|value| value * by).collect()
}
