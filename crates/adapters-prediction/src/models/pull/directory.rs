//! Models from a directory: a stored model, a snapshot of the hub, or a folder of its cache.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use super::contents::ModelTraits;
use super::hub::newest_snapshot;
use super::{FetchedFiles, PullError, PullRequest, check_and_install, conversion, wheel};
use crate::models::catalog::{Conversion, KnownModel, PipOrigin, known_model};
use crate::models::files::{FileExpectation, copy, verify};
use crate::models::job::Job;
use crate::models::manifest::{MANIFEST_FILE, ManifestError, ModelFile, ModelManifest};
use crate::models::name::ModelName;
use crate::models::store::{ModelStore, Staging};

/// The reason why a directory has no usable model.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory does not exist.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// A file of the model is missing.
    #[error("{directory} has no {file}: a model of the form {form} has {files}")]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// The file.
        file: String,
        /// Form of the model.
        form: &'static str,
        /// All files of a model of this form.
        files: String,
    },
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A directory with the files of a model.
#[derive(Debug)]
struct ModelDirectory {
    directory: PathBuf,
    /// The manifest, if there is one.
    manifest: Option<ModelManifest>,
    /// The name of the model according to the directory.
    name: Option<ModelName>,
}

/// Copies a model from a directory into the store.
pub(super) fn pull(
    model_store: &ModelStore,
    pull: &PullRequest,
    path: &Path,
    job: &Job,
) -> Result<ModelManifest, PullError> {
    let place = ModelDirectory::at(path)?;
    let name = pull.name.clone().or_else(|| place.name.clone());
    let name = name.ok_or(PullError::NameNeeded)?;
    let known = known_model(name.as_str());
    let traits = place.traits(known, &name, pull)?;
    let staging = model_store.stage(&name)?;
    let fetched = place.fetch(&traits, known, &staging, job)?;
    check_and_install(staging, traits, fetched, job)
}

impl ModelDirectory {
    fn at(path: &Path) -> Result<Self, DirectoryError> {
        let not_there = || DirectoryError::NotADirectory(path.to_owned());
        let whole = fs::canonicalize(path).map_err(|_| not_there())?;
        if !whole.is_dir() {
            return Err(not_there());
        }
        let manifest = if whole.join(MANIFEST_FILE).exists() {
            Some(ModelManifest::read(&whole)?)
        } else {
            None
        };
        let of_cache = whole
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix("models--")?.split("--").nth(1))
            .map(str::to_owned);
        let name = manifest.as_ref().map(|manifest| manifest.name.clone());
        Ok(Self {
            name: name.or(of_cache).and_then(|name| name.parse().ok()),
            directory: newest_snapshot(&whole).unwrap_or(whole),
            manifest,
        })
    }

    /// Returns the properties of the model: of the known model, of the manifest, or of the
    /// configuration.
    fn traits(
        &self,
        known: Option<&'static KnownModel>,
        name: &ModelName,
        pull: &PullRequest,
    ) -> Result<ModelTraits, PullError> {
        let has_prefixes = pull.query_prefix.is_some() || pull.passage_prefix.is_some();
        if let Some(known) = known {
            if has_prefixes {
                return Err(PullError::PrefixesAreKnown(name.clone()));
            }
            return Ok(ModelTraits::of(known));
        }
        let mut traits = match &self.manifest {
            Some(manifest) => ModelTraits::of_manifest(manifest),
            None => ModelTraits::read(&self.directory)?,
        };
        if let Some(prefix) = &pull.query_prefix {
            traits.query_prefix.clone_from(prefix);
        }
        if let Some(prefix) = &pull.passage_prefix {
            traits.passage_prefix.clone_from(prefix);
        }
        Ok(traits)
    }

    fn fetch(
        &self,
        traits: &ModelTraits,
        known: Option<&'static KnownModel>,
        staging: &Staging,
        job: &Job,
    ) -> Result<FetchedFiles, PullError> {
        let source = format!("directory {}", self.directory.display());
        let names = traits.form.file_names();
        let missing = names
            .iter()
            .find(|name| !self.directory.join(name).is_file());
        let Some(missing) = missing else {
            let mut files = Vec::new();
            for name in names {
                let of_manifest = self.manifest_file(name);
                let expected = FileExpectation {
                    bytes: of_manifest.map(|file| file.bytes),
                    sha256: of_manifest.map(|file| file.sha256.as_str()),
                };
                let (from, to) = (self.directory.join(name), staging.ready().join(name));
                files.push(copy(&from, &to, expected, job)?);
            }
            return Ok(FetchedFiles { files, source });
        };
        if let Some((file, origin)) = known.and_then(|known| self.convertible_file(known)) {
            let member = &origin.members[0];
            let expected = FileExpectation {
                bytes: Some(member.bytes),
                sha256: Some(member.sha256),
            };
            verify(&file, expected, job)?;
            let conversion = origin.conversion;
            return conversion::convert(&file, &staging.ready(), conversion, source, job);
        }
        Err(DirectoryError::Missing {
            directory: self.directory.clone(),
            file: (*missing).to_owned(),
            form: traits.form.as_str(),
            files: names.join(", "),
        }
        .into())
    }

    fn manifest_file(&self, name: &str) -> Option<&ModelFile> {
        let files = &self.manifest.as_ref()?.files;
        files.iter().find(|file| file.name == name)
    }

    /// Returns the file of a Python package from which the model can be converted, if the directory
    /// has it.
    fn convertible_file(
        &self,
        known: &'static KnownModel,
    ) -> Option<(PathBuf, &'static PipOrigin)> {
        let origin = known.pip.as_ref()?;
        let file = self.directory.join(wheel::name_of(origin.members.first()?));
        (origin.conversion != Conversion::None && file.is_file()).then_some((file, origin))
    }
}
