//! A model that is loaded, whatever its form.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::models::files::{self, FileError};

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

/// Opens a file of a model; what is no regular file is refused and not waited for.
pub(super) fn open(path: &Path) -> Result<File, ModelError> {
    files::open(path).map_err(|error| match error {
        FileError::Io { path, source } => ModelError::Read { path, source },
        _ => ModelError::Content {
            path: path.to_owned(),
            reason: "it is no file".into(),
        },
    })
}

/// Reads a file of a model as a whole.
///
/// # Errors
///
/// Returns [`ModelError`] when it cannot be read, is no regular file, or has more than `most_bytes`.
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
