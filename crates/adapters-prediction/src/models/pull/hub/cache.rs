//! The cache that programs of the hub share: `models--ORG--NAME/{refs,snapshots,blobs}`.

use std::fs;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, Repo};

use super::LocalFile;
use crate::models::name::is_plain;

/// Returns the files of a repository in a cache with their commit, if all of them are there.
pub(super) fn find(
    cache: Option<&Path>,
    repository: &str,
    names: &[&str],
) -> Option<(Vec<LocalFile>, String)> {
    let cache = Cache::new(cache?.to_owned());
    let repo = Repo::model(repository.to_owned());
    let folder = cache.path().join(repo.folder_name());
    let snapshot = newest_snapshot(&folder)?;
    let commit = snapshot.file_name()?.to_string_lossy().into_owned();
    let mut files = Vec::new();
    for name in names {
        let path = snapshot.join(name);
        // The entry of a snapshot is a link to a blob, whose name is the hash of its content.
        let blob = fs::canonicalize(&path).ok()?;
        let etag = blob.file_name()?.to_string_lossy().into_owned();
        files.push(LocalFile {
            name: (*name).to_owned(),
            path,
            etag,
        });
    }
    Some((files, commit))
}

/// Returns the snapshot of the main branch at its last update.
pub(in crate::models::pull) fn newest_snapshot(folder: &Path) -> Option<PathBuf> {
    let commit = fs::read_to_string(folder.join("refs").join("main")).ok()?;
    let commit = commit.trim();
    let snapshot = folder.join("snapshots").join(commit);
    (is_plain(commit) && snapshot.is_dir()).then_some(snapshot)
}
