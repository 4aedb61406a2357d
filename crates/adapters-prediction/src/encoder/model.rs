//! Interface of loaded models of any form.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::models::files::{self, FileError};

/// Turns texts into vectors on the caller's thread.
///
/// The text includes its prefix. The vector is the mean of the vectors of all tokens, scaled to
/// length 1. Long texts are truncated.
pub(crate) trait SentenceModel: Send + fmt::Debug {
    /// Returns the vector of a text.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the computation fails.
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError>;
}

/// The reason why a model cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    #[error("failed to read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The content of a file does not match the manifest or the form.
    #[error("{path} is invalid: {reason}")]
    Content { path: PathBuf, reason: String },
    #[error("the model failed to compute")]
    Compute(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Opens a file of a model. Refuses anything but a regular file, because opening a pipe could
/// block.
pub(super) fn open(path: &Path) -> Result<File, ModelError> {
    files::open(path).map_err(|error| match error {
        FileError::Io { path, source } => ModelError::Read { path, source },
        _ => ModelError::Content {
            path: path.to_owned(),
            reason: "not a regular file".into(),
        },
    })
}

/// Reads a whole file of a model.
///
/// # Errors
///
/// Returns [`ModelError`] when the file cannot be read, is no regular file, or has more than
/// `most_bytes`.
pub(super) fn read(path: &Path, most_bytes: u64) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(most_bytes + 1).read_to_end(&mut bytes);
    read.map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })?;
    if bytes.len() as u64 > most_bytes {
        return Err(ModelError::Content {
            path: path.to_owned(),
            reason: format!("it has more than {most_bytes} bytes"),
        });
    }
    Ok(bytes)
}
