//! Reading the file of a client with care.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The maximum size of a file. A larger one is no configuration.
pub const MAX_BYTES: u64 = 5 << 20;

/// The contents of a file.
#[derive(Clone)]
pub struct FileText {
    /// The file itself, if the path is a symbolic link.
    pub target: PathBuf,
    /// The text.
    pub text: String,
}

impl std::fmt::Debug for FileText {
    // The text may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileText")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system reported an error.
    #[error("failed to read {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A symbolic link points to a file that does not exist.
    #[error("{} is a symbolic link to {}, which does not exist", path.display(), target.display())]
    Dangling {
        /// The path of the link.
        path: PathBuf,
        /// The missing file.
        target: PathBuf,
    },
    /// It is a folder, a pipe or a device.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// It is larger than any configuration.
    #[error("{} has {n_bytes} bytes, more than {MAX_BYTES}", path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The size.
        n_bytes: u64,
    },
    /// It is not UTF-8.
    #[error("{} is not UTF-8 text", path.display())]
    NotText {
        /// The path.
        path: PathBuf,
    },
}

/// Checks a file without reading it, and returns its target and its size.
///
/// # Errors
///
/// Returns [`FileError`] if it is missing, dangling, not regular or too large.
pub(crate) fn check(path: &Path) -> Result<(PathBuf, u64), FileError> {
    let io_error = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let link = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if is_missing(&error) => {
            return Err(FileError::Missing {
                path: path.to_owned(),
            });
        }
        Err(source) => return Err(io_error(source)),
    };
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if is_missing(&error) => {
            return Err(FileError::Dangling {
                path: path.to_owned(),
                target: std::fs::read_link(path).map_err(io_error)?,
            });
        }
        Err(source) => return Err(io_error(source)),
    };
    if !metadata.is_file() {
        return Err(FileError::NotRegular {
            path: path.to_owned(),
        });
    }
    if metadata.len() > MAX_BYTES {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            n_bytes: metadata.len(),
        });
    }
    let target = if link.is_symlink() {
        path.canonicalize().map_err(io_error)?
    } else {
        path.to_owned()
    };
    Ok((target, metadata.len()))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Reads a file.
///
/// # Errors
///
/// Returns [`FileError`] if it cannot be used.
pub fn read_text(path: &Path) -> Result<FileText, FileError> {
    let (target, _) = check(path)?;
    let mut bytes = Vec::new();
    File::open(&target)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| FileError::Io {
            path: path.to_owned(),
            source,
        })?;
    // It may have grown since the check.
    if bytes.len() as u64 > MAX_BYTES {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            n_bytes: bytes.len() as u64,
        });
    }
    let text = String::from_utf8(bytes).map_err(|_| FileError::NotText {
        path: path.to_owned(),
    })?;
    Ok(FileText { target, text })
}

/// Returns the SHA-256 of a text, in hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}
