//! The hurdle mix: first whether a tool of the session is used again, then which one.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::expert::Expert;
use super::features::Feature;
use super::gate::Gate;
use super::numeric::mix_hash;
use super::set_shares::SetShares;
use super::softmax::{FeatureRows, Softmax, log_linear};
use crate::num::to_f64;

/// Number of sets of weights. Each set chooses its weights by a context of its own.
pub(super) const N_SETS: usize = 7;
/// The set that ignores the text of the session.
const WITHOUT_TEXT: usize = N_SETS - 2;
/// The set from whose weights new sets start.
const GENERAL: usize = N_SETS - 1;

/// Kinds of knowledge about the text of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownText {
    /// No text.
    Nothing,
    /// The tools used after similar texts.
    Likeness,
    /// Also scores of the fit of tools.
    Fits,
}

/// The contexts that choose the weights of a prediction. The kind of knowledge about a text is part
/// of each but one: otherwise weights learned with a text would dominate predictions without one.
/// The other one chooses the weights of the set that ignores the text. The last of `sets` depends on
/// this kind alone. New sets start from its weights, and it starts from the weights without a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightContexts {
    pub(super) sets: [u64; N_SETS],
    pub(super) place: u64,
    without_text: u64,
}

impl WeightContexts {
    /// Returns the contexts. `place` is the position in the session (0: before the first call, 1:
    /// before the fourth, 2: later). `n_used` is the number of different tools. `knowledge` is the
    /// amount of data about the next tool.
    pub(super) fn new(
        place: u64,
        text: KnownText,
        server: Option<u32>,
        tool: Option<u32>,
        n_used: u64,
        knowledge: u64,
    ) -> Self {
        let number = |number: Option<u32>| number.map_or(0, |number| u64::from(number) + 1);
        let text = match text {
            KnownText::Nothing => 0,
            KnownText::Likeness => 1,
            KnownText::Fits => 2,
        };
        let chosen = |set: u64, by: u64| mix_hash(set, 3 * by + text);
        Self {
            sets: [
                chosen(1, place),
                chosen(2, number(server)),
                chosen(3, n_used.min(9)),
                chosen(4, knowledge),
                chosen(5, number(tool)),
                mix_hash(8, place),
                chosen(6, 0),
            ],
            place: chosen(7, place),
            without_text: mix_hash(6, 0),
        }
    }
}

/// Distributions over a set of tools, as logarithms: one for each set of weights, their pool, and
/// the mean of the pool and the mean of the sets.
#[derive(Clone, Debug, Default)]
pub(super) struct MixtureOutput {
    parts: FeatureRows,
    pooled: Vec<f64>,
    pub(super) log_p: Vec<f64>,
}

/// Log-linear mixes with differently chosen weights, and a log-linear mix of their outputs (a
/// network of two layers, as in Mahoney 2005, for more than two outcomes). The result is averaged
/// with the mean of the first layer, so that a tool that only one set finds likely stays possible.
/// Both weigh the sets by their past performance. One set ignores the text of the session: with a
/// text, the tools that are likely without it stay possible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Mixture {
    sets: Vec<Softmax>,
    pool: Softmax,
    shares: SetShares,
}

impl Mixture {
    const POOL_RATE: f64 = 0.02;
    /// Share of the mean of the sets. The pool alone is as sharp as its sharpest set, and
    /// forecasts were better with the mean on every recorded stream.
    const MEAN: f64 = 0.5;

    /// `text_rows` are the rows that follow from the text of the session alone.
    fn new(start: &[f64], n_positive: usize, text_rows: &[usize], rate: f64) -> Self {
        let even = vec![1.0 / to_f64(N_SETS); N_SETS];
        let set = Softmax::new(start.to_vec(), n_positive, rate);
        let mut sets = vec![set.clone(); N_SETS];
        sets[WITHOUT_TEXT] = set.without_rows(text_rows);
        Self {
            sets,
            pool: Softmax::new(even, N_SETS, Self::POOL_RATE),
            shares: SetShares::default(),
        }
    }

