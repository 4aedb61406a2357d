//! Explanations of probabilities, as sums of terms and in words.

use super::forecast_cache::CachedForecast;
use super::{Engine, PredictionMethod, forecast, mix_inputs, probabilities};
use crate::num::to_f64;
use crate::prediction::expert::Expert;
use crate::prediction::explanation::{Explanation, ScoreTerm};
use crate::prediction::features::Feature;
use crate::prediction::mixers::{Mixture, MixtureOutput, N_SETS, WeightContexts};
use crate::prediction::session_history::SessionHistory;
use crate::prediction::softmax::FeatureRows;
use crate::prediction::view::View;
use crate::prediction::vocabulary::ToolIx;

/// Maximum number of reasons in a sentence.
const N_REASONS: usize = 2;

impl Engine {
    /// Returns the explanation of the probability of a candidate; `None` if the tool is not a
    /// candidate.
    #[must_use]
    pub fn explain(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        slot: ToolIx,
    ) -> Option<Explanation> {
        self.explain_each(history, candidates, &[slot]).pop()?
    }

    /// Returns the explanations of these tools in order; `None` for tools that are not candidates.
    /// The common part of the computation is done once.
    #[must_use]
    pub fn explain_each(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        slots: &[ToolIx],
    ) -> Vec<Option<Explanation>> {
        let candidates = self.known_indices(candidates);
        let view = self.view(history);
        let mixed = self.mixes(history).then(|| {
            // The forecast was usually made just before, so its inputs are still there.
            let latest = self.latest.try_take(history, &candidates);
            latest.unwrap_or_else(|| {
                let scene = mix_inputs(&view, &candidates, self.experts);
                let outcome = self.mixers(history).predict(&scene);
                CachedForecast::new(history, candidates.clone(), scene, outcome)
            })
        });
        let forecast = match &mixed {
            Some(mixed) => forecast(probabilities(&mixed.scene, &mixed.outcome)),
            None => self.forecast_alone(&view, &candidates),
        };
        let explain = |slot: &ToolIx| {
            candidates.binary_search(&slot.index()).ok()?;
            let probability = forecast.probability(*slot);
            let (score, reasons) = match (self.method, &mixed) {
                (_, Some(mixed)) => self.mixed_score(history, mixed, *slot)?,
                (PredictionMethod::Advice, None) => single_score(Expert::External, probability),
                (PredictionMethod::Expert(expert), _) => single_score(expert, probability),
                _ => single_score(Expert::Cooccurrence, probability),
            };
            let sentence = sentence(&view, *slot, reasons);
            let sentence = sentence.unwrap_or_else(|| without_reasons(&score).into());
            Some(Explanation {
                probability,
                score,
                sentence,
            })
        };
        let explained = slots.iter().map(explain).collect();
        if let Some(mixed) = mixed {
            self.latest.store(mixed);
        }
        explained
    }

    /// Returns the score of a candidate, and its reasons with their values.
    fn mixed_score(
        &self,
        history: &SessionHistory,
        CachedForecast { scene, outcome, .. }: &CachedForecast,
        slot: ToolIx,
    ) -> Option<(ScoreTerm, Vec<(Reason, f64)>)> {
        let mixers = self.mixers(history);
        let first = scene.new.binary_search(&slot.index());
        let again = scene.used.binary_search(&slot.index());
        let (mixture, mixed, rows, name, share) = if first.is_ok() {
            let share = 1.0 - outcome.repeat;
            (
                &mixers.first,
                &outcome.first,
                &scene.new_rows,
                "not_used_yet",
                share,
            )
        } else {
            let share = outcome.repeat;
            (
                &mixers.again,
                &outcome.again,
                &scene.used_rows,
                AGAIN,
                share,
            )
        };
        let at = first.or(again).ok()?;
        let terms = terms(mixture, &scene.contexts, rows, at);
        let (experts, features) = terms.split_at(Expert::ALL.len());
        let leaf = |reason: Reason, value: f64| ScoreTerm::leaf(reason.as_str(), value);
        let experts = Expert::ALL.iter().copied().zip(experts);
        let features = Feature::ALL.into_iter().zip(features);
        // Without advice the term would always be 0.
        let experts = experts.filter(|(expert, _)| expert.has_evidence(history));
        let reasons: Vec<(Reason, f64)> = experts
            .map(|(expert, value)| (Reason::Expert(expert), *value))
            .chain(features.map(|((feature, _), value)| (Reason::Feature(feature), *value)))
            .collect();
        let group = |is_expert: bool| {
            let members = reasons
                .iter()
                .filter(|(reason, _)| reason.is_expert() == is_expert);
            members
                .map(|(reason, value)| leaf(*reason, *value))
                .collect()
        };
        let explained: f64 = reasons.iter().map(|(_, value)| value).sum();
        let score = ScoreTerm::sum(
            "score",
            vec![
                ScoreTerm::leaf(name, share.ln()),
                ScoreTerm::leaf("chance", chance(mixed, at, explained)),
                ScoreTerm::sum("experts", group(true)),
                ScoreTerm::sum("features", group(false)),
            ],
        );
        Some((score, reasons))
    }
}

