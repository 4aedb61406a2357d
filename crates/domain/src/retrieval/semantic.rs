//! Semantic search: the vectors of tools, and their cosines with a query.

use std::collections::BTreeMap;

use crate::num::to_f64;

/// The vectors of a tool: one of the whole text, and one of its purpose alone. In a long
/// description the purpose has little weight; the second vector corrects that. A vector that could
/// not be made is empty, and the other one counts alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolVectors {
    /// The vector of [`ToolText::full_text`](super::ToolText::full_text).
    pub full: Vec<f32>,
    /// The vector of [`ToolText::short_text`](super::ToolText::short_text).
    pub short: Vec<f32>,
}

/// The common part of all vectors of a model, independent of the text. It is subtracted before
/// vectors are compared, because otherwise the cosines of the E5 family lie in a narrow band.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorCentre(Vec<f32>);

impl VectorCentre {
    /// Returns the mean of the vectors; `None` without vectors. Vectors of another length than the
    /// first one are ignored.
    #[must_use]
    pub fn of<'a>(vectors: impl IntoIterator<Item = &'a [f32]>) -> Option<Self> {
        let mut vectors = vectors.into_iter();
        let mut sum: Vec<f64> = vectors.next()?.iter().copied().map(f64::from).collect();
        let mut n = 1_usize;
        let dimension = sum.len();
        for vector in vectors.filter(|vector| vector.len() == dimension) {
            n += 1;
            for (sum, component) in sum.iter_mut().zip(vector) {
                *sum += f64::from(*component);
            }
        }
        Some(Self(
            sum.iter().map(|sum| narrow(sum / to_f64(n))).collect(),
        ))
    }

    /// Returns the centre that changes no vector.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns this mean of `n` vectors, moved towards another mean as if `weight` more vectors had
    /// it. A mean of few vectors consists mostly of these vectors.
    #[must_use]
    pub fn shrink_towards(&self, n: usize, towards: &Self, weight: f64) -> Self {
        if towards.0.len() != self.0.len() {
            return self.clone();
        }
        let n = to_f64(n);
        let mixed = self.0.iter().zip(&towards.0).map(|(own, other)| {
            narrow((n * f64::from(*own) + weight * f64::from(*other)) / (n + weight))
        });
        Self(mixed.collect())
    }

    /// Returns the dimension of the averaged vectors; 0 for [`Self::none`].
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// Returns the vector without the common part, with length 1. A vector of another dimension, or
    /// without a remainder, stays unchanged.
    #[must_use]
    pub fn apply(&self, vector: &[f32]) -> Vec<f32> {
        if vector.len() != self.0.len() {
            return vector.to_vec();
        }
        let mut rest: Vec<f32> = vector
            .iter()
            .zip(&self.0)
            .map(|(own, mean)| own - mean)
            .collect();
        let length = dot_product(&rest, &rest).sqrt();
        // A remainder of almost zero has no direction.
        if length < 1e-6 {
            return vector.to_vec();
        }
        for component in &mut rest {
            *component /= length;
        }
        rest
    }
}

/// The centred vectors of a catalog.
#[derive(Debug)]
pub(super) struct SemanticIndex {
    model: String,
    dimension: usize,
    /// One row for each tool; zeros in place of a missing vector.
    full: Vec<f32>,
    short: Vec<f32>,
    /// The number of vectors of each tool, at most two.
    n_vectors: Vec<u8>,
}

