//! Why a model did not come.

use super::{ContentsError, ConversionError, DirectoryError, HubError, PipError};
use crate::models::catalog::{KnownModel, known_models};
use crate::models::files::FileError;
use crate::models::name::{InvalidName, ModelName};
use crate::models::shelf::ShelfError;

/// Why a model did not come.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No model is known by this name.
    #[error(
        "no model is known by the name {0}: {known} are; any other can come from a directory",
        known = names()
    )]
    Unknown(ModelName),
    /// The model cannot be had from the source that was asked for.
    #[error("{name} is not to be had there, only from {sources}", name = known.name, sources = sources(known))]
    NotThere {
        /// The model.
        known: &'static KnownModel,
    },
    /// The prefixes of the model are known, and others would spoil its vectors.
    #[error("the prefixes of {0} are known; they can be given for models of other names only")]
    PrefixesAreKnown(ModelName),
    /// A directory does not tell the name of its model.
    #[error("the directory does not tell the name of the model: give it")]
    NameNeeded,
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The hub did not give it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// pip did not give it.
    #[error(transparent)]
    Pip(#[from] PipError),
    /// The directory does not have it.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// It could not be put into the form that is needed.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// What came is no such model.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// A file could not be put in its place.
    #[error(transparent)]
    File(#[from] FileError),
    /// It could not be put on the shelf.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
}

impl PullError {
    /// Returns whether the wish itself cannot be fulfilled, whatever the world looks like.
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