    /// Returns the weights that a set uses.
    pub(super) fn weights(&self, set: usize, contexts: &WeightContexts) -> Cow<'_, [f64]> {
        let softmax = &self.sets[set];
        match softmax.weights(contexts.sets[set]) {
            Some(weights) => Cow::Borrowed(weights),
            None => Cow::Owned(softmax.mask_ignored(self.initial_weights(contexts))),
        }
    }

    /// Returns the share of each set in the pool.
    pub(super) fn shares(&self, contexts: &WeightContexts) -> &[f64] {
        (self.pool.weights(contexts.place)).unwrap_or(self.pool.start())
    }

    pub(super) fn predict(&self, contexts: &WeightContexts, rows: &FeatureRows) -> MixtureOutput {
        let mut parts = FeatureRows::new(rows.n_columns(), N_SETS);
        if rows.n_columns() == 0 {
            return MixtureOutput::default();
        }
        for at in 0..N_SETS {
            parts.push(log_linear(&self.weights(at, contexts), rows).into_iter());
        }
        let pooled = log_linear(self.shares(contexts), &parts);
        let mut p: Vec<f64> = pooled
            .iter()
            .map(|l| (1.0 - Self::MEAN) * l.exp())
            .collect();
        let shares = self.shares.of(contexts.place);
        let shares = shares.unwrap_or(self.pool.start());
        for (part, share) in parts.each().zip(shares) {
            for (p, l) in p.iter_mut().zip(part) {
                *p += Self::MEAN * share * l.exp();
            }
        }
        let log_p = p.iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect();
        MixtureOutput {
            parts,
            pooled,
            log_p,
        }
    }

    fn learn(
        &mut self,
        contexts: &WeightContexts,
        rows: &FeatureRows,
        mixed: &MixtureOutput,
        hit: usize,
    ) {
        let fresh = self.initial_weights(contexts).to_vec();
        let even = self.pool.start().to_vec();
        let hits: Vec<f64> = mixed.parts.each().map(|part| part[hit]).collect();
        self.shares.learn(contexts.place, &hits);
        (self.pool).learn(contexts.place, &even, &mixed.parts, &mixed.pooled, hit);
        for ((at, softmax), part) in (0..).zip(&mut self.sets).zip(mixed.parts.each()) {
            let context: u64 = contexts.sets[at];
            softmax.learn(context, &fresh, rows, part, hit);
        }
    }

    fn initial_weights(&self, contexts: &WeightContexts) -> &[f64] {
        let general = &self.sets[GENERAL];
        (general.weights(contexts.sets[GENERAL]))
            .or_else(|| general.weights(contexts.without_text))
            .unwrap_or(general.start())
    }

    fn is_sound(&self, n_rows: usize) -> bool {
        self.sets.len() == N_SETS
            && self.sets.iter().all(|set| set.is_sound(n_rows))
            && self.pool.is_sound(N_SETS)
            && self.shares.is_sound(N_SETS)
    }
}

/// All learned parameters of the mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Mixers {
    /// For tools that the session has not used yet: experts and features.
    pub(super) first: Mixture,
    /// For tools that it has used: experts only.
    pub(super) again: Mixture,
    pub(super) gate: Gate,
}

/// The inputs of the mix for a prediction.
#[derive(Clone, Debug)]
pub(super) struct MixInputs {
    pub(super) contexts: WeightContexts,
    /// The candidates that the session has not used yet, ascending.
    pub(super) new: Vec<usize>,
    /// Logarithms of the experts, then the features, over `new`.
    pub(super) new_rows: FeatureRows,
    /// The candidates that the session has used, ascending.
    pub(super) used: Vec<usize>,
    /// Logarithms of the experts over `used`.
    pub(super) used_rows: FeatureRows,
    pub(super) gate_inputs: Vec<f64>,
}

/// The output of the mix for a scene.
#[derive(Clone, Debug)]
pub(super) struct MixOutput {
    /// The probability that a tool of the session is used again.
    pub(super) repeat: f64,
    pub(super) first: MixtureOutput,
    pub(super) again: MixtureOutput,
}

impl Mixers {
    const RATE: f64 = 0.06;
    const GATE_RATE: f64 = 0.05;

