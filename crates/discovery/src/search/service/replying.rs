//! The answer of a search: the tools that were found and those that are predicted, as a text.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::retrieval::search::{ScoredTool, SearchQuality};
use riglm_ports::token_counter::TokenCounter;

use super::finding::{AnswerInputs, SearchFinding};
use super::ranking::fits_of;
use crate::learning::LivePredictions;
use crate::search::answer::{AnswerRules, FoundTool, PredictedTool, write_answer};
use crate::search::duplicates::DuplicateGroup;
use crate::search::grading::GradedAnswer;
use crate::search::predicted_next::{FoundPositions, consult_next, predict_next};
use crate::search::request::SearchReply;

/// Writes the answers of searches.
#[derive(Debug)]
pub(super) struct AnswerWriter {
    pub(super) predictions: LivePredictions,
    pub(super) counter: Arc<dyn TokenCounter>,
    pub(super) rules: AnswerRules,
}

impl AnswerWriter {
    /// Asks the external predictor, if there is one, so that the answer can use its scores.
    pub(super) async fn consult(
        &self,
        asked: &AnswerInputs,
        found: &SearchFinding,
        now: Timestamp,
    ) {
        let Some(next) = self.predictions.get() else {
            return;
        };
        // Without an external predictor, the tools must not be copied for nothing.
        if self.rules.n_predicted > 0 && next.advice_counts().is_some() {
            let fits = fits_of(&found.ranked);
            consult_next(&next, &asked.call, asked.intent(&fits), now).await;
        }
    }

    /// Returns the answer with the tools of a finding.
    pub(super) fn reply(
        &self,
        asked: &AnswerInputs,
        found: &SearchFinding,
        now: Timestamp,
    ) -> SearchReply {
        let call = &asked.call;
        let mut judged = GradedAnswer::new(
            &asked.text,
            found.hits.clone(),
            found.fits,
            found.quality,
            &call.catalog,
        );
        judged.notes.splice(0..0, found.notes.iter().cloned());
        if call.catalog.is_truncated() {
            let n_tools = call.catalog.tools().len();
            let note = format!("Only the first {n_tools} tools are searched; there are more.");
            judged.notes.push(note);
        }
        self.write_reply(asked, &judged, &fits_of(&found.ranked), now)
    }

    fn write_reply(
        &self,
        asked: &AnswerInputs,
        judged: &GradedAnswer,
        fits: &[(usize, f64)],
        now: Timestamp,
    ) -> SearchReply {
        let AnswerInputs { call, prepared, .. } = asked;
        let GradedAnswer {
            hits,
            quality,
            notes,
        } = judged;
        let groups = prepared.alike.groups(hits, asked.limit);
        let offered = call.catalog.tools();
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
        let next = self.predictions.get().map_or_else(Vec::new, |next| {
            let n = self.rules.n_predicted;
            // An uncertain hit says nothing about the next call.
            let certain = groups.first().filter(|_| *quality != SearchQuality::Low);
            let found = FoundPositions {
                best: certain.map(|group| group.hit.position),
                named: &named,
            };
            predict_next(&next, call, asked.intent(fits), found, n, now)
        });
        let predicted: Vec<PredictedTool<'_>> = (next.iter())
            .map(|ahead| PredictedTool {
                name: &offered[ahead.position].name,
                text: tools[ahead.position].text(),
                definition: &offered[ahead.position].definition,
                reason: &ahead.reason,
            })
            .collect();
        let rules = self.rules.with_room_to_say_again(&*self.counter);
        let written = write_answer(&found, &predicted, notes, *quality, &rules, &*self.counter);
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
