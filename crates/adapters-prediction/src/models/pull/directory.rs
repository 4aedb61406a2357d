//! Models out of a directory: one of ours, a snapshot of the hub, or a folder of its cache.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use super::contents::Traits;
use super::hub::newest_snapshot;
use super::{Fetched, Pull, PullError, conversion, finish, wheel};
use crate::models::catalog::{Conversion, KnownModel, PipOrigin, known_model};
use crate::models::files::{Expected, copy, examine};
use crate::models::job::Job;
use crate::models::manifest::{MANIFEST_FILE, ManifestError, ModelFile, ModelManifest};
use crate::models::name::ModelName;
use crate::models::shelf::{ModelShelf, Staging};

/// Why a directory does not give a model.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// There is no such directory.
    #[error("{0} is no directory")]
    NotADirectory(PathBuf),
    /// A file of the model is not in it.
    #[error("{directory} has no {file}: a model of the form {form} has {files}")]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// The file.
        file: String,
        /// The form of the model.
        form: &'static str,
        /// All files of a model of this form.
        files: String,
    },
    /// Its manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A directory with the files of a model.
#[derive(Debug)]
struct Place {
    directory: PathBuf,
    /// What it says of itself, when it is one of ours.
    manifest: Option<ModelManifest>,
    /// The name that it gives its model.
    name: Option<ModelName>,
}

/// Copies a model out of a directory to the shelf.
pub(super) fn pull(
    shelf: &ModelShelf,
    pull: &Pull,
    path: &Path,
    job: &Job,
) -> Result<ModelManifest, PullError> {
    let place = Place::at(path)?;
    let name = pull.name.clone().or_else(|| place.name.clone());
    let name = name.ok_or(PullError::NameNeeded)?;
    let known = known_model(name.as_str());
    let traits = place.traits(known, &name, pull)?;
    let staging = shelf.stage(&name)?;
    let fetched = place.fetch(&traits, known, &staging, job)?;
    finish(staging, traits, fetched, job)
}

impl Place {
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

    /// Returns what the model is: by its name, its manifest, or its configuration.
    fn traits(
        &self,
        known: Option<&'static KnownModel>,
        name: &ModelName,
        pull: &Pull,
    ) -> Result<Traits, PullError> {
        let has_prefixes = pull.query_prefix.is_some() || pull.passage_prefix.is_some();
        if let Some(known) = known {
            if has_prefixes {
                return Err(PullError::PrefixesAreKnown(name.clone()));
            }
            return Ok(Traits::of(known));
        }
        let mut traits = match &self.manifest {
            Some(manifest) => Traits::of_manifest(manifest),
            None => Traits::read(&self.directory)?,
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
        traits: &Traits,
        known: Option<&'static KnownModel>,
        staging: &Staging,
        job: &Job,
    ) -> Result<Fetched, PullError> {
        let source = format!("directory {}", self.directory.display());
        let names = traits.form.file_names();
        let missing = names
            .iter()
            .find(|name| !self.directory.join(name).is_file());
        let Some(missing) = missing else {
            let mut files = Vec::new();
            for name in names {
                let of_manifest = self.manifest_file(name);
                let expected = Expected {
                    bytes: of_manifest.map(|file| file.bytes),
                    sha256: of_manifest.map(|file| file.sha256.as_str()),
                };
                let (from, to) = (self.directory.join(name), staging.ready().join(name));
                files.push(copy(&from, &to, expected, job)?);
            }
            return Ok(Fetched { files, source });
        };
        if let Some((file, origin)) = known.and_then(|known| self.unconverted(known)) {
            let member = &origin.members[0];
            let expected = Expected {
                bytes: Some(member.bytes),
                sha256: Some(member.sha256),
            };
            examine(&file, expected, job)?;
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

    /// Returns the file of a package that a model is made from, when it is here.
    fn unconverted(&self, known: &'static KnownModel) -> Option<(PathBuf, &'static PipOrigin)> {
        let origin = known.pip.as_ref()?;
        let file = self.directory.join(wheel::name_of(origin.members.first()?));
        (origin.conversion != Conversion::None && file.is_file()).then_some((file, origin))
    }
}
