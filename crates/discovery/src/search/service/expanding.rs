//! Query expansion, if the answer would be graded low.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use riglm_domain::retrieval::excerpt::excerpt;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{
    ExpansionRules, Query, QueryVariant, SearchHit, VariantSource, fuse_variants,
};
use riglm_ports::observer::{Event, ModelKind, ModelOutcome, ModelPurpose, ModelRequestEvent};

use super::SearchCore;
use super::finding::{AnswerInputs, SearchFinding};
use crate::search::escalation::Escalation;

/// Maximum number of characters of a variant that an answer quotes.
const MAX_QUOTED: usize = 120;

impl SearchCore {
    /// Searches with query variants if the grade is low, and keeps the result if its grade is
    /// better. Returns the result, and whether all sources of variants worked.
    pub(super) async fn expand(
        self: &Arc<Self>,
        asked: &Arc<AnswerInputs>,
        found: SearchFinding,
    ) -> (SearchFinding, bool) {
        let Some(rules) = &self.escalation.expansion else {
            return (found, true);
        };
        if found.is_final || found.quality != SearchQuality::Low {
            return (found, true);
        }
        let (variants, is_whole) = self.variants(asked, rules).await;
        if variants.is_empty() {
            return (found, is_whole);
        }
        let prepared = &asked.prepared;
        let turn = self.turns.take(&asked.call.principal).await;
        let asking = variants.iter().map(|variant| async {
            let asking = self
                .prepare_query(Query::readable_part(&variant.text), None, prepared)
                .await;
            (variant.trust, asking.query)
        });
        let queries = join_all(asking).await;
        let (ranked, curated) = (found.ranked.clone(), found.curated.clone());
        let trying = move |shared: &Self, asked: &AnswerInputs| {
            let hits = shared.fuse_variants(asked, &ranked, &queries);
            shared.grade_hits(hits, curated.clone(), asked)
        };
        let mut tried = self.in_background(turn, asked, trying).await;
        // `SearchQuality` sorts better grades first.
        let has_helped = tried.quality < found.quality;
        self.escalation.observer.observe_from(
            &Event::SearchExpanded {
                n_variants: variants.len(),
                has_helped,
            },
            &asked.call.origin(),
        );
        if !has_helped {
            return (found, is_whole);
        }
        tried.notes.push(expansion_note(&variants));
        (tried, is_whole)
    }

    /// Fuses the ranking of a query with the rankings of its variants.
    fn fuse_variants(
        &self,
        asked: &AnswerInputs,
        ranked: &[SearchHit],
        queries: &[(f64, Query)],
    ) -> Vec<SearchHit> {
        let (principal, session) = (&asked.call.principal, asked.call.session);
        let index = asked.prepared.index();
        let all = queries.iter().map(|(trust, query)| {
            let hits = self.rank(principal, session, query, &index, &asked.ranking);
            (*trust, hits)
        });
        let all: Vec<(f64, Vec<SearchHit>)> = all.collect();
        fuse_variants(ranked, &all)
    }

    /// Returns variants of a query, and whether the model, if there is one, answered.
    async fn variants(
        &self,
        asked: &AnswerInputs,
        rules: &ExpansionRules,
    ) -> (Vec<QueryVariant>, bool) {
        let n = rules.n_variants;
        let vector = asked.query.vectors().first();
        let history = match vector.filter(|_| rules.history) {
            Some(vector) => self
                .memories
                .earlier_queries(&asked.call.principal, vector, n),
            None => Vec::new(),
        };
        let synonyms = if rules.synonyms {
            let index = &asked.prepared.by_words;
            index.synonym_variants(&asked.text, &self.rules.synonyms, n)
        } else {
            Vec::new()
        };
        let (of_model, is_whole) = self.escalation.model_variants(asked, n).await;
        let chosen = rules.select_variants(&asked.text, &[of_model, history, synonyms]);
        (chosen, is_whole)
    }
}

impl Escalation {
    async fn model_variants(&self, asked: &AnswerInputs, n: usize) -> (Vec<QueryVariant>, bool) {
        let Some(expander) = &self.expander else {
            return (Vec::new(), true);
        };
        let started = Instant::now();
        let answer = expander
            .guard
            .run(expander.model.expand(&asked.text, n))
            .await;
        let (texts, outcome, usage) = match answer {
            Ok(answer) => {
                let outcome = if answer.texts.is_empty() {
                    ModelOutcome::Unchanged
                } else {
                    ModelOutcome::Used
                };
                (answer.texts, outcome, answer.usage)
            }
            Err(failure) => (Vec::new(), failure.outcome(), failure.usage()),
        };
        self.observer.observe_from(
            &Event::ModelAsked(ModelRequestEvent {
                purpose: ModelPurpose::Expansion,
                kind: ModelKind::Endpoint,
                outcome,
                usage,
                took: started.elapsed(),
            }),
            &asked.call.origin(),
        );
        let is_answered = matches!(outcome, ModelOutcome::Used | ModelOutcome::Unchanged);
        let variant = |text| QueryVariant {
            text,
            source: VariantSource::Model,
            trust: ExpansionRules::MODEL_TRUST,
        };
        (texts.into_iter().map(variant).collect(), is_answered)
    }
}

/// Returns the note of the answer about query variants.
fn expansion_note(variants: &[QueryVariant]) -> String {
    let mut said = "Few matches; also searched for:".to_owned();
    for (number, variant) in variants.iter().enumerate() {
        let text = excerpt(&variant.text, MAX_QUOTED);
        let separator = if number == 0 { " " } else { ", " };
        // Writing to a `String` cannot fail.
        let _ = write!(said, "{separator}\"{}\"", text.replace('\n', " "));
    }
    said.push('.');
    said
}
