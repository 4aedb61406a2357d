//! Staging of a model before its installation.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{DamagedFile, ModelStore, ModelStoreError, damaged_files};
use crate::models::files::{FileError, create_directory, exists, private, remove_directory};
use crate::models::job::Job;
use crate::models::manifest::{MANIFEST_FILE, ModelManifest};
use crate::models::name::ModelName;

/// A model that is being collected. While this value lives, no other process collects or removes
/// the model.
///
/// Downloads stay when it is dropped, so that the next pull can resume them.
#[derive(Debug)]
pub struct Staging {
    model_store: ModelStore,
    name: ModelName,
    was_begun: bool,
    _lock: ModelLock,
}

impl Staging {
    pub(super) fn new(model_store: ModelStore, name: ModelName) -> Result<Self, ModelStoreError> {
        create_directory(&model_store.directory)?;
        let lock = ModelLock::take(&model_store, &name)?;
        restore(&model_store, &name)?;
        let staging = Self {
            was_begun: model_store.auxiliary_path(&name, "partial").is_dir(),
            _lock: lock,
            model_store,
            name,
        };
        // Ready files are made from downloads, which are still there.
        remove_directory(&staging.ready())?;
        create_directory(&staging.ready())?;
        create_directory(&staging.downloads())?;
        Ok(staging)
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn name(&self) -> &ModelName {
        &self.name
    }

    /// Returns the directory of downloads, which later pulls can resume.
    #[must_use]
    pub fn downloads(&self) -> PathBuf {
        self.partial().join("downloads")
    }

    /// Returns the directory for the files of the model, which is empty at first.
    #[must_use]
    pub fn ready(&self) -> PathBuf {
        self.partial().join("ready")
    }

    /// Installs the files if all of them are there and their digests match. Replaces a model with
    /// the same name.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError`] when a file is missing or does not match the manifest, or when it
    /// cannot be installed. The previous model stays then.
    pub fn install(self, manifest: &ModelManifest, job: &Job) -> Result<(), ModelStoreError> {
        let ready = self.ready();
        manifest.check(&ready.join(MANIFEST_FILE))?;
        if let Some(DamagedFile { file, problem }) =
            damaged_files(&ready, manifest, job)?.into_iter().next()
        {
            return Err(ModelStoreError::NotWhole {
                name: self.name,
                file,
                problem,
            });
        }
        write_manifest(&ready.join(MANIFEST_FILE), manifest)?;
        sync(&ready)?;
        // The files must be on the disk before the rename makes them visible.
        self.replace(&ready)?;
        sync(&self.model_store.directory)?;
        remove_directory(&self.model_store.auxiliary_path(&self.name, "old"))?;
        self.discard()
    }

    /// Removes the collected files.
    ///
    /// # Errors
    ///
    /// Returns [`ModelStoreError::File`] when that is not possible.
    pub fn discard(self) -> Result<(), ModelStoreError> {
        Ok(remove_directory(&self.partial())?)
    }

    /// Returns whether an earlier pull left files.
    pub(super) fn was_begun(&self) -> bool {
        self.was_begun
    }

    fn partial(&self) -> PathBuf {
        self.model_store.auxiliary_path(&self.name, "partial")
    }

    fn replace(&self, ready: &Path) -> Result<(), ModelStoreError> {
        let place = self.model_store.directory_of(&self.name);
        let old = self.model_store.auxiliary_path(&self.name, "old");
        if exists(&place) {
            fs::rename(&place, &old).map_err(FileError::io(&place))?;
        }
        fs::rename(ready, &place).map_err(|error| {
            // If this fails too, the next pull or removal restores the old model.
            let _ = fs::rename(&old, &place);
            ModelStoreError::File(FileError::io(&place)(error))
        })
    }
}

/// The lock against other processes that collect or remove the same model.
#[derive(Debug)]
struct ModelLock(File);

impl ModelLock {
    fn take(model_store: &ModelStore, name: &ModelName) -> Result<Self, ModelStoreError> {
        let path = model_store.auxiliary_path(name, "lock");
        let mut options = private();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FileError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(ModelStoreError::Busy(name.clone())),
            Err(TryLockError::Error(error)) => Err(FileError::io(&path)(error).into()),
        }
    }
}

impl Drop for ModelLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that another thread is just starting has a copy
        // of the descriptor for a moment, and the lock would live as long. If this fails, closing
        // releases it.
        let _ = self.0.unlock();
    }
}

/// Restores a model that an interrupted process moved aside, or removes it if its replacement was
/// installed.
fn restore(model_store: &ModelStore, name: &ModelName) -> Result<(), ModelStoreError> {
    let old = model_store.auxiliary_path(name, "old");
    let place = model_store.directory_of(name);
    if old.is_dir() && !exists(&place) && ModelManifest::read(&old).is_ok() {
        fs::rename(&old, &place).map_err(FileError::io(&place))?;
    }
    remove_directory(&old)?;
    Ok(remove_directory(&model_store.auxiliary_path(name, "gone"))?)
}

fn write_manifest(path: &Path, manifest: &ModelManifest) -> Result<(), FileError> {
    let failed = FileError::io(path);
    let write = || {
        let mut text = serde_json::to_vec_pretty(manifest)?;
        text.push(b'\n');
        let mut file = private().write(true).create_new(true).open(path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    write().map_err(failed)
}

/// Flushes the entries of a directory to the disk.
fn sync(directory: &Path) -> Result<(), FileError> {
    #[cfg(unix)]
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(FileError::io(directory))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_hold_the_lock() {
        let data_dir = tempfile::tempdir().unwrap();
        let model_store = ModelStore::new(data_dir.path());
        let name: ModelName = "all-MiniLM-L6-v2".parse().unwrap();
        create_directory(&model_store.directory).unwrap();
        let lock = ModelLock::take(&model_store, &name).unwrap();
        let _copy = lock.0.try_clone().unwrap();
        assert!(ModelLock::take(&model_store, &name).is_err());
        drop(lock);
        ModelLock::take(&model_store, &name).unwrap();
    }
}
