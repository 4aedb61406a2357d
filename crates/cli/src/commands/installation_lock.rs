//! The lock of commands that change the files of clients, and the record of these changes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::args::ChangeArgs;

/// The time to wait for another installation.
const PATIENCE: Duration = Duration::from_secs(10);
/// The polling interval.
const POLL: Duration = Duration::from_millis(50);

/// A lock between processes, until it is dropped.
#[derive(Debug)]
pub(super) struct InstallationLock {
    _file: File,
}

impl InstallationLock {
    /// Waits for the lock of a change; `None` if the changes are only shown.
    ///
    /// # Errors
    ///
    /// As [`Self::acquire`] does.
    pub(super) fn of_change(data_dir: &Path, change: &ChangeArgs) -> anyhow::Result<Option<Self>> {
        (!change.dry_run)
            .then(|| Self::acquire(data_dir))
            .transpose()
    }

    /// Waits for the lock in a data directory, which is created.
    ///
    /// # Errors
    ///
    /// Returns an error if another process keeps it, and that of the system.
    fn acquire(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join("installations.lock");
        let failed = || format!("failed to lock {}", path.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir)
            .with_context(failed)?;
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600);
        let file = options.open(&path).with_context(failed)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(std::fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(POLL);
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    anyhow::bail!("another process is changing the files of clients");
                }
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(error).with_context(failed);
                }
            }
        }
    }
}
