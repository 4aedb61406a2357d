//! The finding of a search: the ranked tools with their grade, and the notes of operators that match.

use std::sync::Arc;

use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{Query, RankingRules, SearchHit, add_curation, grade_answer};
use riglm_ports::observer::Event;

use super::SearchCore;
use crate::learning::Intent;
use crate::search::escalation::OperatorMatches;
use crate::search::grading::{fits, is_named, with_first};
use crate::search::index_cache::SearchIndex;
use crate::search::request::SearchRequest;

/// Notes and pins with a lower fit do not count.
const MIN_NOTE_FIT: f64 = 0.05;

/// The inputs of an answer.
pub(super) struct AnswerInputs {
    pub(super) call: SearchRequest,
    /// The ranking rules for this caller.
    pub(super) ranking: RankingRules,
    pub(super) text: String,
    pub(super) query: Query,
    pub(super) limit: usize,
    pub(super) prepared: Arc<SearchIndex>,
    /// The vector of the text, for recording.
    pub(super) vector: Option<Embedding>,
}

impl AnswerInputs {
    /// Returns the text as an intent. `fits` are the scores of the tools for it, by position.
    pub(super) fn intent<'a>(&'a self, fits: &'a [(usize, f64)]) -> Intent<'a> {
        Intent {
            text: &self.text,
            fits,
            vector: self.vector.as_ref(),
        }
    }
}

/// Result of a search before it is written.
#[derive(Clone, Debug)]
pub(super) struct SearchFinding {
    /// All tools, best first, before notes and reranking.
    pub(super) ranked: Vec<SearchHit>,
    /// All tools in the order of the answer.
    pub(super) hits: Vec<SearchHit>,
    pub(super) quality: SearchQuality,
    pub(super) fits: bool,
    /// Notes and pins that match the query.
    pub(super) curated: OperatorMatches,
    /// Notes of the answer about how the tools were found.
    pub(super) notes: Vec<String>,
    /// Whether further tiers are skipped.
    pub(super) is_final: bool,
}

impl SearchCore {
    /// Ranks the tools. A note or pin that fits well ends the search.
    pub(super) fn rank_and_match_notes(&self, asked: &AnswerInputs) -> SearchFinding {
        let call = &asked.call;
        let index = asked.prepared.index();
        let ranked = self.rank(
            &call.principal,
            call.session,
            &asked.query,
            &index,
            &asked.ranking,
        );
        let rules = &self.escalation.notes;
        let pinned: &[usize] = if rules.pins { &call.pinned } else { &[] };
        let is_named = is_named(&asked.text, call.catalog.tools());
        let curated = if is_named || asked.query.is_empty() {
            OperatorMatches::default()
        } else {
            OperatorMatches::new(
                asked.prepared.notes.as_ref(),
                &asked.query,
                &asked.ranking,
                &ranked,
                pinned,
                self.rules.quality.high,
            )
        };
        let found = self.grade_hits(ranked, curated, asked);
        if found.curated.answer.is_empty() {
            return SearchFinding {
                is_final: is_named || asked.query.is_empty(),
                ..found
            };
        }
        self.escalation
            .observer
            .observe_from(&Event::SearchCurated, &call.origin());
        SearchFinding {
            hits: with_first(&found.curated.answer, found.hits),
            quality: SearchQuality::High,
            fits: true,
            notes: found.curated.said.clone().into_iter().collect(),
            is_final: true,
            ..found
        }
    }

    /// Grades a ranking, after adding the fit of notes and pins.
    pub(super) fn grade_hits(
        &self,
        ranked: Vec<SearchHit>,
        curated: OperatorMatches,
        asked: &AnswerInputs,
    ) -> SearchFinding {
        let weight = self.escalation.notes.weight;
        let fusion = asked.ranking.rank_fusion.as_ref();
        let hits = add_curation(ranked.clone(), &curated.fits, weight, MIN_NOTE_FIT, fusion);
        let (_, quality) = grade_answer(&hits, &self.rules.quality);
        SearchFinding {
            fits: fits(&hits, self.rules.min_fit),
            hits,
            ranked,
            quality,
            curated,
            notes: Vec::new(),
            is_final: false,
        }
    }
}