    pub(super) fn new() -> Self {
        let starts: Vec<(f64, f64, f64)> = (Expert::ALL.iter())
            .map(|expert| expert.start_weights())
            .collect();
        let again: Vec<f64> = starts.iter().map(|(_, again, _)| *again).collect();
        let repeat: Vec<f64> = starts.iter().map(|(.., repeat)| *repeat).collect();
        let text_experts = (0..).zip(Expert::ALL);
        let text_experts = text_experts.filter(|(_, expert)| expert.reads_text());
        let text_experts: Vec<usize> = text_experts.map(|(row, _)| row).collect();
        let text_features = (starts.len()..).zip(Feature::ALL);
        let text_features = text_features.filter(|(_, (feature, _))| feature.reads_text());
        let text_rows: Vec<usize> = (text_experts.iter().copied())
            .chain(text_features.map(|(row, _)| row))
            .collect();
        let features = Feature::ALL.iter().map(|(_, start)| *start);
        let first: Vec<f64> = (starts.iter().map(|(first, ..)| *first))
            .chain(features)
            .collect();
        Self {
            first: Mixture::new(&first, starts.len(), &text_rows, Self::RATE),
            again: Mixture::new(&again, starts.len(), &text_experts, Self::RATE),
            gate: Gate::new(&repeat, Self::GATE_RATE),
        }
    }

    pub(super) fn predict(&self, scene: &MixInputs) -> MixOutput {
        let repeat = match (scene.used.is_empty(), scene.new.is_empty()) {
            (true, _) => 0.0,
            (false, true) => 1.0,
            (false, false) => self.gate.predict(scene.contexts.place, &scene.gate_inputs),
        };
        MixOutput {
            repeat,
            first: self.first.predict(&scene.contexts, &scene.new_rows),
            again: self.again.predict(&scene.contexts, &scene.used_rows),
        }
    }

    /// Learns the called tool. A tool that is not a candidate is ignored.
    pub(super) fn learn(&mut self, scene: &MixInputs, outcome: &MixOutput, slot: usize) {
        let first = scene.new.binary_search(&slot);
        let again = scene.used.binary_search(&slot);
        if first.is_err() && again.is_err() {
            return;
        }
        if !scene.used.is_empty() && !scene.new.is_empty() {
            let (place, inputs) = (scene.contexts.place, &scene.gate_inputs);
            (self.gate).learn(place, inputs, outcome.repeat, again.is_ok());
        }
        if let Ok(hit) = first {
            (self.first).learn(&scene.contexts, &scene.new_rows, &outcome.first, hit);
        }
        if let Ok(hit) = again {
            (self.again).learn(&scene.contexts, &scene.used_rows, &outcome.again, hit);
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        let n = Expert::ALL.len();
        self.first.is_sound(n + Feature::ALL.len())
            && self.again.is_sound(n)
            && self.gate.is_sound(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_likely_in_one_set_of_weights_stays_possible() {
        let mut rows = FeatureRows::new(2, 1);
        for row in [[0.0, -8.0], [-8.0, 0.0]] {
            rows.push(row.into_iter());
        }
        let mut mixture = Mixture::new(&[0.5, 0.5], 2, &[], 0.3);
        let seen = |tool| WeightContexts::new(2, KnownText::Nothing, Some(0), Some(tool), 1, 0);
        for call in 0..400 {
            // Column 1 after tool 1, and column 0 after all others.
            let (contexts, hit) = if call % 4 == 0 {
                (seen(1), 1)
            } else {
                (seen(2), 0)
            };
            let mixed = mixture.predict(&contexts, &rows);
            mixture.learn(&contexts, &rows, &mixed, hit);
        }
        let mixed = mixture.predict(&seen(1), &rows);
        let p: Vec<f64> = mixed.log_p.iter().map(|l| l.exp()).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (column, p) in p.iter().enumerate() {
            let parts = mixed.parts.each().map(|part| part[column].exp());
            let least = Mixture::MEAN * SetShares::SPREAD * parts.sum::<f64>() / to_f64(N_SETS);
            assert!(*p > least, "{p} {least}");
        }
        assert!(mixed.pooled != mixed.log_p);
    }

    #[test]
    fn one_set_ignores_the_rows_of_the_text() {
        let mut rows = FeatureRows::new(2, 2);
        for row in [[0.0, -3.0], [-3.0, 0.0]] {
            rows.push(row.into_iter());
        }
        let mut mixture = Mixture::new(&[0.5, 0.5], 2, &[1], 0.3);
        let contexts = WeightContexts::new(2, KnownText::Fits, Some(0), Some(1), 1, 0);
        for _ in 0..50 {
            let mixed = mixture.predict(&contexts, &rows);
            mixture.learn(&contexts, &rows, &mixed, 1);
        }
        // Only the ignored row speaks for the called column.
        let mixed = mixture.predict(&contexts, &rows);
        for (set, part) in mixed.parts.each().enumerate() {
            assert_eq!(part[1].exp() > 0.6, set != WITHOUT_TEXT, "{set} {part:?}");
        }
    }
}
