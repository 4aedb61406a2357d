//! Why a tool has its probability, in numbers that add up and in words.

use super::prepared::Prepared;
use super::{Engine, Method, forecast, probabilities, scene};
use crate::prediction::expert::Expert;
use crate::prediction::explanation::{Explanation, ScoreTerm};
use crate::prediction::features::Feature;
use crate::prediction::mixers::{Contexts, Mixed, Mixture, N_SETS};
use crate::prediction::number::real;
use crate::prediction::softmax::Rows;
use crate::prediction::trail::Trail;
use crate::prediction::view::View;
use crate::prediction::vocabulary::Slot;

/// How many reasons are put in words.
const N_REASONS: usize = 2;

impl Engine {
    /// Returns why a candidate has its probability; `None` for a tool that is none.
    #[must_use]
    pub fn explain(&self, trail: &Trail, candidates: &[Slot], slot: Slot) -> Option<Explanation> {
        self.explain_each(trail, candidates, &[slot]).pop()?
    }

    /// Returns why each of these tools has its probability, in their order; `None` for one that is
    /// no candidate. What the candidates have in common is made once.
    #[must_use]
    pub fn explain_each(
        &self,
        trail: &Trail,
        candidates: &[Slot],
        slots: &[Slot],
    ) -> Vec<Option<Explanation>> {
        let candidates = self.known(candidates);
        let view = self.view(trail);
        let mixed = (self.method == Method::Mix).then(|| {
            // Most often the forecast was made just now.
            let latest = self.latest.borrow(trail, &candidates);
            latest.unwrap_or_else(|| {
                let scene = scene(&view, &candidates, self.experts);
                let outcome = self.mixers(trail).predict(&scene);
                Prepared::new(trail, candidates.clone(), scene, outcome)
            })
        });
        let forecast = match &mixed {
            Some(mixed) => forecast(probabilities(&mixed.scene, &mixed.outcome)),
            None => self.forecast_alone(&view, &candidates),
        };
        let explain = |slot: &Slot| {
            candidates.binary_search(&slot.index()).ok()?;
            let probability = forecast.probability(*slot);
            let (score, reasons) = match (self.method, &mixed) {
                (Method::Mix, Some(mixed)) => self.mixed_score(trail, mixed, *slot)?,
                (Method::Expert(expert), _) => single(expert, probability),
                _ => single(Expert::Cooccurrence, probability),
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
            self.latest.keep(mixed);
        }
        explained
    }

    /// Returns the score of a candidate, and its reasons with how much each of them adds.
    fn mixed_score(
        &self,
        trail: &Trail,
        Prepared { scene, outcome, .. }: &Prepared,
        slot: Slot,
    ) -> Option<(ScoreTerm, Vec<(Reason, f64)>)> {
        let mixers = self.mixers(trail);
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
        let experts = Expert::ALL.into_iter().zip(experts);
        let features = Feature::ALL.into_iter().zip(features);
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

/// The name of the part of a score that stands for tools which the session called before.
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

    fn evidence(self, view: &View<'_>, slot: Slot) -> Option<String> {
        match self {
            Self::Expert(expert) => expert.evidence(view, slot),
            Self::Feature(feature) => feature.evidence(view, slot),
        }
    }
}

/// Returns what each row adds to the score of a column, relative to the mean over all. The weight
/// of a row is the mean of its weights in all sets, as much as each of those counts.
fn terms(mixture: &Mixture, contexts: &Contexts, rows: &Rows, at: usize) -> Vec<f64> {
    let mut weights: Vec<f64> = vec![0.0; rows.each().count()];
    for (set, share) in mixture.shares(contexts).iter().enumerate().take(N_SETS) {
        for (weight, of_set) in weights.iter_mut().zip(mixture.weights(set, contexts)) {
            *weight += share * of_set;
        }
    }
    let relative = |row: &[f64]| row[at] - row.iter().sum::<f64>() / real(row.len().max(1));
    (weights.iter().zip(rows.each()))
        .map(|(weight, row)| weight * relative(row))
        .collect()
}

/// Returns what is left of the score without what the rows add: the score of a mean tool.
fn chance(mixed: &Mixed, at: usize, explained: f64) -> f64 {
    mixed.log_p[at] - explained
}

fn single(expert: Expert, probability: f64) -> (ScoreTerm, Vec<(Reason, f64)>) {
    let value = probability.ln();
    let score = ScoreTerm::sum("score", vec![ScoreTerm::leaf(expert.as_str(), value)]);
    (score, vec![(Reason::Expert(expert), 1.0)])
}

/// Returns what is said of a tool of which nothing else can be said: a tool that competes with no other
/// is called again because it was called.
fn without_reasons(score: &ScoreTerm) -> &'static str {
    let is_again = score.parts.first().is_some_and(|part| part.name == AGAIN);
    if is_again {
        "the session called it before"
    } else {
        "nothing speaks for it"
    }
}

fn sentence(view: &View<'_>, slot: Slot, mut reasons: Vec<(Reason, f64)>) -> Option<String> {
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
