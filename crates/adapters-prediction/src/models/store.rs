//! Store of models: a directory of installed models, with verification, installation and removal.
//!
//! A model is installed completely or not at all. Its files are collected in a hidden directory and
//! installed by a rename.

mod staging;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use staging::Staging;

use super::files::{FileError, FileExpectation, exists, remove_directory, verify};
use super::job::Job;
use super::manifest::{MANIFEST_FILE, ManifestError, ModelManifest};
use super::name::ModelName;
use super::with_causes;

/// Name of the directory of models in the data directory.
const DIRECTORY: &str = "models";

/// The models in a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelStore {
    directory: PathBuf,
}

/// A stored model.
#[derive(Debug)]
pub struct StoredModel {
    /// Name.
    pub name: ModelName,
    /// The manifest, or the reason why it cannot be read.
    pub manifest: Result<ModelManifest, ManifestError>,
}

/// A damaged file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Name of the file.
    pub file: String,
    /// The problem.
    pub problem: String,
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum ModelStoreError {
    /// A file or a directory cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The model is not stored.
    #[error("there is no model {name} in {directory}")]
    NotThere {
        /// Name of the model.
        name: ModelName,
        /// The directory where it is expected.
        directory: PathBuf,
    },
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Another process works on the same model.
    #[error("another process is pulling or removing model {0}")]
    Busy(ModelName),
    /// A collected file does not match the manifest.
    #[error("model {name} is incomplete or damaged: {file}: {problem}")]
    NotWhole {
        /// The model.
        name: ModelName,
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
}

impl ModelStore {
    /// Returns the store in a data directory, which need not exist.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            directory: data_dir.join(DIRECTORY),
        }
    }

    /// Returns the directory of a model, whether it exists or not.
    #[must_use]
    pub fn directory_of(&self, name: &ModelName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// Returns all models, sorted by name.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError::File`] when the directory cannot be read.
    pub fn list(&self) -> Result<Vec<StoredModel>, ModelStoreError> {
        let failed = |error| ModelStoreError::File(FileError::io(&self.directory)(error));
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut models = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Other names belong to incomplete models, to locks, or to foreign files.
            let name = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(name) = name
                && entry.path().is_dir()
            {
                let manifest = ModelManifest::read(&entry.path());
                models.push(StoredModel { name, manifest });
            }
        }
        models.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(models)
    }

    /// Returns the manifest of a model, or `None` if it is not stored.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError::Manifest`] when the model is stored but its manifest is invalid.
    pub fn find(&self, name: &ModelName) -> Result<Option<ModelManifest>, ModelStoreError> {
        let directory = self.directory_of(name);
        if !directory.is_dir() {
            return Ok(None);
        }
        Ok(Some(ModelManifest::read(&directory)?))
    }

    /// Compares every file of a model with its manifest, and returns the damaged ones.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError`] when the model is not stored, or the job was cancelled.
    pub fn verify(&self, name: &ModelName, job: &Job) -> Result<Vec<DamagedFile>, ModelStoreError> {
        let directory = self.directory_of(name);
        if !directory.is_dir() {
            return Err(self.not_there(name));
        }
        match ModelManifest::read(&directory) {
            Ok(manifest) => Ok(damaged_files(&directory, &manifest, job)?),
            Err(error) => Ok(vec![DamagedFile {
                file: MANIFEST_FILE.to_owned(),
                problem: with_causes(&error),
            }]),
        }
    }

    /// Removes a model and the remains of an interrupted pull.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError`] when there is nothing to remove, when the model is being pulled, or
    /// when it cannot be removed.
    pub fn remove(&self, name: &ModelName) -> Result<(), ModelStoreError> {
        if !self.directory.is_dir() {
            return Err(self.not_there(name));
        }
        let staging = self.stage(name)?;
        let was_begun = staging.was_begun();
        let directory = self.directory_of(name);
        let is_there = exists(&directory);
        if is_there {
            // Renamed before the removal, so that an interruption leaves no partial model.
            let gone = self.auxiliary_path(name, "gone");
            fs::rename(&directory, &gone).map_err(FileError::io(&directory))?;
            remove_directory(&gone)?;
        }
        staging.discard()?;
        if is_there || was_begun {
            Ok(())
        } else {
            Err(self.not_there(name))
        }
    }

    /// Begins or continues the pull of a model, with a lock against other processes.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError::Busy`] when another process has the lock, and [`ModelStoreError::File`]
    /// when the directories cannot be created.
    pub fn stage(&self, name: &ModelName) -> Result<Staging, ModelStoreError> {
        Staging::new(self.clone(), name.clone())
    }

    /// Returns the path of an auxiliary file or directory of a model. Its name is not a valid model
    /// name.
    fn auxiliary_path(&self, name: &ModelName, what: &str) -> PathBuf {
        self.directory.join(format!(".{name}.{what}"))
    }

    fn not_there(&self, name: &ModelName) -> ModelStoreError {
        ModelStoreError::NotThere {
            name: name.clone(),
            directory: self.directory.clone(),
        }
    }
}

/// Compares the files in a directory with a manifest, and returns the damaged ones.
fn damaged_files(
    directory: &Path,
    manifest: &ModelManifest,
    job: &Job,
) -> Result<Vec<DamagedFile>, FileError> {
    let mut found = Vec::new();
    for file in &manifest.files {
        let expected = FileExpectation {
            bytes: Some(file.bytes),
            sha256: Some(&file.sha256),
        };
        match verify(&directory.join(&file.name), expected, job) {
            Ok(_) => {}
            Err(error @ FileError::Interrupted(_)) => return Err(error),
            Err(error) => found.push(DamagedFile {
                file: file.name.clone(),
                problem: with_causes(&error),
            }),
        }
    }
    Ok(found)
}
