//! Other words for a query of which the answer would be graded low.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use riglm_domain::excerpt::excerpt;
use riglm_domain::retrieval::{ExpansionRules, Hit, Query, Variant, VariantSource, fused};
use riglm_domain::search::SearchQuality;
use riglm_ports::observer::{Event, ModelAsked, ModelKind, ModelOutcome, ModelPurpose};

use super::Shared;
use super::replying::{Asked, Finding};
use crate::search::ladder::Ladder;

/// How much of another wording an answer repeats, in characters.
const MAX_REPEATED: usize = 120;

impl Shared {
    /// Tries other words where little fits, and takes what is found with them where that is graded
    /// better. Returns what was found then, and whether all was tried that was to be.
    pub(super) async fn expanded(
        self: &Arc<Self>,
        asked: &Arc<Asked>,
        found: Finding,
    ) -> (Finding, bool) {
        let Some(rules) = &self.ladder.expansion else {
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
            let asking = self.asking(Query::cut(&variant.text), prepared).await;
            (variant.trust, asking.query)
        });
        let queries = join_all(asking).await;
        let (ranked, curated) = (found.ranked.clone(), found.curated.clone());
        let trying = move |shared: &Self, asked: &Asked| {
            let hits = shared.found_with(asked, &ranked, &queries);
            shared.judged(hits, curated.clone(), asked)
        };
        let mut tried = self.in_background(turn, asked, trying).await;
        // Better grades come first.
        let has_helped = tried.quality < found.quality;
        self.ladder.observer.observe_from(
            &Event::SearchExpanded {
                n_variants: variants.len(),
                has_helped,
            },
            &asked.call.origin(),
        );
        if !has_helped {
            return (found, is_whole);
        }
        tried.notes.push(searched_for(&variants));
        (tried, is_whole)
    }

    /// Returns what is found with the words of a query and with others.
    fn found_with(&self, asked: &Asked, ranked: &[Hit], queries: &[(f64, Query)]) -> Vec<Hit> {
        let whose = (&asked.call.principal, asked.call.session);
        let index = asked.prepared.index();
        let all = queries.iter().map(|(trust, query)| {
            let hits = self.rank(whose, query, (&index, &asked.ranking));
            (*trust, hits)
        });
        let all: Vec<(f64, Vec<Hit>)> = all.collect();
        fused(ranked, &all)
    }

    /// Returns other words for a query, and whether the model, where there is one, was asked for some.
    async fn variants(&self, asked: &Asked, rules: &ExpansionRules) -> (Vec<Variant>, bool) {
        let n = rules.n_variants;
        let vector = asked.query.vectors().first();
        let history = match vector.filter(|_| rules.history) {
            Some(vector) => self.memories.earlier(&asked.call.principal, vector, n),
            None => Vec::new(),
        };
        let synonyms = if rules.synonyms {
            let index = &asked.prepared.by_words;
            index.synonym_variants(&asked.text, &self.rules.synonyms, n)
        } else {
            Vec::new()
        };
        let (of_model, is_whole) = self.ladder.variants_of_model(asked, n).await;
        let chosen = rules.chosen(&asked.text, &[of_model, history, synonyms]);
        (chosen, is_whole)
    }
}

impl Ladder {
    async fn variants_of_model(&self, asked: &Asked, n: usize) -> (Vec<Variant>, bool) {
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
            &Event::ModelAsked(ModelAsked {
                purpose: ModelPurpose::Expansion,
                kind: ModelKind::Endpoint,
                outcome,
                usage,
                took: started.elapsed(),
            }),
            &asked.call.origin(),
        );
        let is_answered = matches!(outcome, ModelOutcome::Used | ModelOutcome::Unchanged);
        let variant = |text| Variant {
            text,
            source: VariantSource::Model,
            trust: ExpansionRules::MODEL_TRUST,
        };
        (texts.into_iter().map(variant).collect(), is_answered)
    }
}

/// Returns what an answer says of other words.
fn searched_for(variants: &[Variant]) -> String {
    let mut said = "Little fits these words; also searched for:".to_owned();
    for (number, variant) in variants.iter().enumerate() {
        let text = excerpt(&variant.text, MAX_REPEATED);
        let separator = if number == 0 { " " } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(said, "{separator}\"{}\"", text.replace('\n', " "));
    }
    said.push('.');
    said
}
