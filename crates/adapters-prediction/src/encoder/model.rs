//! A model that is loaded, whatever its form.

use std::fmt;
use std::path::PathBuf;

/// Turns texts into vectors on the thread that asks.
///
/// The text comes with its prefix. The vector is the mean over the vectors of all its tokens,
/// scaled to length 1; texts that are too long are cut.
pub(crate) trait SentenceModel: Send + fmt::Debug {
    /// Returns the vector of a text.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the computation fails.
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError>;
}

/// Why a model cannot be loaded, or fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    /// A file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else than its manifest says, or than its form asks for.
    #[error("{path} is not what it should be: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The computation failed.
    #[error("the model failed to compute")]
    Compute(#[source] Box<dyn std::error::Error + Send + Sync>),
}
