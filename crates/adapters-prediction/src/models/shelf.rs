//! The directory of the models: what is there, whether it is sound, and how models come and go.
//!
//! A model is there as a whole or not at all: its files are gathered in a directory that no reader
//! looks into, and take their place by a rename.

mod staging;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use staging::Staging;

use super::files::{Expected, FileError, examine, is_taken, remove_directory};
use super::job::Job;
use super::manifest::{MANIFEST_FILE, ManifestError, ModelManifest};
use super::name::ModelName;
use super::with_causes;

/// The name of the directory of models in the data directory.
const DIRECTORY: &str = "models";

/// The models in a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShelf {
    directory: PathBuf,
}

/// A model on the shelf.
#[derive(Debug)]
pub struct Shelved {
    /// Its name.
    pub name: ModelName,
    /// What it is, or why that cannot be told.
    pub manifest: Result<ModelManifest, ManifestError>,
}

/// What is wrong with a file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the file.
    pub file: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Why the shelf cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// A file or a directory cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such model.
    #[error("there is no model {name} in {directory}")]
    NotThere {
        /// Its name.
        name: ModelName,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Another process works on the same model.
    #[error("another process is pulling or removing model {0} just now")]
    Busy(ModelName),
    /// What was gathered is not what its manifest says.
    #[error("model {name} is not whole: {file}: {problem}")]
    NotWhole {
        /// The model.
        name: ModelName,
        /// The file that is wrong.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl ModelShelf {
    /// Returns the shelf in a data directory; neither needs to exist.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            directory: data_dir.join(DIRECTORY),
        }
    }

    /// Returns the directory of a model, whether it is there or not.
    #[must_use]
    pub fn directory_of(&self, name: &ModelName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// Returns all models, sorted by name.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError::File`] when the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Shelved>, ShelfError> {
        let failed = |error| ShelfError::File(FileError::io(&self.directory)(error));
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut models = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // What has another name is a model that is not complete, a lock, or none of ours.
            let name = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(name) = name
                && entry.path().is_dir()
            {
                let manifest = ModelManifest::read(&entry.path());
                models.push(Shelved { name, manifest });
            }
        }
        models.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(models)
    }

    /// Returns the manifest of a model, or nothing when it is not there.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError::Manifest`] when it is there and its manifest cannot be used.
    pub fn find(&self, name: &ModelName) -> Result<Option<ModelManifest>, ShelfError> {
        let directory = self.directory_of(name);
        if !directory.is_dir() {
            return Ok(None);
        }
        Ok(Some(ModelManifest::read(&directory)?))
    }

    /// Compares every file of a model with its manifest, and returns what is wrong.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError`] when the model is not there, or the job was stopped.
    pub fn verify(&self, name: &ModelName, job: &Job) -> Result<Vec<Fault>, ShelfError> {
        let directory = self.directory_of(name);
        if !directory.is_dir() {
            return Err(self.not_there(name));
        }
        match ModelManifest::read(&directory) {
            Ok(manifest) => Ok(faults(&directory, &manifest, job)?),
            Err(error) => Ok(vec![Fault {
                file: MANIFEST_FILE.to_owned(),
                problem: with_causes(&error),
            }]),
        }
    }

    /// Removes a model, and what an interrupted pull left of it.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError`] when there is nothing to remove, when it is being pulled, or when it
    /// cannot be removed.
    pub fn remove(&self, name: &ModelName) -> Result<(), ShelfError> {
        if !self.directory.is_dir() {
            return Err(self.not_there(name));
        }
        let staging = self.stage(name)?;
        let was_begun = staging.was_begun();
        let directory = self.directory_of(name);
        let is_there = is_taken(&directory);
        if is_there {
            // Half of a model must not look like one if this is interrupted.
            let gone = self.hidden(name, "gone");
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

    /// Begins or takes up the pull of a model, which nobody else does meanwhile.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError::Busy`] when another process does, and [`ShelfError::File`] when the
    /// directories cannot be made.
    pub fn stage(&self, name: &ModelName) -> Result<Staging, ShelfError> {
        Staging::new(self.clone(), name.clone())
    }

    /// Returns the path of something that belongs to a model and is none.
    fn hidden(&self, name: &ModelName, what: &str) -> PathBuf {
        self.directory.join(format!(".{name}.{what}"))
    }

    fn not_there(&self, name: &ModelName) -> ShelfError {
        ShelfError::NotThere {
            name: name.clone(),
            directory: self.directory.clone(),
        }
    }
}

/// Compares the files in a directory with a manifest.
fn faults(directory: &Path, manifest: &ModelManifest, job: &Job) -> Result<Vec<Fault>, FileError> {
    let mut found = Vec::new();
    for file in &manifest.files {
        let expected = Expected {
            bytes: Some(file.bytes),
            sha256: Some(&file.sha256),
        };
        match examine(&directory.join(&file.name), expected, job) {
            Ok(_) => {}
            Err(error @ FileError::Interrupted(_)) => return Err(error),
            Err(error) => found.push(Fault {
                file: file.name.clone(),
                problem: with_causes(&error),
            }),
        }
    }
    Ok(found)
}
