//! Writing of files that a pull fetched.

use std::fs;
use std::io::{Read, Write as _};
use std::path::Path;

use super::{FileError, FileExpectation, each_chunk, model_file, open, private};
use crate::models::job::Job;
use crate::models::manifest::ModelFile;

impl FileError {
    /// Returns whether the content differs from the expected one.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Digest { .. })
    }
}

/// Restricts access to a file of another program to the owner.
pub(crate) fn make_private(path: &Path) -> Result<(), FileError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(FileError::io(path))?;
    }
    Ok(())
}

/// Copies a file and returns its properties.
///
/// # Errors
///
/// Returns [`FileError`] when the file cannot be copied or differs from the expected one. No copy
/// is left then.
pub(crate) fn copy(
    source: &Path,
    target: &Path,
    expected: FileExpectation<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let file = open(source)?;
    write(file, source, target, expected, job)
}

/// Writes the content of a reader into a new file. Errors name `origin` as the source of the
/// content.
pub(crate) fn write(
    reader: impl Read,
    origin: &Path,
    target: &Path,
    expected: FileExpectation<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let written = write_all(reader, origin, target, expected, job);
    if written.is_err() {
        // An incomplete file is useless. The first error is the important one.
        let _ = fs::remove_file(target);
    }
    written
}

fn write_all(
    reader: impl Read,
    origin: &Path,
    target: &Path,
    expected: FileExpectation<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let mut options = private();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .open(target)
        .map_err(FileError::io(target))?;
    let (bytes, sha256) = each_chunk(reader, origin, expected, job, |chunk| {
        file.write_all(chunk).map_err(FileError::io(target))
    })?;
    file.sync_all().map_err(FileError::io(target))?;
    Ok(model_file(target, bytes, sha256))
}
