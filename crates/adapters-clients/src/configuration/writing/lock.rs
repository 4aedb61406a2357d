//! A lock file beside the file of a client, so that two installations take turns.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::WriteError;

const POLL: Duration = Duration::from_millis(20);
/// Five seconds: an installation takes far less.
const N_TRIES: usize = 250;

/// A lock that is released, and removed, when it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    _file: File,
}

impl FileLock {
    /// Takes the lock for a file. Waits for another holder for a few seconds.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError`] if it stays in use, or if its file cannot be created.
    pub(super) fn acquire(target: &Path) -> Result<Self, WriteError> {
        let path = sibling(target, "riglm.lock");
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                WriteError::ReadOnly {
                    path: target.parent().unwrap_or(target).to_owned(),
                }
            }
            _ => WriteError::Io {
                path: path.clone(),
                source,
            },
        };
        for _ in 0..N_TRIES {
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(0o600);
            let file = options.open(&path).map_err(io_error)?;
            match file.try_lock() {
                Ok(()) if is_at(&path, &file) => return Ok(Self { path, _file: file }),
                // The holder has removed it in the meantime.
                Ok(()) => continue,
                Err(TryLockError::Error(source)) => return Err(io_error(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            std::thread::sleep(POLL);
        }
        Err(WriteError::Locked {
            path: target.to_owned(),
        })
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A lock file that stays does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    match (path.metadata(), file.metadata()) {
        (Ok(one), Ok(other)) => one.dev() == other.dev() && one.ino() == other.ino(),
        _ => false,
    }
}

/// Returns the path of a file beside another one, with its name and an ending.
pub(super) fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}
