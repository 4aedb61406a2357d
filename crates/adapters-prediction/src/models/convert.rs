//! Conversion of published weights to the files that the encoders read.

mod e5s1;
#[cfg(test)]
pub(crate) use e5s1::sample;
mod f32_files;

use std::io;
use std::path::{Path, PathBuf};

pub use e5s1::gguf_from_e5s1;
pub use f32_files::safetensors_from_gguf;

use super::field_reader::FieldError;
use super::gguf::reader::GgufError;

/// Name of the file that the quantized encoder reads.
pub(crate) const GGUF_FILE: &str = "model.gguf";

/// Keys of the header with tokenizer data.
pub(crate) mod key {
    /// Kind of the tokenizer: `t5` for Unigram.
    pub(crate) const MODEL: &str = "tokenizer.ggml.model";
    /// The pieces, by their number.
    pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
    /// Logarithms of their probabilities.
    pub(crate) const SCORES: &str = "tokenizer.ggml.scores";
    /// Types of the pieces: 1 for text, 2 for the unknown piece, 3 for marks.
    pub(crate) const TYPES: &str = "tokenizer.ggml.token_type";
    /// The mark of the beginning.
    pub(crate) const BEGIN: &str = "tokenizer.ggml.bos_token_id";
    /// The mark of the end.
    pub(crate) const END: &str = "tokenizer.ggml.eos_token_id";
    /// The padding mark.
    pub(crate) const PADDING: &str = "tokenizer.ggml.padding_token_id";
    /// The piece for unknown text.
    pub(crate) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    /// Characters that are replaced before the segmentation, ascending.
    pub(crate) const NORMALIZED: &str = "riglm.normalizer.code_points";
    /// The length of each replacement in characters.
    pub(crate) const LENGTHS: &str = "riglm.normalizer.lengths";
    /// The concatenated replacements.
    pub(crate) const REPLACEMENTS: &str = "riglm.normalizer.replacements";
}

/// Types of pieces in [`key::TYPES`].
pub(crate) mod piece_type {
    /// A piece of text.
    pub(crate) const NORMAL: u32 = 1;
    /// The piece for unknown text.
    pub(crate) const UNKNOWN: u32 = 2;
    /// A mark, which no text contains.
    pub(crate) const CONTROL: u32 = 3;
}

/// The reason why weights cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The source.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The source is damaged, or has another format.
    #[error("{path} is invalid: {reason}")]
    Content {
        /// The source.
        path: PathBuf,
        /// The problem and its place.
        reason: String,
    },
    /// The target cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The target.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl ConvertError {
    fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self::Content {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    fn field(path: &Path, error: FieldError) -> Self {
        match error {
            FieldError::Io { source, .. } => Self::read(path, source),
            FieldError::Ends { .. } => Self::content(path, error.to_string()),
        }
    }

    fn gguf(path: &Path, error: GgufError) -> Self {
        match error {
            GgufError::Io(source) => Self::read(path, source),
            GgufError::Content(reason) => Self::content(path, reason),
        }
    }

    fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    fn write(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Write {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
