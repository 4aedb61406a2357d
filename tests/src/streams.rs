//! Files with recorded streams of calls. The files are not part of the project.

use std::path::{Path, PathBuf};

/// Returns the paths of the catalog and the sessions of every stream in a folder, sorted by name:
/// `NAME.catalog.json` with `NAME.jsonl`.
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
