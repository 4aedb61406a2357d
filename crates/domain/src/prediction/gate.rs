//! The gate: the probability that the next call repeats a tool of the session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tables::repeat_keys;
use super::view::View;

/// A logistic mix of estimates, learned online, with separate weights for each context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gate {
    rate: f64,
    start: Vec<f64>,
    /// Weights with the sums of the squared gradients.
    weights: BTreeMap<u64, Vec<(f64, f64)>>,
}

/// Weight of the estimate of the wider context, in calls.
const SMOOTHING: f64 = 4.0;
/// Lower limit of a probability and of its complement.
const MARGIN: f64 = 1e-4;
/// Number of estimates that are made from counts alone.
pub(super) const N_COUNTED: usize = 4;
/// Initial weights of these estimates: see [`super::expert::Expert::start_weights`].
const COUNTED: [f64; N_COUNTED] = [-0.04, 0.01, 0.12, 0.17];
/// Initial weight of the constant.
const CONSTANT: f64 = 0.11;

/// Returns the inputs as log-odds: the estimates by the number of different tools, by the last
/// tool, by the last tool and the length of its run, and by the last two tools; then the mass that
/// each expert gives to the tools of the session; then a constant.
pub(super) fn inputs(view: &View<'_>, masses: &[f64]) -> Vec<f64> {
    let mut inputs = Vec::with_capacity(N_COUNTED + masses.len() + 1);
    let mut wider = 0.5;
    for (at, key) in repeat_keys(view.history).into_iter().enumerate() {
        let mut rate = wider;
        for node in view.nodes(key) {
            rate = (node.count(1) + SMOOTHING * rate) / (node.total() + SMOOTHING);
        }
        if at < 2 {
            wider = rate;
        }
        inputs.push(log_odds(rate));
    }
    inputs.resize(N_COUNTED, 0.0);
    inputs.extend(masses.iter().map(|mass| log_odds(*mass)));
    inputs.push(0.3);
    inputs
}

fn log_odds(p: f64) -> f64 {
    let p = p.clamp(MARGIN, 1.0 - MARGIN);
    (p / (1.0 - p)).ln()
}

impl Gate {
    const FIRST_SQUARE: f64 = 1.0;

    /// Returns a gate without learned data. `masses` are the initial weights of the masses of
    /// experts.
    pub(super) fn new(masses: &[f64], rate: f64) -> Self {
        Self {
            rate,
            start: [&COUNTED, masses, &[CONSTANT]].concat(),
            weights: BTreeMap::new(),
        }
    }

    /// Returns the probability of a repetition.
    pub(super) fn predict(&self, context: u64, inputs: &[f64]) -> f64 {
        let z: f64 = match self.weights.get(&context) {
            Some(weights) => (weights.iter().zip(inputs))
                .map(|((weight, _), input)| weight * input)
                .sum(),
            None => (self.start.iter().zip(inputs))
                .map(|(weight, input)| weight * input)
                .sum(),
        };
        (1.0 / (1.0 + (-z).exp())).clamp(MARGIN, 1.0 - MARGIN)
    }

    /// Learns whether the call was a repetition. `p` was the prediction.
    pub(super) fn learn(&mut self, context: u64, inputs: &[f64], p: f64, is_repeat: bool) {
        let weights = self.weights.entry(context).or_insert_with(|| {
            let start = self.start.iter();
            start.map(|weight| (*weight, Self::FIRST_SQUARE)).collect()
        });
        let error = f64::from(u8::from(is_repeat)) - p;
        for ((weight, square), input) in weights.iter_mut().zip(inputs) {
            let gradient = error * input;
            *square += gradient * gradient;
            *weight += self.rate * gradient / square.sqrt();
        }
    }

    pub(super) fn is_sound(&self, n_experts: usize) -> bool {
        let n = N_COUNTED + n_experts + 1;
        let is_sound = |(weight, square): &(f64, f64)| {
            weight.is_finite() && square.is_finite() && *square > 0.0
        };
        self.start.len() == n
            && (self.weights.values())
                .all(|weights| weights.len() == n && weights.iter().all(is_sound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_learns_to_trust_the_better_estimate() {
        let mut gate = Gate::new(&[0.0], 0.1);
        let inputs = |mass: f64| [0.0, 0.0, 0.0, 0.0, log_odds(mass), 0.3];
        for call in 0..400 {
            let is_repeat = call % 3 == 0;
            let inputs = inputs(if is_repeat { 0.8 } else { 0.2 });
            let p = gate.predict(1, &inputs);
            gate.learn(1, &inputs, p, is_repeat);
        }
        assert!(gate.predict(1, &inputs(0.8)) > 0.8);
        assert!(gate.predict(1, &inputs(0.2)) < 0.2);
        assert!(gate.is_sound(1) && !gate.is_sound(2));
    }
}
