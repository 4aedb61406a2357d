//! The outcome model of the doubly robust estimate: ridge regression on the features of a session
//! and the size of its list, cross-fitted.
//!
//! The model of a fold solves `(A + λ D) β = b` with `A = Σ φ φᵀ` and `b = Σ φ y` over the sessions
//! of all other folds (Hoerl and Kennard 1970, <https://doi.org/10.1080/00401706.1970.10488634>).
//! `φ(x, a)` has a constant, the standardised features, an indicator of the size, and the product of
//! each feature with the standardised logarithm of the size. `D` is the identity without the
//! constant.

use std::collections::BTreeMap;

use riglm_domain::num::to_f64;
use riglm_domain::selection::ListSize;

use super::log::{ChoiceLog, LoggedChoice, OutcomeMeasure};

/// The penalty λ of each coefficient, in sessions: features are standardised, so a coefficient with
/// the evidence of one session is halved.
const PENALTY: f64 = 1.0;
/// The penalty of the constant. It only keeps the equations solvable without any session.
const CONSTANT_PENALTY: f64 = 1e-9;

/// A model of each fold, fitted on the other folds.
pub(super) struct OutcomeModel {
    design: Design,
    /// By fold.
    coefficients: Vec<Vec<f64>>,
}

impl OutcomeModel {
    /// Fits a model for each of `n_folds` folds; `folds` has the fold of each session.
    pub(super) fn fit(
        log: &ChoiceLog,
        measure: OutcomeMeasure,
        folds: &[usize],
        n_folds: usize,
    ) -> Self {
        let design = Design::of(log);
        let mut of_folds = vec![NormalEquations::new(design.width()); n_folds];
        let mut row = Vec::new();
        for (session, fold) in log.choices().iter().zip(folds) {
            design.fill(session, session.choice.size, &mut row);
            of_folds[*fold].add(&row, measure.of(&session.outcome));
        }
        let mut total = NormalEquations::new(design.width());
        for fold in &of_folds {
            total.combine(fold, 1.0);
        }
        let coefficients = of_folds.iter().map(|fold| {
            let mut others = total.clone();
            others.combine(fold, -1.0);
            others.solve()
        });
        Self {
            coefficients: coefficients.collect(),
            design,
        }
    }

    /// Returns the predicted outcome of a session with a list of `size`, by the model of its fold.
    pub(super) fn predict(&self, session: &LoggedChoice, size: ListSize, fold: usize) -> f64 {
        let mut row = Vec::with_capacity(self.design.width());
        self.design.fill(session, size, &mut row);
        let terms = row.iter().zip(&self.coefficients[fold]);
        terms.map(|(value, coefficient)| value * coefficient).sum()
    }
}

/// Mean and standard deviation of a number.
#[derive(Clone, Copy, Debug)]
struct Scale {
    mean: f64,
    deviation: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = to_f64(values.clone().count()).max(1.0);
        let mean = values.clone().sum::<f64>() / n;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        let deviation = variance.sqrt();
        // A constant number says nothing; dividing by a deviation of 0 must not make it infinite.
        let is_usable = mean.is_finite() && deviation.is_finite() && deviation > 0.0;
        if is_usable {
            Self { mean, deviation }
        } else {
            Self {
                mean: 0.0,
                deviation: f64::INFINITY,
            }
        }
    }

    fn standardise(self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }
}

/// The regressors of a session with a list size.
struct Design {
    features: Vec<Scale>,
    /// The position of the indicator of each candidate, and the standardised logarithm of its size.
    sizes: BTreeMap<ListSize, (usize, f64)>,
}

impl Design {
    fn of(log: &ChoiceLog) -> Self {
        let choices = log.choices();
        let n_features = choices.first().map_or(0, |first| first.features.len());
        let features = (0..n_features)
            .map(|at| Scale::of(choices.iter().map(move |session| session.features[at])));
        let sizes = log.sizes();
        let longest = choices.iter().map(|session| session.n_tools).max();
        let logarithm = |size: &ListSize| match size {
            ListSize::Tools(n) => to_f64(*n).ln_1p(),
            ListSize::All => to_f64(longest.unwrap_or(0)).ln_1p(),
        };
        let log_size = Scale::of(sizes.iter().map(logarithm));
        let numbers = sizes.iter().enumerate();
        Self {
            features: features.collect(),
            sizes: numbers
                .map(|(at, size)| (*size, (at, log_size.standardise(logarithm(size)))))
                .collect(),
        }
    }

