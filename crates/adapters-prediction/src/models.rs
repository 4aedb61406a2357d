//! Models on disk: `models/NAME/` in the data directory, with a manifest next to the files.
//!
//! `catalog` has the models that are known by name, `store` is the directory of stored models, and
//! `pull` has the sources from which models are added, in a build with the feature `model`.

#[cfg(feature = "model")]
pub(crate) mod bert_layout;
pub mod catalog;
#[cfg(feature = "model")]
pub mod convert;
#[cfg(feature = "model")]
pub(crate) mod field_reader;
pub(crate) mod files;
#[cfg(feature = "model")]
pub(crate) mod gguf;
mod job;
pub mod manifest;
mod name;
#[cfg(feature = "model")]
pub mod pull;
mod store;

pub use files::FileError;
pub use job::{Interruption, Job, StopSignal};
pub use name::{InvalidName, ModelName};
pub use store::{DamagedFile, ModelStore, ModelStoreError, Staging, StoredModel};

/// Pulls, of which a build without the feature `model` knows only the sources.
#[cfg(not(feature = "model"))]
pub mod pull {
    pub use super::catalog::PullSource;
}

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
