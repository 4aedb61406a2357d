//! Locks between processes. The operating system releases them when a process dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use tokio::time::{Instant, sleep};

use crate::error::open_error;
use crate::private_file;

// The time that a process waits for others that are starting.
const STARTUP_DEADLINE: Duration = Duration::from_secs(10);
// The polling interval for the start-up lock.
const STARTUP_POLL: Duration = Duration::from_millis(5);

pub(super) fn of_run(run_dir: &Path) -> PathBuf {
    run_dir.join("lock")
}

/// Creates the file if it is missing and locks it; `None` when another handle holds it. Dropping
/// the file releases the lock.
pub(crate) fn try_hold(path: &Path) -> io::Result<Option<File>> {
    let file = private_file::options()
        .append(true)
        .create(true)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Waits for the start-up lock, under which processes create their own directory in the spool and
/// look for directories of dead runs. Without it a new directory could seem dead before its owner
/// locks it.
pub(super) async fn hold_startup(spool_dir: &Path) -> Result<File, StoreError> {
    let path = spool_dir.join("startup.lock");
    let deadline = Instant::now() + STARTUP_DEADLINE;
    loop {
        if let Some(lock) = try_hold(&path).map_err(open_error(&path))? {
            return Ok(lock);
        }
        if Instant::now() >= deadline {
            let held = io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock");
            return Err(open_error(&path)(held));
        }
        sleep(STARTUP_POLL).await;
    }
}
