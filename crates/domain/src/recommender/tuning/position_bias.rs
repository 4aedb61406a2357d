//! How far people look down a list.

use super::examples::Example;
use super::real;
use crate::recommender::factors::Factor;

/// What speaks for a choice: the factors of a tool, and how far up it stands.
const N: usize = Factor::N + 1;
/// How many steps the estimate takes.
const N_STEPS: usize = 300;
/// The precision of the prior, which is that nothing matters: hardly any, or what people like would be
/// taken for where they look.
const PRIOR: f64 = 0.01;
/// The most that one choice may stand for.
const MAX_WEIGHT: f64 = 10.0;

/// How fast the probability that somebody looks at a place falls with its number: the k-th is looked
/// at k to the power of minus this as often as the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PositionBias(pub(super) f64);

impl PositionBias {
    /// All places are looked at alike.
    pub(super) const NONE: Self = Self(0.0);
    /// The most that is believed.
    const MOST: f64 = 2.0;

    /// Returns the bias that makes the choices of the examples most likely, together with whatever
    /// the factors are worth to those who chose: a conditional logit model (`McFadden` 1974), in which
    /// the logarithm of its place speaks against a tool. People who choose tools because they stand
    /// high are told from people who choose the tools that rightly stand there by lists in which the
    /// one goes without the other.
    pub(super) fn of(examples: &[Example]) -> Self {
        let choices: Vec<Choice> = examples.iter().map(Choice::of).collect();
        let curvature = PRIOR + choices.iter().map(Choice::curvature).sum::<f64>();
        let (mut worth, mut ahead) = ([0.0; N], [0.0; N]);
        for step in 0..N_STEPS {
            let mut slope = ahead.map(|worth| -PRIOR * worth);
            for choice in &choices {
                choice.add_slope(&ahead, &mut slope);
            }
            let before = worth;
            worth = ahead;
            add(&mut worth, &slope, 1.0 / curvature);
            // Further on in the direction of the last step (Nesterov 1983), which needs far fewer steps.
            ahead = worth;
            let momentum = real(step) / real(step + 3);
            add(&mut ahead, &worth, momentum);
            add(&mut ahead, &before, -momentum);
        }
        Self(worth[Factor::N].clamp(0.0, Self::MOST))
    }

    /// Returns how many choices one at this place, from 0, stands for.
    pub(super) fn weight(self, place: usize) -> f64 {
        real(place + 1).powf(self.0).min(MAX_WEIGHT)
    }
}

/// What was chosen from.
struct Choice {
    tools: Vec<[f64; N]>,
    /// How many tools were chosen, and the sum of what spoke for them.
    n_chosen: f64,
    chosen: [f64; N],
}

impl Choice {
    fn of(example: &Example) -> Self {
        let mut choice = Self {
            tools: Vec::with_capacity(example.tools.len()),
            n_chosen: 0.0,
            chosen: [0.0; N],
        };
        for (place, tool) in example.tools.iter().enumerate() {
            let mut parts = [0.0; N];
            parts[..Factor::N].copy_from_slice(tool.factors.values());
            parts[Factor::N] = -real(place + 1).ln();
            // What was rated badly was chosen before.
            if tool.value.abs() > 0.0 {
                choice.n_chosen += 1.0;
                add(&mut choice.chosen, &parts, 1.0);
            }
            choice.tools.push(parts);
        }
        choice
    }

    /// Returns what the curvature of the likelihood is below: a quarter of the largest squared
    /// distance of two tools, which is below twice the one from the first to the farthest.
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

    /// Adds the slope of the logarithm of the likelihood: what was chosen, less what was expected.
    fn add_slope(&self, worth: &[f64; N], slope: &mut [f64; N]) {
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

fn add(sum: &mut [f64; N], parts: &[f64; N], times: f64) {
    for (sum, part) in sum.iter_mut().zip(parts) {
        *sum += times * part;
    }
}
