//! Texts turned into vectors.

use std::fmt;

use async_trait::async_trait;

/// What a text is for: models that were trained with prefixes put another one before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextRole {
    /// Somebody looks for something with it.
    Query,
    /// It is looked for: the text of a tool.
    Passage,
}

impl TextRole {
    /// Returns the name of the role, as it stands in keys of stored vectors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Passage => "passage",
        }
    }
}

/// Why a text has no vector.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// The files of the model are missing, damaged, or of a form that is not known.
    #[error("model {model} cannot be loaded")]
    Load {
        /// The model.
        model: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The endpoint does not answer, or refuses.
    #[error("the encoder of model {model} is not available")]
    Unavailable {
        /// The model.
        model: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of the texts could not be encoded; others may be.
    #[error("model {model} failed to encode a text")]
    Failed {
        /// The model.
        model: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Turns texts into vectors whose inner product tells how near in meaning they are.
///
/// Each text gets one vector, in the order of the texts. Vectors are finite, have length 1
/// (Euclidean norm, within 10⁻³) and all the same dimension. The same text in the same role has
/// the same vector, within 10⁻⁴ in each component, whatever stands beside it. Any text has one:
/// the empty text, and one of a megabyte, of which as much counts as the model reads.
///
/// Implementations load what they need when they are first asked, and compute on threads of their
/// own: a caller on an asynchronous runtime is not held up. A call that is dropped may still be
/// computed. Calls may come at the same time.
#[async_trait]
pub trait Encoder: Send + Sync + fmt::Debug {
    /// Returns what tells vectors of this encoder from those of others: the name of the model,
    /// its form, and the digest of its weights where there are any.
    fn model(&self) -> &str;

    /// Returns the dimension of the vectors, where it is known before one is made.
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
