//! Text embedding: texts turned into vectors.

use std::fmt;

use async_trait::async_trait;
use strum::IntoStaticStr;

/// The purpose of a text. Models that were trained with prefixes put a different one before each
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TextRole {
    /// A search query.
    Query,
    /// The text of a tool, which is searched.
    Passage,
}

impl TextRole {
    /// Returns the name of the role, as used in the keys of stored vectors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reason why a text has no vector.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// The files of the model are missing, damaged, or in an unknown format.
    #[error("failed to load model {model}")]
    Load {
        /// The name of the model.
        model: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The endpoint does not answer, or refuses the request.
    #[error("the encoder of model {model} is unavailable")]
    Unavailable {
        /// The name of the model.
        model: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of the texts could not be encoded. Others may succeed.
    #[error("model {model} failed to encode a text")]
    Failed {
        /// The name of the model.
        model: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Turns texts into vectors whose inner product measures the similarity of their meanings.
///
/// Each text gets one vector, in the order of the texts. Vectors are finite, have length 1
/// (Euclidean norm, within 10⁻³) and all the same dimension. The same text in the same role has the
/// same vector, within 10⁻⁴ in each component, independent of the other texts in the request. Any
/// text has a vector, even the empty text. A text of a megabyte has one too, made of the part that
/// the model reads.
///
/// Implementations load their model at the first request and compute on threads of their own, so
/// they do not block a caller on an asynchronous runtime. A call that is dropped may still be
/// computed. Calls may run concurrently.
#[async_trait]
pub trait Encoder: Send + Sync + fmt::Debug {
    /// Returns an identifier that separates vectors of this encoder from vectors of others: the
    /// name of the model, its format, and the digest of its weights where there are any.
    fn model(&self) -> &str;

    /// Returns the dimension of the vectors, if it is known before the first one is computed.
    fn dimension(&self) -> Option<usize> {
        None
    }

    /// Returns the vectors of the texts.
    ///
    /// # Errors
    ///
    /// Returns [`EncoderError`] when the model cannot be loaded or reached, or fails.
    async fn encode(
        &self,
        texts: Vec<String>,
        role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError>;
}
