//! Embeddings: vectors that represent texts.

use serde::{Deserialize, Serialize};

/// A vector and the name of its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawEmbedding")]
pub struct Embedding {
    model: String,
    vector: Vec<f32>,
}

/// The reason for which a vector is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingError {
    /// The model has no name, or one over [`Embedding::MAX_MODEL_CHARS`].
    #[error(
        "the name of the model must have 1 to {max} characters",
        max = Embedding::MAX_MODEL_CHARS
    )]
    Model,
    /// The vector is empty or has more than [`Embedding::MAX_DIMENSION`] components.
    #[error("the vector must have 1 to {max} components", max = Embedding::MAX_DIMENSION)]
    Dimension,
    /// A component is infinite or not a number.
    #[error("component {index} of the vector is not a finite number")]
    NotFinite {
        /// Its position, from 0.
        index: usize,
    },
}

impl Embedding {
    /// The longest name of a model, in characters.
    pub const MAX_MODEL_CHARS: usize = 200;
    /// The largest dimension.
    pub const MAX_DIMENSION: usize = 8_192;

    /// Returns the vector of a model.
    ///
    /// # Errors
    ///
    /// Returns [`EmbeddingError`] for a model name that is empty or too long, for a vector that is
    /// empty or too long, and for components that are not finite.
    pub fn new(model: &str, vector: Vec<f32>) -> Result<Self, EmbeddingError> {
        if !(1..=Self::MAX_MODEL_CHARS).contains(&model.chars().count()) {
            return Err(EmbeddingError::Model);
        }
        if !(1..=Self::MAX_DIMENSION).contains(&vector.len()) {
            return Err(EmbeddingError::Dimension);
        }
        if let Some(index) = vector.iter().position(|component| !component.is_finite()) {
            return Err(EmbeddingError::NotFinite { index });
        }
        Ok(Self {
            model: model.into(),
            vector,
        })
    }

    /// Returns the same direction with the length 1; `None` if all components are 0 or too small to
    /// have a direction.
    #[must_use]
    pub fn to_unit_length(&self) -> Option<Self> {
        let squares = self.vector.iter().map(|it| f64::from(*it).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        if norm < f64::from(f32::MIN_POSITIVE) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "components are at most 1")]
        let scaled = |it: &f32| (f64::from(*it) / norm) as f32;
        Some(Self {
            model: self.model.clone(),
            vector: self.vector.iter().map(scaled).collect(),
        })
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the components.
    #[must_use]
    pub fn vector(&self) -> &[f32] {
        &self.vector
    }
}

// No component is NaN.
impl Eq for Embedding {}

// Makes deserialisation check stored vectors like new ones.
#[derive(Deserialize)]
struct RawEmbedding {
    model: String,
    vector: Vec<f32>,
}

impl TryFrom<RawEmbedding> for Embedding {
    type Error = EmbeddingError;

    fn try_from(unchecked: RawEmbedding) -> Result<Self, EmbeddingError> {
        Self::new(&unchecked.model, unchecked.vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_checked() {
        assert_eq!(Embedding::new("m", vec![1.0]).unwrap().vector(), [1.0]);
        let error = |model, vector| Embedding::new(model, vector).unwrap_err();
        assert_eq!(error("", vec![1.0]), EmbeddingError::Model);
        assert_eq!(error("m", vec![]), EmbeddingError::Dimension);
        assert_eq!(
            error("m", vec![0.0, f32::NAN]),
            EmbeddingError::NotFinite { index: 1 }
        );
    }

    #[test]
    fn vectors_are_scaled_to_the_length_1() {
        let scaled = |vector: &[f32]| {
            Embedding::new("m", vector.to_vec())
                .unwrap()
                .to_unit_length()
        };
        assert_eq!(
            scaled(&[3.0, 0.0, -4.0]).unwrap().vector(),
            [0.6, 0.0, -0.8]
        );
        let huge = scaled(&[f32::MAX, f32::MAX]).unwrap();
        assert!((huge.vector()[0] - 0.5_f32.sqrt()).abs() < 1e-6);
        assert_eq!(scaled(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_stored_vector_is_checked_too() {
        let read = |text| serde_json::from_str::<Embedding>(text);
        assert_eq!(
            read(r#"{"model":"m","vector":[0.5]}"#).unwrap(),
            Embedding::new("m", vec![0.5]).unwrap()
        );
        assert!(read(r#"{"model":"m","vector":[]}"#).is_err());
    }
}