/// Name of the term for tools that the session has called before.
const AGAIN: &str = "used_again";

#[derive(Clone, Copy, Debug)]
enum Reason {
    Expert(Expert),
    Feature(Feature),
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Expert(expert) => expert.as_str(),
            Self::Feature(feature) => feature.as_str(),
        }
    }

    fn is_expert(self) -> bool {
        matches!(self, Self::Expert(_))
    }

    fn evidence(self, view: &View<'_>, slot: ToolIx) -> Option<String> {
        match self {
            Self::Expert(expert) => expert.evidence(view, slot),
            Self::Feature(feature) => feature.evidence(view, slot),
        }
    }
}

/// Returns the contribution of each row to the score of a column, relative to the mean over all
/// columns. The weight of a row is the mean of its weights in all sets, weighted by the share of
/// each set.
fn terms(mixture: &Mixture, contexts: &WeightContexts, rows: &FeatureRows, at: usize) -> Vec<f64> {
    let mut weights: Vec<f64> = vec![0.0; rows.each().count()];
    for (set, share) in mixture.shares(contexts).iter().enumerate().take(N_SETS) {
        for (weight, of_set) in weights.iter_mut().zip(&*mixture.weights(set, contexts)) {
            *weight += share * of_set;
        }
    }
    let relative = |row: &[f64]| row[at] - row.iter().sum::<f64>() / to_f64(row.len().max(1));
    (weights.iter().zip(rows.each()))
        .map(|(weight, row)| weight * relative(row))
        .collect()
}

/// Returns the rest of the score without the contributions of the rows: the score of a mean tool.
fn chance(mixed: &MixtureOutput, at: usize, explained: f64) -> f64 {
    mixed.log_p[at] - explained
}

fn single_score(expert: Expert, probability: f64) -> (ScoreTerm, Vec<(Reason, f64)>) {
    let value = probability.ln();
    let score = ScoreTerm::sum("score", vec![ScoreTerm::leaf(expert.as_str(), value)]);
    (score, vec![(Reason::Expert(expert), 1.0)])
}

/// Returns the sentence for a tool without reasons. A used tool that competes with no other used
/// tool has none, although it is likely.
fn without_reasons(score: &ScoreTerm) -> &'static str {
    let is_again = score
        .parts()
        .first()
        .is_some_and(|part| part.name() == AGAIN);
    if is_again {
        "the session called it before"
    } else {
        "no evidence for this tool"
    }
}

fn sentence(view: &View<'_>, slot: ToolIx, mut reasons: Vec<(Reason, f64)>) -> Option<String> {
    reasons.retain(|(_, value)| *value > 0.0);
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut words: Vec<String> = Vec::new();
    for (reason, _) in reasons {
        if let Some(evidence) = reason.evidence(view, slot)
            && !words.contains(&evidence)
        {
            words.push(evidence);
        }
        if words.len() == N_REASONS {
            break;
        }
    }
    (!words.is_empty()).then(|| words.join("; "))
}
