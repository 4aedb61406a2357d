//! Errors of a pull.

use super::{ContentsError, ConversionError, DirectoryError, HubError, PipError};
use crate::models::catalog::{KnownModel, known_models};
use crate::models::files::FileError;
use crate::models::name::{InvalidName, ModelName};
use crate::models::store::ModelStoreError;

/// The reason why a pull failed.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No known model has this name.
    #[error(
        "unknown model {0}: known models are {known}; pull others from a directory",
        known = names()
    )]
    Unknown(ModelName),
    /// The requested source does not have the model.
    #[error(
        "{name} is not available from this source, only from {sources}",
        name = known.name,
        sources = sources(known)
    )]
    NotThere {
        /// The model.
        known: &'static KnownModel,
    },
    /// The prefixes of a known model are fixed. Others would lead to wrong vectors.
    #[error("the prefixes of {0} are fixed; set prefixes only for models with other names")]
    PrefixesAreKnown(ModelName),
    /// The directory does not state the name of its model.
    #[error("missing model name: the directory does not have one")]
    NameNeeded,
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The hub failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// pip failed.
    #[error(transparent)]
    Pip(#[from] PipError),
    /// The directory has no usable model.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The conversion failed.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// The fetched files are not a usable model.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The model cannot be stored.
    #[error(transparent)]
    Shelf(#[from] ModelStoreError),
}

impl PullError {
    /// Returns whether the request itself is invalid, so that it would always fail.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Unknown(_)
                | Self::NotThere { .. }
                | Self::PrefixesAreKnown(_)
                | Self::NameNeeded
                | Self::Name(_)
        )
    }
}

fn names() -> String {
    let names: Vec<&str> = known_models().iter().map(|model| model.name).collect();
    names.join(", ")
}

fn sources(known: &KnownModel) -> &'static str {
    match (known.hub, &known.pip) {
        (Some(_), None) => "the hub",
        (None, Some(_)) => "pip",
        _ => "the hub and pip",
    }
}
