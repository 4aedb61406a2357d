//! The steps from ranked tools to the answer.

use std::sync::Arc;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::{ScoredTool, SearchQuality};
use riglm_domain::retrieval::{
    Query, RankingHistory, RankingRules, SearchHit, ToolIndex, add_curation, grade_answer,
};
use riglm_ports::observer::Event;

use super::SearchCore;
use super::fitting::fits_of;
use crate::learning::Intent;
use crate::search::answer::{FoundTool, PredictedTool, write_answer};
use crate::search::duplicates::DuplicateGroup;
use crate::search::escalation::OperatorMatches;
use crate::search::grading::{GradedAnswer, fits, is_named, with_first};
use crate::search::index_cache::SearchIndex;
use crate::search::predicted_next::predict_next;
use crate::search::request::{SearchReply, SearchRequest};

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
        let whose = (&call.principal, call.session);
        let index = asked.prepared.index();
        let ranked = self.rank(whose, &asked.query, (&index, &asked.ranking));
        let rules = &self.ladder.notes;
        let pinned: &[usize] = if rules.pins { &call.pinned } else { &[] };
        let is_named = is_named(&asked.text, call.offer.tools());
        let curated = if is_named || asked.query.is_empty() {
            OperatorMatches::default()
        } else {
            OperatorMatches::new(
                asked.prepared.notes.as_ref(),
                (&asked.query, &asked.ranking),
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
        self.ladder
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
        let weight = (self.ladder.notes.weight, MIN_NOTE_FIT);
        let fusion = asked.ranking.rank_fusion.as_ref();
        let hits = add_curation(ranked.clone(), &curated.fits, weight, fusion);
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

    pub(super) fn reply(&self, asked: &AnswerInputs, found: &SearchFinding) -> SearchReply {
        let call = &asked.call;
        let hits = (found.hits.clone(), found.fits);
        let mut judged = GradedAnswer::new(&asked.text, hits, found.quality, &call.offer);
        judged.notes.splice(0..0, found.notes.iter().cloned());
        if call.offer.is_truncated() {
            let n_tools = call.offer.tools().len();
            let note = format!("Only the first {n_tools} tools are searched; there are more.");
            judged.notes.push(note);
        }
        self.write_reply(asked, &judged, &fits_of(&found.ranked))
    }

    /// Ranks all tools with the history of the principal. The ranking is not truncated, because
    /// many tools may be duplicates.
    pub(super) fn rank(
        &self,
        (principal, session): (&Principal, SessionId),
        query: &Query,
        (index, ranking): (&ToolIndex, &RankingRules),
    ) -> Vec<SearchHit> {
        let memories = &self.memories;
        memories.with_history(principal, session, |history, session_tools| {
            let past = history.map(|history| RankingHistory {
                history,
                session_tools,
                now: self.clock.now(),
                without: None,
            });
            index.rank(query, ranking, past, index.tools().len())
        })
    }

    fn write_reply(
        &self,
        asked: &AnswerInputs,
        judged: &GradedAnswer,
        fits: &[(usize, f64)],
    ) -> SearchReply {
        let AnswerInputs { call, prepared, .. } = asked;
        let GradedAnswer {
            hits,
            quality,
            notes,
        } = judged;
        let groups = prepared.alike.groups(hits, asked.limit);
        let offered = call.offer.tools();
        let tools = prepared.by_words.tools();
        let found: Vec<FoundTool<'_>> = (groups.iter())
            .map(|DuplicateGroup { hit, others }| FoundTool {
                name: &offered[hit.position].name,
                text: tools[hit.position].text(),
                definition: &offered[hit.position].definition,
                score: hit.score,
                same: (others.iter())
                    .map(|other| offered[*other].name.as_str())
                    .collect(),
            })
            .collect();
        let mut named: Vec<usize> = (groups.iter())
            .flat_map(|group| group.others.iter().copied().chain([group.hit.position]))
            .collect();
        // The prediction of next tools needs ascending positions.
        named.sort_unstable();
        let next = self.next_tools.as_deref().map_or_else(Vec::new, |next| {
            let n = self.rules.answer.n_predicted;
            let intent = Intent {
                text: &asked.text,
                fits,
                vector: asked.vector.as_ref(),
            };
            predict_next(next, call, intent, &named, (n, self.clock.now()))
        });
        let predicted: Vec<PredictedTool<'_>> = (next.iter())
            .map(|ahead| PredictedTool {
                name: &offered[ahead.position].name,
                text: tools[ahead.position].text(),
                definition: &offered[ahead.position].definition,
                reason: &ahead.reason,
            })
            .collect();
        let draft = (found.as_slice(), predicted.as_slice());
        let rules = self.rules.answer.with_room_to_say_again(&*self.counter);
        let written = write_answer(draft, notes, *quality, &rules, &*self.counter);
        let answered = written.shown.iter().map(|at| &groups[*at]);
        // Duplicates have the same score.
        let scored = answered.flat_map(|DuplicateGroup { hit, others }| {
            let positions = std::iter::once(hit.position).chain(others.iter().copied());
            positions.map(|position| ScoredTool {
                tool: offered[position].tool.clone(),
                score: hit.score,
            })
        });
        SearchReply {
            results: scored.collect(),
            predicted: (written.predicted.iter())
                .map(|at| offered[next[*at].position].tool.clone())
                .collect(),
            text: written.text,
            structured: written.structured,
            quality: *quality,
            query_vector: None,
            was_cached: false,
        }
    }
}