    fn width(&self) -> usize {
        1 + 2 * self.features.len() + self.sizes.len()
    }

    /// Replaces `row` with the regressors. The size must be a candidate in some session: only such
    /// sizes are shown, and a policy with another one has no estimate.
    fn fill(&self, session: &LoggedChoice, size: ListSize, row: &mut Vec<f64>) {
        let (at, length) = self.sizes[&size];
        row.clear();
        row.push(1.0);
        for (value, scale) in session.features.iter().zip(&self.features) {
            let value = scale.standardise(*value);
            row.push(value);
            row.push(value * length);
        }
        let indicators = row.len();
        row.resize(self.width(), 0.0);
        row[indicators + at] = 1.0;
    }
}

/// The sums `A` (lower triangle, row by row) and `b`.
#[derive(Clone, Debug)]
struct NormalEquations {
    width: usize,
    matrix: Vec<f64>,
    vector: Vec<f64>,
}

impl NormalEquations {
    fn new(width: usize) -> Self {
        Self {
            width,
            matrix: vec![0.0; width * width],
            vector: vec![0.0; width],
        }
    }

    fn add(&mut self, row: &[f64], outcome: f64) {
        for (at, value) in row.iter().enumerate() {
            // Indicators are mostly 0.
            if value.abs() > 0.0 {
                let sums = &mut self.matrix[at * self.width..][..=at];
                for (sum, other) in sums.iter_mut().zip(row) {
                    *sum += value * other;
                }
                self.vector[at] += value * outcome;
            }
        }
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        for (sum, value) in self.matrix.iter_mut().zip(&other.matrix) {
            *sum += sign * value;
        }
        for (sum, value) in self.vector.iter_mut().zip(&other.vector) {
            *sum += sign * value;
        }
    }

    /// Solves the penalised equations by the Cholesky decomposition. All coefficients are 0 if
    /// rounding leaves no positive definite matrix.
    fn solve(mut self) -> Vec<f64> {
        let width = self.width;
        for at in 0..width {
            let penalty = if at == 0 { CONSTANT_PENALTY } else { PENALTY };
            self.matrix[at * width + at] += penalty;
        }
        let lower = &mut self.matrix;
        for row in 0..width {
            for column in 0..=row {
                let products =
                    (0..column).map(|k| lower[row * width + k] * lower[column * width + k]);
                let rest = lower[row * width + column] - products.sum::<f64>();
                lower[row * width + column] = if column < row {
                    rest / lower[column * width + column]
                } else if rest.is_finite() && rest > 0.0 {
                    rest.sqrt()
                } else {
                    return vec![0.0; width];
                };
            }
        }
        let mut solution = self.vector;
        for row in 0..width {
            let known = (0..row).map(|k| lower[row * width + k] * solution[k]);
            solution[row] = (solution[row] - known.sum::<f64>()) / lower[row * width + row];
        }
        for row in (0..width).rev() {
            let known = (row + 1..width).map(|k| lower[k * width + row] * solution[k]);
            solution[row] = (solution[row] - known.sum::<f64>()) / lower[row * width + row];
        }
        solution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equations_are_solved() {
        // y = 3 + 2 x, for x of -1, 0 and 1.
        let mut equations = NormalEquations::new(2);
        for _ in 0..100_000 {
            for x in [-1.0, 0.0, 1.0] {
                equations.add(&[1.0, x], 3.0 + 2.0 * x);
            }
        }
        let solution = equations.clone().solve();
        assert!((solution[0] - 3.0).abs() < 1e-6 && (solution[1] - 2.0).abs() < 1e-4);
        let mut none = equations.clone();
        none.combine(&equations, -1.0);
        assert!(none.solve().iter().all(|value| value.abs() < 1e-12));
        let mut odd = NormalEquations::new(2);
        odd.add(&[1.0, f64::INFINITY], 1.0);
        assert_eq!(odd.solve().len(), 2);
    }
}
