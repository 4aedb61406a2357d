//! Damaged database files: detection, and moving the file aside at the next start.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use riglm_ports::analytics::StoreError;
use tokio::time::Instant;

use crate::database::CheckDepth;
use crate::private_file;
use crate::store::Store;

/// The largest file that is checked at every start, in bytes: the check takes about a tenth of a
/// second. Damage in a larger file is noticed when a statement finds it.
const MAX_CHECKED_BYTES: u64 = 32 * 1024 * 1024;
// The polling interval for the lock while another process moves the file.
const LOCK_POLL: Duration = Duration::from_millis(5);

// The time that other processes get to release a file that is to be moved.
const ALONE_WITHIN: Duration = Duration::from_secs(2);

// The maximum number of damaged files with the same second in their names; the last one is
// replaced.
const MAX_ASIDE: u32 = 100;

// Leaves a mark for the next start, which then checks the file completely.
pub(crate) fn mark_damaged(path: &Path) {
    if let Err(error) = private_file::ensure(&mark_of(path)) {
        tracing::warn!(%error, "failed to mark {} as damaged", path.display());
    }
}

/// Returns the store with a sound file at `path`, and a description of the damage if it was not
/// sound.
///
/// A damaged file is moved aside with its log files, and the returned store is an empty one. A
/// damaged file that another process uses, or that cannot be moved, stays in its place.
pub(crate) async fn replace_if_damaged(
    store: Store,
    path: &Path,
    now: Timestamp,
) -> (Store, Option<String>) {
    let before = identity(path);
    let Some(damage) = find_damage(&store, path).await else {
        return (store, None);
    };
    let fresh = store.unopened_copy();
    store.close().await;
    let shown = path.display();
    let outcome = lock_exclusive(path).await.and_then(|_lock| {
        // Of several processes that find the damage, one moves the file and the others find it
        // already moved.
        if identity(path) == before {
            move_aside(path, now).map(Some)
        } else {
            Ok(None)
        }
    });
    let notice = match outcome {
        Ok(None) => return (fresh, None),
        Ok(Some(aside)) => {
            let aside = aside.display();
            format!(
                "{shown} was damaged ({damage}): moved it to {aside}, and started an empty database"
            )
        }
        Err(error) => format!("{shown} is damaged ({damage}), and failed to move it away: {error}"),
    };
    tracing::error!("{notice}");
    (fresh, Some(notice))
}

/// Returns a shared lock: no other process moves the file until it is dropped.
pub(crate) async fn lock_shared(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    loop {
        match lock.try_lock_shared() {
            Ok(()) => return Ok(lock),
            // Another process is moving the file, which takes a moment.
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Returns an exclusive lock: no other process uses the file until it is dropped. Waits for a
/// while, because other processes that start on a damaged file use it only for a moment.
async fn lock_exclusive(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    let deadline = Instant::now() + ALONE_WITHIN;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process uses it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    private_file::options()
        .append(true)
        .create(true)
        .open(with_suffix(path, ".lock"))
}

// A mark of earlier damage makes the check complete, whatever the size of the file.
async fn find_damage(store: &Store, path: &Path) -> Option<String> {
    if let Err(StoreError::Damaged { reason, .. }) = store.open().await {
        return Some(reason);
    }
    // A mark means that a statement met damage, which needs the deeper check.
    let is_marked = mark_of(path).exists();
    let len = path.metadata().map_or(0, |metadata| metadata.len());
    if len > MAX_CHECKED_BYTES && !is_marked {
        return None;
    }
    let depth = if is_marked {
        CheckDepth::Indexes
    } else {
        CheckDepth::Pages
    };
    match store.integrity_check(depth).await {
        Ok(finding) => {
            if finding.is_none() {
                // Another process has moved the file aside, or it was repaired by hand.
                drop(std::fs::remove_file(mark_of(path)));
            }
            finding
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to check {} for damage",
                path.display()
            );
            None
        }
    }
}

/// Renames the file and its log files; returns the new name.
fn move_aside(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let name = format!(".damaged-{}", now.as_second());
    let mut aside = with_suffix(path, &name);
    for n in 1..MAX_ASIDE {
        if !aside.exists() {
            break;
        }
        aside = with_suffix(path, &format!("{name}-{n}"));
    }
    std::fs::rename(path, &aside)?;
    for suffix in ["-wal", "-shm"] {
        let moved = std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix));
        match moved {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match std::fs::remove_file(mark_of(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(aside),
    }
}

/// Returns the identity of the file, which differs from the one of a replacement.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Returns the identity of the file, which differs from the one of a replacement.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().ok()?.created().ok()
}

fn mark_of(path: &Path) -> PathBuf {
    with_suffix(path, ".damaged")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
