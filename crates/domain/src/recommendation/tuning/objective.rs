//! The objective of tuning: the best weights on examples rank tools highest that turned out well.

use super::bounds::WeightBounds;
use super::examples::{Example, JudgedTool};
use super::position_bias::PositionBias;
use crate::num::to_f64;
use crate::recommendation::factors::{Factor, FactorWeights};

/// The factor on a difference of scores in the logistic loss: the higher, the sharper.
const SHARPNESS: f64 = 10.0;
/// The maximum number of steps of the search.
const MAX_STEPS: usize = 300;
/// The search ends after a step that moves no weight by more than this.
const LAST_STEP: f64 = 1e-7;

/// Two tools; the first one should rank higher.
struct ToolPair {
    weight: f64,
    /// The difference of the factors of the first tool to the second, times [`SHARPNESS`].
    difference: [f64; Factor::N],
}

/// Returns the weights within the bounds that minimise the mean of the logistic losses over all
/// pairs of a tool that turned out better and one that turned out worse.
///
/// This loss is an upper bound of the sum of the ranks of tools that turned out well (Joachims,
/// Swaminathan and Schnabel 2017, section 5, with the logistic loss in place of the hinge loss).
/// The method is projected gradient descent; the loss is convex.
pub(super) fn minimize_loss(
    examples: &[Example],
    bias: PositionBias,
    present: &FactorWeights,
    bounds: &WeightBounds,
) -> FactorWeights {
    let pairs: Vec<ToolPair> = (examples.iter())
        .flat_map(|example| pairs_of(example, bias))
        .collect();
    // The maximum curvature of the loss: a step of its inverse never increases the loss.
    let curvature: f64 = (pairs.iter())
        .map(|pair| {
            let squares = pair.difference.iter().map(|part| part * part);
            pair.weight * squares.sum::<f64>() / 4.0
        })
        .sum();
    let mut weights = bounds.project(*present.values());
    // Without pairs, or without differences between their tools, there is nothing to minimise.
    if curvature <= 0.0 {
        return bounds.round_near(weights, present);
    }
    for _ in 0..MAX_STEPS {
        let mut moved = weights;
        let gradient = gradient_at(&pairs, &weights);
        for (weight, slope) in moved.iter_mut().zip(gradient) {
            *weight -= slope / curvature;
        }
        let moved = bounds.project(moved);
        let farthest = (weights.iter().zip(moved))
            .map(|(before, after)| (before - after).abs())
            .fold(0.0, f64::max);
        weights = moved;
        if farthest < LAST_STEP {
            break;
        }
    }
    bounds.round_near(weights, present)
}

fn gradient_at(pairs: &[ToolPair], weights: &[f64; Factor::N]) -> [f64; Factor::N] {
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

/// Returns the pairs of each tool with feedback and all tools that turned out better or worse. The
/// pairs of a tool together weigh as much as its feedback.
fn pairs_of(example: &Example, bias: PositionBias) -> Vec<ToolPair> {
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
        let weight = tool.value.abs() * bias.weight(place) / to_f64(others.len().max(1));
        pairs.extend(others.into_iter().map(|(better, worse)| {
            let mut difference = *better.factors.values();
            for (part, worse) in difference.iter_mut().zip(worse.factors.values()) {
                *part = SHARPNESS * (*part - worse);
            }
            ToolPair { weight, difference }
        }));
    }
    pairs
}
