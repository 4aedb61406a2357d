//! What was found, in another order, by somebody who understands the question.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::retrieval::{BriefCatalog, Hit};
use riglm_domain::search::SearchQuality;
use riglm_ports::model_call::ModelUsage;
use riglm_ports::observer::{Event, ModelAsked, ModelKind, ModelOutcome, ModelPurpose};
use riglm_ports::reranker::Reranker;

use super::Shared;
use super::replying::{Asked, Finding};
use crate::search::ladder::{Guarded, Reranking};

impl Shared {
    /// Has what was found put into another order, where it is not graded high. Returns it in that
    /// order, or as it was, and whether nobody failed who was to be asked.
    pub(super) async fn reranked(
        self: &Arc<Self>,
        asked: &Arc<Asked>,
        found: Finding,
    ) -> (Finding, bool) {
        let Some((reranker, max_tools, kind)) = self.reranker(asked) else {
            return (found, true);
        };
        if found.is_final || found.quality == SearchQuality::High {
            return (found, true);
        }
        let (positions, catalog) = brief(asked, &found.hits, max_tools);
        if positions.len() < 2 {
            return (found, true);
        }
        let started = Instant::now();
        let answer = reranker.model.rerank(&asked.text, &catalog);
        let answer = reranker.guard.run(answer).await;
        let took = started.elapsed();
        let tell = |outcome, usage: ModelUsage| {
            self.ladder.observer.observe_from(
                &Event::ModelAsked(ModelAsked {
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
        (found.in_order(&chosen), true)
    }

    /// Returns who puts what was found into another order, and of how many tools.
    fn reranker(&self, asked: &Asked) -> Option<(Guarded<dyn Reranker>, usize, ModelKind)> {
        match &self.ladder.reranking {
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

/// Returns the positions of the best tools, of those that are the same one, and what a model is told of
/// them.
fn brief(asked: &Asked, hits: &[Hit], max_tools: usize) -> (Vec<usize>, BriefCatalog) {
    let offered = asked.call.offer.tools();
    let groups = asked.prepared.alike.groups(hits, max_tools);
    let tools = groups.iter().map(|group| &offered[group.hit.position]);
    let catalog = BriefCatalog::new(tools.map(|tool| (tool.name.clone(), tool.first_line())));
    // Tools of which the model is not told have no place in its answer.
    let position = |name: &str| {
        let mut groups = groups.iter().map(|group| group.hit.position);
        groups.find(|position| offered[*position].name == name)
    };
    (catalog.names().filter_map(position).collect(), catalog)
}

impl Finding {
    /// Returns it with these positions first, in this order. Where nothing fitted, they are all there
    /// is. The best place keeps the best score.
    fn in_order(mut self, chosen: &[usize]) -> Self {
        let place = |hit: &Hit| {
            let mut chosen = chosen.iter();
            chosen.position(|position| *position == hit.position)
        };
        let mut scores: Vec<f64> = self.hits.iter().map(|hit| hit.score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        // The others stay in their order.
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
