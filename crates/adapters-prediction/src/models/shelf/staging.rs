//! A model on its way to the shelf.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{Fault, ModelShelf, ShelfError, faults};
use crate::models::files::{FileError, create_directory, is_taken, private, remove_directory};
use crate::models::job::Job;
use crate::models::manifest::{MANIFEST_FILE, ManifestError, ModelManifest};
use crate::models::name::ModelName;

/// A model that is being gathered; as long as this lives, no other process gathers or removes it.
///
/// What was downloaded stays when this is dropped, for the next pull to take up.
#[derive(Debug)]
pub struct Staging {
    shelf: ModelShelf,
    name: ModelName,
    was_begun: bool,
    // The lock goes when the file is closed.
    _lock: File,
}

impl Staging {
    pub(super) fn new(shelf: ModelShelf, name: ModelName) -> Result<Self, ShelfError> {
        create_directory(&shelf.directory)?;
        let lock = lock(&shelf, &name)?;
        restore(&shelf, &name)?;
        let staging = Self {
            was_begun: shelf.hidden(&name, "partial").is_dir(),
            _lock: lock,
            shelf,
            name,
        };
        // Files that were ready are made from downloads, which are still there.
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

    /// Returns the directory for downloads that later pulls may take up.
    #[must_use]
    pub fn downloads(&self) -> PathBuf {
        self.partial().join("downloads")
    }

    /// Returns the directory for the files of the model, which is empty at first.
    #[must_use]
    pub fn ready(&self) -> PathBuf {
        self.partial().join("ready")
    }

    /// Puts the files into their place when all of them are there and have their digests. A model
    /// of the same name is replaced.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError`] when a file is missing or another one than the manifest says, or
    /// when it cannot be put into place; the model that was there before stays then.
    pub fn install(self, manifest: &ModelManifest, job: &Job) -> Result<(), ShelfError> {
        let ready = self.ready();
        manifest.check().map_err(|reason| ManifestError::Content {
            path: ready.join(MANIFEST_FILE),
            reason,
        })?;
        if let Some(Fault { file, problem }) = faults(&ready, manifest, job)?.into_iter().next() {
            return Err(ShelfError::NotWhole {
                name: self.name,
                file,
                problem,
            });
        }
        write_manifest(&ready.join(MANIFEST_FILE), manifest)?;
        sync(&ready)?;
        self.replace(&ready)?;
        sync(&self.shelf.directory)?;
        remove_directory(&self.shelf.hidden(&self.name, "old"))?;
        self.discard()
    }

    /// Removes what was gathered.
    ///
    /// # Errors
    ///
    /// Returns [`ShelfError::File`] when that is not possible.
    pub fn discard(self) -> Result<(), ShelfError> {
        Ok(remove_directory(&self.partial())?)
    }

    /// Returns whether an earlier pull left something.
    pub(super) fn was_begun(&self) -> bool {
        self.was_begun
    }

    fn partial(&self) -> PathBuf {
        self.shelf.hidden(&self.name, "partial")
    }

    fn replace(&self, ready: &Path) -> Result<(), ShelfError> {
        let place = self.shelf.directory_of(&self.name);
        let old = self.shelf.hidden(&self.name, "old");
        if is_taken(&place) {
            fs::rename(&place, &old).map_err(FileError::io(&place))?;
        }
        fs::rename(ready, &place).map_err(|error| {
            // If this fails too, the next pull or removal does it.
            let _ = fs::rename(&old, &place);
            ShelfError::File(FileError::io(&place)(error))
        })
    }
}

fn lock(shelf: &ModelShelf, name: &ModelName) -> Result<File, ShelfError> {
    let path = shelf.hidden(name, "lock");
    let mut options = private();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(FileError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ShelfError::Busy(name.clone())),
        Err(TryLockError::Error(error)) => Err(FileError::io(&path)(error).into()),
    }
}

/// Brings a model back that was moved aside by a process which then ended, or removes it when its
/// successor is there.
fn restore(shelf: &ModelShelf, name: &ModelName) -> Result<(), ShelfError> {
    let old = shelf.hidden(name, "old");
    let place = shelf.directory_of(name);
    if old.is_dir() && !is_taken(&place) && ModelManifest::read(&old).is_ok() {
        fs::rename(&old, &place).map_err(FileError::io(&place))?;
    }
    remove_directory(&old)?;
    Ok(remove_directory(&shelf.hidden(name, "gone"))?)
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

/// Carries the names in a directory to the disk.
fn sync(directory: &Path) -> Result<(), FileError> {
    #[cfg(unix)]
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(FileError::io(directory))?;
    Ok(())
}
