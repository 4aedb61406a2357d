//! A database file that is damaged: noticed, and moved aside at the next start.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use riglm_ports::analytics::StoreError;
use tokio::time::Instant;

use crate::database::Depth;
use crate::private_file;
use crate::store::Store;

/// The largest file that every start looks through, in bytes: it takes about a tenth of a second.
/// Damage in a larger one is noticed when a statement meets it.
const MAX_CHECKED_BYTES: u64 = 32 * 1024 * 1024;
/// How often a process looks whether another one has moved the file by now.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// How long others may go on using a file that is to be moved.
const ALONE_WITHIN: Duration = Duration::from_secs(2);

/// How many damaged files of one second have names of their own; the last is replaced.
const MAX_ASIDE: u32 = 100;

/// Takes note that a statement met damage, for the next start.
pub(crate) fn note(path: &Path) {
    if let Err(error) = private_file::ensure(&mark_of(path)) {
        tracing::warn!(%error, "could not take note of the damage in {}", path.display());
    }
}

/// Returns the store with a sound file at `path`, and what was wrong if it was not: then the file
/// was moved aside, with those that belong to it, and the store is an empty one. A damaged file
/// that another process uses, or that cannot be moved, stays where it is.
pub(crate) async fn without(store: Store, path: &Path, now: Timestamp) -> (Store, Option<String>) {
    let before = identity(path);
    let Some(damage) = find(&store, path).await else {
        return (store, None);
    };
    let fresh = store.reopened();
    store.close().await;
    let shown = path.display();
    let outcome = hold_alone(path).await.and_then(|_lock| {
        // Of several processes that find the damage one moves the file, the others find it moved.
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
            format!("{shown} was damaged ({damage}), it is {aside} now, and an empty one is used")
        }
        Err(error) => format!("{shown} is damaged ({damage}) and stays in its place: {error}"),
    };
    tracing::error!("{notice}");
    (fresh, Some(notice))
}

/// Returns what keeps others from moving the file, until it is dropped.
pub(crate) async fn hold_in_use(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    loop {
        match lock.try_lock_shared() {
            Ok(()) => return Ok(lock),
            // It is being moved, which takes a moment.
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Returns what keeps others from using the file, when none does for a while: others that start
/// on a damaged file use it for a moment only.
async fn hold_alone(path: &Path) -> io::Result<File> {
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

/// Returns what is wrong with the file.
async fn find(store: &Store, path: &Path) -> Option<String> {
    if let Err(StoreError::Damaged { reason, .. }) = store.open().await {
        return Some(reason);
    }
    let is_marked = mark_of(path).exists();
    let len = path.metadata().map_or(0, |metadata| metadata.len());
    if len > MAX_CHECKED_BYTES && !is_marked {
        return None;
    }
    let depth = if is_marked {
        Depth::Indexes
    } else {
        Depth::Pages
    };
    match store.look_through(depth).await {
        Ok(finding) => {
            if finding.is_none() {
                // Another process has moved the file aside, or somebody mended it.
                drop(std::fs::remove_file(mark_of(path)));
            }
            finding
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not look through {}",
                path.display()
            );
            None
        }
    }
}

/// Renames the file and those that belong to it; returns its new name.
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

/// Returns what tells the file from another one that takes its place.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Returns what tells the file from another one that takes its place.
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
