//! Models on disk: `models/NAME/` in the data directory, with a manifest next to the files.
//!
//! `catalog` has the models that are known by name, `store` is the directory of stored models, and
//! `pull` has the sources from which models are added.

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
mod store;

pub use files::FileError;
pub use job::{Interruption, Job, StopSignal};
pub use name::{InvalidName, ModelName};
pub use store::{DamagedFile, ModelStore, ModelStoreError, Staging, StoredModel};

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