impl SemanticIndex {
    /// Builds the index. Vectors with another dimension than most have, or with components that are
    /// not finite, count as missing.
    pub(super) fn new(model: &str, vectors: &[ToolVectors], centre: &VectorCentre) -> Self {
        let dimension = common_dimension(vectors, centre);
        let n_components = vectors.len() * dimension;
        let mut index = Self {
            model: model.into(),
            dimension,
            full: Vec::with_capacity(n_components),
            short: Vec::with_capacity(n_components),
            n_vectors: Vec::with_capacity(vectors.len()),
        };
        for vectors in vectors {
            let mut n_vectors = 0;
            for (rows, vector) in [
                (&mut index.full, &vectors.full),
                (&mut index.short, &vectors.short),
            ] {
                let is_whole = vector.len() == dimension && vector.iter().all(|x| x.is_finite());
                if is_whole {
                    n_vectors += 1;
                    rows.append(&mut centre.apply(vector));
                } else {
                    rows.resize(rows.len() + dimension, 0.0);
                }
            }
            index.n_vectors.push(n_vectors);
        }
        index
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Returns for each tool the mean cosine of its vectors with a centred query, `None` for a tool
    /// without vectors. The result is empty if the query has another dimension.
    pub(super) fn cosines(&self, query: &[f32]) -> Vec<Option<f64>> {
        if query.len() != self.dimension || self.dimension == 0 {
            return Vec::new();
        }
        let full = self.full.chunks_exact(self.dimension);
        let rows = full.zip(self.short.chunks_exact(self.dimension));
        rows.zip(&self.n_vectors)
            .map(|((full, short), n_vectors)| {
                let sum = f64::from(dot_product(full, query) + dot_product(short, query));
                (*n_vectors > 0).then(|| sum / f64::from(*n_vectors))
            })
            .collect()
    }
}

/// Returns the most common dimension; of equally common ones, the dimension of the centre. Returns
/// 0 without vectors.
fn common_dimension(vectors: &[ToolVectors], centre: &VectorCentre) -> usize {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for vector in vectors.iter().flat_map(|both| [&both.full, &both.short]) {
        if !vector.is_empty() {
            *counts.entry(vector.len()).or_default() += 1;
        }
    }
    let most = counts
        .into_iter()
        .max_by_key(|(dimension, count)| (*count, *dimension == centre.dimension()));
    most.map_or(0, |(dimension, _)| dimension)
}

/// Returns the inner product of two vectors of the same length.
pub(super) fn dot_product(a: &[f32], b: &[f32]) -> f32 {
    // Eight separate sums let the compiler use wide registers. With one sum it may not, since that
    // would change the order of the additions.
    let mut sums = [0.0_f32; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = (a_chunks.remainder().iter())
        .zip(b_chunks.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Returns the distance of each value from the mean in standard deviations; zeros if all are equal.
pub(super) fn standard_scores(values: &[f64]) -> Vec<f64> {
    let n = to_f64(values.len().max(1));
    let mean = values.iter().sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / n;
    let deviation = variance.sqrt();
    if deviation < 1e-9 {
        return vec![0.0; values.len()];
    }
    values
        .iter()
        .map(|value| (value - mean) / deviation)
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a component needs no more precision"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_all_vectors_is_subtracted() {
        let (a, b) = ([0.8_f32, 0.6], [0.8_f32, -0.6]);
        let centre = VectorCentre::of([&a[..], &b[..]]).unwrap();
        assert_eq!(centre.apply(&a), [0.0, 1.0]);
        assert_eq!(centre.apply(&b), [0.0, -1.0]);
        assert_eq!(
            centre.apply(&[0.8, 0.0]),
            [0.8, 0.0],
            "nothing is left of it"
        );
        assert_eq!(centre.apply(&[1.0]), [1.0], "another dimension");
        assert_eq!(VectorCentre::of([]), None);
    }

    #[test]
    fn a_mean_of_few_vectors_shrinks_towards_a_known_one() {
        let own = VectorCentre(vec![1.0, 0.0]);
        let known = VectorCentre(vec![0.0, 1.0]);
        assert_eq!(
            own.shrink_towards(30, &known, 10.0),
            VectorCentre(vec![0.75, 0.25])
        );
        assert_eq!(own.shrink_towards(30, &VectorCentre(vec![0.0]), 10.0), own);
    }

    #[test]
    fn dot_products_are_correct_for_any_length() {
        for n in 0..40_u8 {
            let a: Vec<f32> = (0..n).map(f32::from).collect();
            let expected: f32 = a.iter().map(|a| a * 2.0).sum();
            assert!((dot_product(&a, &vec![2.0; n.into()]) - expected).abs() < 1e-3);
        }
    }
}
