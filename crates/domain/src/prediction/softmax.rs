//! Log-linear mixing (softmax regression), learned online.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A matrix of values by rows, each row over the same columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FeatureRows {
    n_columns: usize,
    values: Vec<f64>,
}

impl FeatureRows {
    /// Returns a matrix without rows, with capacity for `n_rows`.
    pub(super) fn new(n_columns: usize, n_rows: usize) -> Self {
        Self {
            n_columns,
            values: Vec::with_capacity(n_columns * n_rows),
        }
    }

    /// Adds a row. Missing columns are 0.
    pub(super) fn push(&mut self, row: impl Iterator<Item = f64>) {
        let end = self.values.len() + self.n_columns;
        self.values.extend(row.take(self.n_columns));
        self.values.resize(end, 0.0);
    }

    pub(super) fn n_columns(&self) -> usize {
        self.n_columns
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.n_columns.max(1))
    }
}

/// The weights of one context, with the sums of the squared gradients (`AdaGrad`, Duchi et al.
/// 2011).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Weights {
    of: Vec<f64>,
    squares: Vec<f64>,
}

/// Mixes rows of values into a distribution over the columns, with separate weights for each
/// context:
///
/// `p_t = exp(w . x_t) / sum_u exp(w . x_u)`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Softmax {
    start: Vec<f64>,
    /// This number of weights from the start is kept at 0 or above.
    n_positive: usize,
    rate: f64,
    /// The rows whose weights are always 0.
    ignored: Vec<usize>,
    weights: BTreeMap<u64, Weights>,
}

impl Softmax {
    /// Maximum number of contexts with separate weights.
    const MAX_CONTEXTS: usize = 1_000;
    /// Initial sum of squared gradients. Larger values make the first steps smaller. Small first
    /// steps, because the initial weights are good already.
    const FIRST_SQUARE: f64 = 1.0;

    pub(super) fn new(start: Vec<f64>, n_positive: usize, rate: f64) -> Self {
        Self {
            start,
            n_positive,
            rate,
            ignored: Vec::new(),
            weights: BTreeMap::new(),
        }
    }

    /// Returns the same mix, but without these rows.
    pub(super) fn without_rows(mut self, rows: &[usize]) -> Self {
        self.ignored = rows.to_vec();
        self.start = self.mask_ignored(&self.start);
        self
    }

    /// Returns the weights with zeros for the ignored rows.
    pub(super) fn mask_ignored(&self, weights: &[f64]) -> Vec<f64> {
        let mut weights = weights.to_vec();
        for row in &self.ignored {
            if let Some(weight) = weights.get_mut(*row) {
                *weight = 0.0;
            }
        }
        weights
    }

    /// Returns the weights of a context, if it has separate ones.
    pub(super) fn weights(&self, context: u64) -> Option<&[f64]> {
        let weights = self.weights.get(&context)?;
        Some(&weights.of)
    }

    /// Returns the initial weights.
    pub(super) fn start(&self) -> &[f64] {
        &self.start
    }

    /// Learns that column `hit` was called. `log_p` was the prediction. A new context starts with
    /// the weights `fresh`.
    pub(super) fn learn(
        &mut self,
        context: u64,
        fresh: &[f64],
        rows: &FeatureRows,
        log_p: &[f64],
        hit: usize,
    ) {
        let is_known = self.weights.contains_key(&context);
        if !is_known && self.weights.len() >= Self::MAX_CONTEXTS {
            return;
        }
        let fresh = if is_known {
            Vec::new()
        } else {
            self.mask_ignored(fresh)
        };
        let weights = self.weights.entry(context).or_insert_with(|| Weights {
            squares: vec![Self::FIRST_SQUARE; fresh.len()],
            of: fresh,
        });
        let p: Vec<f64> = log_p.iter().map(|log_p| log_p.exp()).collect();
        let numbers = weights.of.iter_mut().zip(&mut weights.squares);
        for (at, ((weight, square), row)) in numbers.zip(rows.each()).enumerate() {
            if self.ignored.contains(&at) {
                continue;
            }
            let gradient = row[hit] - dot(&p, row);
            *square += gradient * gradient;
            *weight += self.rate * gradient / square.sqrt();
            if at < self.n_positive {
                *weight = weight.max(0.0);
            }
        }
    }

    pub(super) fn is_sound(&self, n_rows: usize) -> bool {
        self.start.len() == n_rows
            && self.ignored.iter().all(|row| *row < n_rows)
            && self.weights.values().all(|weights| {
                let squares = weights.squares.iter();
                weights.of.len() == n_rows
                    && weights.squares.len() == n_rows
                    && weights.of.iter().all(|weight| weight.is_finite())
                    && squares
                        .into_iter()
                        .all(|square| square.is_finite() && *square > 0.0)
            })
    }
}

/// Returns the logarithms of the distribution over the columns for these weights.
pub(super) fn log_linear(weights: &[f64], rows: &FeatureRows) -> Vec<f64> {
    let mut z = vec![0.0; rows.n_columns()];
    for (weight, row) in weights.iter().zip(rows.each()) {
        if *weight != 0.0 {
            for (z, value) in z.iter_mut().zip(row) {
                *z += weight * value;
            }
        }
    }
    log_normalise(&mut z);
    z
}

/// Returns the dot product. The order of its four partial sums is fixed, so that the result is the
/// same on every machine.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = (a.remainder().iter().zip(b.remainder()))
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Normalises logarithms, so that their exponentials sum to 1.
pub(super) fn log_normalise(z: &mut [f64]) {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = z.iter().map(|z| (z - top).exp()).sum();
    let shift = top + sum.ln();
    for z in z {
        *z -= shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[&[f64]]) -> FeatureRows {
        let mut rows = FeatureRows::new(3, of.len());
        for row in of {
            rows.push(row.iter().copied());
        }
        rows
    }

    #[test]
    fn informative_features_gain_weight_and_misleading_ones_lose_it() {
        let mut mix = Softmax::new(vec![0.5, 0.5, 0.0], 2, 0.1);
        let rows = rows(&[&[1.0, 0.0, 0.0], &[0.0, 1.0, 1.0], &[0.0, 0.0, 1.0]]);
        let fresh = mix.start().to_vec();
        for _ in 0..100 {
            let weights = mix.weights(7).unwrap_or(&fresh).to_vec();
            let log_p = log_linear(&weights, &rows);
            mix.learn(7, &fresh, &rows, &log_p, 0);
        }
        let weights = mix.weights(7).unwrap();
        assert!(
            weights[0] > 1.0 && weights[1] < 1e-9 && weights[2] < -0.1,
            "{weights:?}"
        );
        assert_eq!(mix.weights(8), None);
        assert!(mix.is_sound(3) && !mix.is_sound(2));
    }

    #[test]
    fn ignored_rows_have_no_weight() {
        let mut mix = Softmax::new(vec![0.5, 0.5], 2, 0.1).without_rows(&[1]);
        let rows = rows(&[&[1.0, 0.0, 0.0], &[2.0, 0.0, 0.0]]);
        let log_p = log_linear(mix.start(), &rows);
        mix.learn(7, &[0.5, 0.5], &rows, &log_p, 0);
        let weights = mix.weights(7).unwrap();
        assert!(weights[0] > 0.5, "{weights:?}");
        assert_eq!((weights[1], mix.start()), (0.0, &[0.5, 0.0][..]));
    }

    #[test]
    fn distributions_of_large_values_sum_to_one() {
        let log_p = log_linear(&[3.0], &rows(&[&[1e6, -1e6]]));
        let sum: f64 = log_p.iter().map(|log_p| log_p.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12 && log_p.len() == 3);
    }
}
