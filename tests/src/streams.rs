//! Recorded streams of calls, which are no part of the project.

use std::path::{Path, PathBuf};

/// Returns the catalogs and the sessions of the streams in a folder, `NAME.catalog.json` with
/// `NAME.jsonl`, by name.
pub fn streams_in(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(folder).expect("the folder of streams can be read");
    let mut streams: Vec<(PathBuf, PathBuf)> = entries
        .filter_map(|entry| {
            let catalog = entry.expect("an entry can be read").path();
            let name = catalog.file_name()?.to_str()?;
            let sessions = format!("{}.jsonl", name.strip_suffix(".catalog.json")?);
            let sessions = catalog.with_file_name(sessions);
            Some((catalog, sessions))
        })
        .collect();
    streams.sort();
    streams
}
