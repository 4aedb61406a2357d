//! Weights as others publish them, turned into the files that the encoders here read.

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

/// The name of the file that the quantised encoder reads.
pub(crate) const GGUF_FILE: &str = "model.gguf";

/// Keys of the header for what a tokenizer needs.
pub(crate) mod key {
    /// Which tokenizer it is: `t5` for Unigram.
    pub(crate) const MODEL: &str = "tokenizer.ggml.model";
    /// The pieces, by their number.
    pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
    /// The logarithms of their probabilities.
    pub(crate) const SCORES: &str = "tokenizer.ggml.scores";
    /// What they are: 1 for pieces of text, 2 for the unknown one, 3 for marks.
    pub(crate) const TYPES: &str = "tokenizer.ggml.token_type";
    /// The mark of the beginning.
    pub(crate) const BEGIN: &str = "tokenizer.ggml.bos_token_id";
    /// The mark of the end.
    pub(crate) const END: &str = "tokenizer.ggml.eos_token_id";
    /// The mark for places that are not used.
    pub(crate) const PADDING: &str = "tokenizer.ggml.padding_token_id";
    /// The piece for what is in no other.
    pub(crate) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    /// The characters that are replaced before texts are cut into pieces, in ascending order.
    pub(crate) const NORMALIZED: &str = "riglm.normalizer.code_points";
    /// By how many characters each is replaced.
    pub(crate) const LENGTHS: &str = "riglm.normalizer.lengths";
    /// By which characters, one replacement after the other.
    pub(crate) const REPLACEMENTS: &str = "riglm.normalizer.replacements";
}

/// Types of pieces in [`key::TYPES`].
pub(crate) mod piece_type {
    /// A piece of text.
    pub(crate) const NORMAL: u32 = 1;
    /// What stands for everything that is in no piece.
    pub(crate) const UNKNOWN: u32 = 2;
    /// A mark, which no text contains.
    pub(crate) const CONTROL: u32 = 3;
}

/// Why weights cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The source.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The source is damaged, or something else than it should be.
    #[error("{path} is not what it should be: {reason}")]
    Content {
        /// The source.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The target cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The target.
        path: PathBuf,
        /// Why.
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
