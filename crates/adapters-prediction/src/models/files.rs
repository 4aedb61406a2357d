//! Files of models: access only for the owner, and verification of sizes and digests.

#[cfg(feature = "model")]
mod copying;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

#[cfg(feature = "model")]
pub(crate) use self::copying::{copy, make_private, write};
use super::job::{Interruption, Job};
use super::manifest::ModelFile;

/// Size of a read in bytes.
const CHUNK: usize = 1 << 18;

/// Expected properties of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileExpectation<'a> {
    /// Size in bytes, if known.
    pub(crate) bytes: Option<u64>,
    /// SHA-256 in lower-case hexadecimal, if known.
    pub(crate) sha256: Option<&'a str>,
}

/// The reason why a file is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("failed to read or write {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    /// The size differs from the expected one.
    #[error("{path} is damaged: it has {found} bytes instead of {expected}")]
    Length {
        /// The file.
        path: PathBuf,
        /// The expected size in bytes.
        expected: u64,
        /// The actual size in bytes. If it is larger than expected, this is a lower bound.
        found: u64,
    },
    /// The digest differs from the expected one.
    #[error("{path} is damaged: its SHA-256 is {found} instead of {expected}")]
    Digest {
        /// The file.
        path: PathBuf,
        /// The expected digest.
        expected: String,
        /// The actual digest.
        found: String,
    },
    /// The job was interrupted.
    #[error(transparent)]
    Interrupted(#[from] Interruption),
}

impl FileError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// Creates `path` and its missing parents with access only for the owner. An existing directory is
/// not changed.
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

/// Returns options for a file with access only for the owner.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Returns whether the path exists. A dangling symbolic link also counts.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Removes a directory with its content, or a file. A missing path is not an error.
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

/// Opens a regular file. Refuses anything else, because opening a pipe could block.
pub(crate) fn open(path: &Path) -> Result<File, FileError> {
    let metadata = fs::metadata(path).map_err(FileError::io(path))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile(path.to_owned()));
    }
    File::open(path).map_err(FileError::io(path))
}

/// Compares a file with the expected properties and returns its properties.
///
/// # Errors
///
/// Returns [`FileError`] when the file cannot be read or differs from the expected one.
pub(crate) fn verify(
    path: &Path,
    expected: FileExpectation<'_>,
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
    Ok(model_file(path, bytes, sha256))
}

fn model_file(path: &Path, bytes: u64, sha256: String) -> ModelFile {
    let name = path.file_name().unwrap_or_default();
    ModelFile {
        name: name.to_string_lossy().into_owned(),
        bytes,
        sha256,
    }
}

/// Passes the content of a reader to `take` in chunks. Returns the size and the digest if they are
/// as expected.
fn each_chunk(
    mut reader: impl Read,
    origin: &Path,
    expected: FileExpectation<'_>,
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
        // A compressed file may expand to any size, so the limit is checked while reading.
        if expected.bytes.is_some_and(|limit| bytes > limit) {
            return Err(length(bytes));
        }
        hasher.update(&buffer[..n_read]);
        take(&buffer[..n_read])?;
    }
    if expected.bytes.is_some_and(|expected| bytes != expected) {
        return Err(length(bytes));
    }
    let found = hex::encode(hasher.finalize());
    match expected.sha256 {
        Some(expected) if expected != found => Err(FileError::Digest {
            path: origin.to_owned(),
            expected: expected.to_owned(),
            found,
        }),
        _ => Ok((bytes, found)),
    }
}
