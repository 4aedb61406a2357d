//! A database file that is damaged: noticed, and moved aside at the next start.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use riglm_ports::analytics::StoreError;

use crate::error::failing;
use crate::private_file;
use crate::store::Store;

/// The largest file that every start looks through, in bytes: it takes about a tenth of a second.
/// Damage in a larger one is noticed when a statement meets it.
const MAX_CHECKED_BYTES: u64 = 32 * 1024 * 1024;

/// Takes note that a statement met damage, for the next start.
pub(crate) fn note(path: &Path) {
    if let Err(error) = private_file::ensure(&mark_of(path)) {
        tracing::warn!(%error, "could not take note of the damage in {}", path.display());
    }
}

/// Returns the store with a sound file at `path`, and what was wrong if it was not: then the file
/// was moved aside, with those that belong to it, and the store is an empty one.
///
/// # Errors
///
/// Returns [`StoreError::Failed`] when a damaged file cannot be moved.
pub(crate) async fn without(
    store: Store,
    path: &Path,
    now: Timestamp,
) -> Result<(Store, Option<String>), StoreError> {
    let Some(damage) = find(&store, path).await else {
        return Ok((store, None));
    };
    let fresh = store.reopened();
    store.close().await;
    let aside = move_aside(path, now).map_err(failing("move a damaged database aside"))?;
    let path = path.display();
    let aside = aside.display();
    tracing::error!("{path} is damaged ({damage}): it is {aside} now, and an empty one is used");
    let notice = format!("{path} was damaged ({damage}), it is {aside} now");
    Ok((fresh, Some(notice)))
}

/// Returns what is wrong with the file.
async fn find(store: &Store, path: &Path) -> Option<String> {
    if let Err(StoreError::Damaged { reason, .. }) = store.open().await {
        return Some(reason);
    }
    let len = path.metadata().map_or(0, |metadata| metadata.len());
    if len > MAX_CHECKED_BYTES && !mark_of(path).exists() {
        return None;
    }
    let finding = store.quick_check().await;
    if finding.is_none() {
        // Another process has moved the file aside, or somebody mended it.
        drop(std::fs::remove_file(mark_of(path)));
    }
    finding
}

/// Renames the file and those that belong to it; returns its new name.
fn move_aside(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let aside = with_suffix(path, &format!(".damaged-{}", now.as_second()));
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

fn mark_of(path: &Path) -> PathBuf {
    with_suffix(path, ".damaged")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
