//! Position bias: the share of users who read down to a position of a list.

use super::examples::Example;
use crate::num::to_f64;
use crate::recommendation::factors::Factor;

/// The number of model inputs: the factors of a tool, and its position.
const N_INPUTS: usize = Factor::N + 1;
/// The number of steps of the estimate.
const N_STEPS: usize = 300;
/// The precision of the prior, whose mean is no influence. It is weak: a strong prior would take
/// the preferences of users for their position bias.
const PRIOR: f64 = 0.01;
/// The maximum weight of one choice.
const MAX_WEIGHT: f64 = 10.0;

/// The exponent of the decrease of attention with the position: position k is read k to the power
/// of minus this as often as the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PositionBias(pub(super) f64);

impl PositionBias {
    /// All positions are read equally often.
    pub(super) const NONE: Self = Self(0.0);
    /// The maximum of the estimate.
    const MAX_BIAS: f64 = 2.0;

    /// Returns the most likely bias for the choices of the examples, estimated together with the
    /// value of each factor to the users.
    ///
    /// The model is a conditional logit model (`McFadden` 1974), in which the logarithm of the
    /// position counts against a tool. Lists in which position and factors do not agree separate
    /// users who choose a tool for its position from users who choose it for its factors.
    pub(super) fn of(examples: &[Example]) -> Self {
        let choices: Vec<ObservedChoice> = examples.iter().map(ObservedChoice::of).collect();
        let curvature = PRIOR + choices.iter().map(ObservedChoice::curvature).sum::<f64>();
        let (mut worth, mut ahead) = ([0.0; N_INPUTS], [0.0; N_INPUTS]);
        for step in 0..N_STEPS {
            let mut slope = ahead.map(|worth| -PRIOR * worth);
            for choice in &choices {
                choice.add_slope(&ahead, &mut slope);
            }
            let before = worth;
            worth = ahead;
            add(&mut worth, &slope, 1.0 / curvature);
            // The next point lies further in the direction of the last step (Nesterov 1983), which
            // needs far fewer steps.
            ahead = worth;
            let momentum = to_f64(step) / to_f64(step + 3);
            add(&mut ahead, &worth, momentum);
            add(&mut ahead, &before, -momentum);
        }
        Self(worth[Factor::N].clamp(0.0, Self::MAX_BIAS))
    }

    /// Returns the number of choices that one choice at this position, from 0, stands for.
    pub(super) fn weight(self, place: usize) -> f64 {
        to_f64(place + 1).powf(self.0).min(MAX_WEIGHT)
    }
}

/// The tools of an example, and the chosen ones.
struct ObservedChoice {
    tools: Vec<[f64; N_INPUTS]>,
    /// The number of chosen tools, and the sum of their model inputs.
    n_chosen: f64,
    chosen: [f64; N_INPUTS],
}

impl ObservedChoice {
    fn of(example: &Example) -> Self {
        let mut choice = Self {
            tools: Vec::with_capacity(example.tools.len()),
            n_chosen: 0.0,
            chosen: [0.0; N_INPUTS],
        };
        for (place, tool) in example.tools.iter().enumerate() {
            let mut parts = [0.0; N_INPUTS];
            parts[..Factor::N].copy_from_slice(tool.factors.values());
            parts[Factor::N] = -to_f64(place + 1).ln();
            // A tool with a bad rating was chosen before.
            if tool.value.abs() > 0.0 {
                choice.n_chosen += 1.0;
                add(&mut choice.chosen, &parts, 1.0);
            }
            choice.tools.push(parts);
        }
        choice
    }

    /// Returns an upper bound for the curvature of the likelihood: a quarter of the largest squared
    /// distance of two tools, which is at most the squared distance from the first to the farthest.
    fn curvature(&self) -> f64 {
        let Some(first) = self.tools.first() else {
            return 0.0;
        };
        let distances = self.tools.iter().map(|tool| {
            let differences = tool.iter().zip(first).map(|(a, b)| (a - b) * (a - b));
            differences.sum::<f64>()
        });
        self.n_chosen * distances.fold(0.0, f64::max)
    }

    /// Adds the slope of the log likelihood: chosen values minus expected values.
    fn add_slope(&self, worth: &[f64; N_INPUTS], slope: &mut [f64; N_INPUTS]) {
        let scores = self.tools.iter().map(|tool| {
            let parts = tool.iter().zip(worth).map(|(part, worth)| part * worth);
            parts.sum::<f64>().exp()
        });
        let scores: Vec<f64> = scores.collect();
        let sum: f64 = scores.iter().sum();
        add(slope, &self.chosen, 1.0);
        for (tool, score) in self.tools.iter().zip(scores) {
            add(slope, tool, -self.n_chosen * score / sum);
        }
    }
}

fn add(sum: &mut [f64; N_INPUTS], parts: &[f64; N_INPUTS], times: f64) {
    for (sum, part) in sum.iter_mut().zip(parts) {
        *sum += times * part;
    }
}
