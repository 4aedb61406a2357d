//! Reranking of hits by a model that understands the query.

use std::time::Instant;

use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{BriefCatalog, SearchHit};
use riglm_ports::model_call::ModelUsage;
use riglm_ports::observer::{Event, ModelKind, ModelOutcome, ModelPurpose, ModelRequestEvent};
use riglm_ports::reranker::Reranker;

use super::finding::{AnswerInputs, SearchFinding};
use crate::search::escalation::{Escalation, GuardedModel, Reranking};

impl Escalation {
    /// Reranks the hits if the grade is not high. Returns the new or the old order, and whether the
    /// model, if it was needed, answered.
    pub(super) async fn rerank(
        &self,
        asked: &AnswerInputs,
        found: SearchFinding,
    ) -> (SearchFinding, bool) {
        let Some((reranker, max_tools, kind)) = self.reranker(asked) else {
            return (found, true);
        };
        if found.is_final || found.quality == SearchQuality::High {
            return (found, true);
        }
        let (positions, catalog) = rerank_brief(asked, &found.hits, max_tools);
        if positions.len() < 2 {
            return (found, true);
        }
        let started = Instant::now();
        let answer = reranker.model.rerank(&asked.text, &catalog);
        let answer = reranker.guard.run(answer).await;
        let took = started.elapsed();
        let tell = |outcome, usage: ModelUsage| {
            self.observer.observe_from(
                &Event::ModelAsked(ModelRequestEvent {
                    purpose: ModelPurpose::Reranking,
                    kind,
                    outcome,
                    usage,
                    took,
                }),
                &asked.call.origin(),
            );
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                tell(failure.outcome(), failure.usage());
                return (found, false);
            }
        };
        let chosen = answer
            .order
            .iter()
            .filter_map(|place| positions.get(*place));
        let chosen: Vec<usize> = chosen.copied().collect();
        let first = found.hits.iter().map(|hit| hit.position);
        let is_same = found.fits && first.take(chosen.len()).eq(chosen.iter().copied());
        if is_same || chosen.is_empty() {
            tell(ModelOutcome::Unchanged, answer.usage);
            return (found, true);
        }
        tell(ModelOutcome::Used, answer.usage);
        (found.reorder(&chosen), true)
    }

    /// Returns the reranking model for this caller, and the maximum number of tools in its request.
    fn reranker(
        &self,
        asked: &AnswerInputs,
    ) -> Option<(GuardedModel<dyn Reranker>, usize, ModelKind)> {
        match &self.reranking {
            Reranking::None => None,
            Reranking::Endpoint {
                reranker,
                max_tools,
            } => Some((reranker.clone(), *max_tools, ModelKind::Endpoint)),
            Reranking::Client { max_tools, .. } => {
                let reranker = asked.call.client_model.clone()?;
                Some((reranker, *max_tools, ModelKind::Client))
            }
        }
    }
}

/// Returns the positions of the best tools, one per group of duplicates, and their descriptions for
/// the model.
fn rerank_brief(
    asked: &AnswerInputs,
    hits: &[SearchHit],
    max_tools: usize,
) -> (Vec<usize>, BriefCatalog) {
    let offered = asked.call.catalog.tools();
    let groups = asked.prepared.alike.groups(hits, max_tools);
    let tools = groups.iter().map(|group| &offered[group.hit.position]);
    let catalog = BriefCatalog::new(tools.map(|tool| (tool.name.clone(), tool.first_line())));
    // `BriefCatalog` may omit tools. Only the others can occur in the answer.
    let position = |name: &str| {
        let mut groups = groups.iter().map(|group| group.hit.position);
        groups.find(|position| offered[*position].name == name)
    };
    (catalog.names().filter_map(position).collect(), catalog)
}

impl SearchFinding {
    /// Moves these positions to the front, in this order. If no hit fitted, all others are dropped.
    /// The sorted scores stay at their places, so the first hit keeps the best score.
    fn reorder(mut self, chosen: &[usize]) -> Self {
        let place = |hit: &SearchHit| {
            let mut chosen = chosen.iter();
            chosen.position(|position| *position == hit.position)
        };
        let mut scores: Vec<f64> = self.hits.iter().map(|hit| hit.score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        // A stable sort keeps the order of the other hits.
        self.hits
            .sort_by_key(|hit| place(hit).unwrap_or(usize::MAX));
        for (hit, score) in self.hits.iter_mut().zip(scores) {
            hit.score = score;
        }
        if !self.fits {
            self.hits.truncate(chosen.len());
            self.fits = true;
        }
        self
    }
}
