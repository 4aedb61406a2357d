//! What the best weights are on examples: those with which tools stand highest that turned out well.

use super::bounds::WeightBounds;
use super::examples::{Example, JudgedTool};
use super::position_bias::PositionBias;
use super::real;
use crate::recommender::factors::{Factor, FactorWeights};

/// How sharply a difference of scores tells which of two tools stands higher.
const SHARPNESS: f64 = 10.0;
/// How many steps the search takes at most.
const MAX_STEPS: usize = 300;
/// A step that moves no weight by more than this is the last one.
const LAST_STEP: f64 = 1e-7;

/// Two tools of which the first should stand higher.
struct Pair {
    /// How much it counts.
    weight: f64,
    /// By how much the factors of the first are higher, times [`SHARPNESS`].
    difference: [f64; Factor::N],
}

/// Returns the weights within the bounds that minimise the mean of the logistic losses of all pairs
/// of which one tool turned out better than the other, which bounds the sum of the ranks of tools
/// that turned out well (Joachims, Swaminathan and Schnabel 2017, section 5, with the logistic loss
/// in place of the hinge loss). Projected gradient descent; the loss is convex.
pub(super) fn minimised(
    examples: &[Example],
    bias: PositionBias,
    present: &FactorWeights,
    bounds: &WeightBounds,
) -> FactorWeights {
    let pairs: Vec<Pair> = (examples.iter())
        .flat_map(|example| pairs_of(example, bias))
        .collect();
    // The largest curvature that the loss can have: a step of its inverse never leads up.
    let curvature: f64 = (pairs.iter())
        .map(|pair| {
            let squares = pair.difference.iter().map(|part| part * part);
            pair.weight * squares.sum::<f64>() / 4.0
        })
        .sum();
    let mut weights = bounds.nearest(*present.values());
    if curvature <= 0.0 {
        return bounds.rounded_from(weights, present);
    }
    for _ in 0..MAX_STEPS {
        let mut moved = weights;
        let gradient = gradient_at(&pairs, &weights);
        for (weight, slope) in moved.iter_mut().zip(gradient) {
            *weight -= slope / curvature;
        }
        let moved = bounds.nearest(moved);
        let farthest = (weights.iter().zip(moved))
            .map(|(before, after)| (before - after).abs())
            .fold(0.0, f64::max);
        weights = moved;
        if farthest < LAST_STEP {
            break;
        }
    }
    bounds.rounded_from(weights, present)
}

fn gradient_at(pairs: &[Pair], weights: &[f64; Factor::N]) -> [f64; Factor::N] {
    let mut gradient = [0.0; Factor::N];
    for pair in pairs {
        let margin: f64 = (pair.difference.iter().zip(weights))
            .map(|(difference, weight)| difference * weight)
            .sum();
        let slope = -pair.weight / (1.0 + margin.exp());
        for (sum, difference) in gradient.iter_mut().zip(pair.difference) {
            *sum += slope * difference;
        }
    }
    gradient
}

/// Returns the pairs of each tool that something was said of, beside all those that turned out
/// otherwise; together they count as much as what was said.
fn pairs_of(example: &Example, bias: PositionBias) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (place, tool) in example.tools.iter().enumerate() {
        let is_worse_than = |a: &JudgedTool, b: &JudgedTool| a.value < b.value;
        let others: Vec<(&JudgedTool, &JudgedTool)> = (example.tools.iter())
            .filter_map(|other| {
                if tool.value > 0.0 && is_worse_than(other, tool) {
                    Some((tool, other))
                } else if tool.value < 0.0 && is_worse_than(tool, other) {
                    Some((other, tool))
                } else {
                    None
                }
            })
            .collect();
        let weight = tool.value.abs() * bias.weight(place) / real(others.len().max(1));
        pairs.extend(others.into_iter().map(|(better, worse)| {
            let mut difference = *better.factors.values();
            for (part, worse) in difference.iter_mut().zip(worse.factors.values()) {
                *part = SHARPNESS * (*part - worse);
            }
            Pair { weight, difference }
        }));
    }
    pairs
}
