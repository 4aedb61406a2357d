//! Files of models: only their owner may use them, and they are compared with their digests.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::job::{Interrupted, Job};
use super::manifest::ModelFile;

/// How much is read at once, in bytes.
const CHUNK: usize = 1 << 18;

/// What a file must be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    /// Its length in bytes, where it is known.
    pub(crate) bytes: Option<u64>,
    /// Its SHA-256 in lower-case hexadecimal, where it is known.
    pub(crate) sha256: Option<&'a str>,
}

/// Why a file is not put in its place.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("failed to read or write {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no regular file.
    #[error("{0} is no file")]
    NotAFile(PathBuf),
    /// It is shorter or longer than it must be.
    #[error("{path} is damaged: it has {found} bytes instead of {expected}")]
    Length {
        /// The file.
        path: PathBuf,
        /// The length that it must have, in bytes.
        expected: u64,
        /// The length that it has, in bytes; where it is longer, at least that.
        found: u64,
    },
    /// It has another digest than it must have.
    #[error("{path} is damaged: its SHA-256 is {found} instead of {expected}")]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest that it must have.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// The work was interrupted.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl FileError {
    /// Returns whether the content is another one than it must be.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Digest { .. })
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// Creates `path` and its missing parents for their owner alone; a directory that is there stays
/// as it is.
pub(crate) fn create_directory(path: &Path) -> Result<(), FileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path).map_err(FileError::io(path))
}

/// Returns options that create a file for its owner alone.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Makes a file that another program created one for its owner alone.
pub(crate) fn make_private(path: &Path) -> Result<(), FileError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(FileError::io(path))?;
    }
    Ok(())
}

/// Returns whether anything has this name, a link that leads nowhere included.
pub(crate) fn is_taken(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Removes a directory with what is in it, or whatever else has its name; what is not there is no
/// error.
pub(crate) fn remove_directory(path: &Path) -> Result<(), FileError> {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let removed = if is_directory {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(FileError::io(path)),
    }
}

/// Opens a regular file; whatever else has the name is not touched.
pub(crate) fn open(path: &Path) -> Result<File, FileError> {
    let metadata = fs::metadata(path).map_err(FileError::io(path))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile(path.to_owned()));
    }
    File::open(path).map_err(FileError::io(path))
}

/// Copies a file and returns what came out.
///
/// # Errors
///
/// Returns [`FileError`] when it cannot be copied or is not what is expected; then there is no
/// copy.
pub(crate) fn copy(
    source: &Path,
    target: &Path,
    expected: Expected<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let file = open(source)?;
    write(file, source, target, expected, job)
}

/// Writes what a reader has into a new file; errors name `origin`, where the content comes from.
pub(crate) fn write(
    reader: impl Read,
    origin: &Path,
    target: &Path,
    expected: Expected<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let written = write_all(reader, origin, target, expected, job);
    if written.is_err() {
        // What is left of it would only be in the way; the error that counts is the first.
        let _ = fs::remove_file(target);
    }
    written
}

fn write_all(
    reader: impl Read,
    origin: &Path,
    target: &Path,
    expected: Expected<'_>,
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
    Ok(named(target, bytes, sha256))
}

/// Compares a file with what is expected of it and returns what it is.
///
/// # Errors
///
/// Returns [`FileError`] when it cannot be read or is not what is expected.
pub(crate) fn examine(
    path: &Path,
    expected: Expected<'_>,
    job: &Job,
) -> Result<ModelFile, FileError> {
    let file = open(path)?;
    if let (Some(expected), Ok(metadata)) = (expected.bytes, file.metadata())
        && metadata.len() != expected
    {
        return Err(FileError::Length {
            path: path.to_owned(),
            expected,
            found: metadata.len(),
        });
    }
    let (bytes, sha256) = each_chunk(file, path, expected, job, |_| Ok(()))?;
    Ok(named(path, bytes, sha256))
}

fn named(path: &Path, bytes: u64, sha256: String) -> ModelFile {
    let name = path.file_name().unwrap_or_default();
    ModelFile {
        name: name.to_string_lossy().into_owned(),
        bytes,
        sha256,
    }
}

/// Hands on what a reader has, and returns its length and its digest when they are as expected.
fn each_chunk(
    mut reader: impl Read,
    origin: &Path,
    expected: Expected<'_>,
    job: &Job,
    mut take: impl FnMut(&[u8]) -> Result<(), FileError>,
) -> Result<(u64, String), FileError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut bytes: u64 = 0;
    let length = |found| FileError::Length {
        path: origin.to_owned(),
        expected: expected.bytes.unwrap_or_default(),
        found,
    };
    loop {
        job.check()?;
        let n_read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(n_read) => n_read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FileError::io(origin)(error)),
        };
        bytes += n_read as u64;
        // A compressed file may hold any amount more than it should.
        if expected.bytes.is_some_and(|limit| bytes > limit) {
            return Err(length(bytes));
        }
        hasher.update(&buffer[..n_read]);
        take(&buffer[..n_read])?;
    }
    if expected.bytes.is_some_and(|expected| bytes != expected) {
        return Err(length(bytes));
    }
    let found = hexadecimal(&hasher.finalize());
    match expected.sha256 {
        Some(expected) if expected != found => Err(FileError::Digest {
            path: origin.to_owned(),
            expected: expected.to_owned(),
            found,
        }),
        _ => Ok((bytes, found)),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
