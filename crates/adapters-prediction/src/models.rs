//! Models on disk: `models/NAME/` in the data directory, with a manifest beside the files.
//!
//! `catalog` has the models that are known by name, `shelf` the directory, `pull` the ways by which
//! models come into it.

pub(crate) mod bert_layout;
pub mod catalog;
pub mod convert;
pub(crate) mod field_reader;
pub(crate) mod files;
pub(crate) mod gguf;
mod job;
pub mod manifest;
mod name;
pub mod pull;
mod shelf;

pub use files::FileError;
pub use job::{Interrupted, Job, Stop};
pub use name::{InvalidName, ModelName};
pub use shelf::{Fault, ModelShelf, ShelfError, Shelved, Staging};

/// Returns an error with its causes, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
