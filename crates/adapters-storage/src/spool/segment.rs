//! The files in the directory of a run.

use std::io;
use std::path::{Path, PathBuf};

pub(super) const FIRST: u64 = 1;

pub(super) fn path(run_dir: &Path, number: u64) -> PathBuf {
    run_dir.join(format!("{number:06}.jsonl"))
}

/// Returns the numbers of the existing segments, ascending; none without the directory.
pub(super) fn numbers(run_dir: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(run_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_suffix(".jsonl"))
            .and_then(|number| number.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Deletes a segment. A missing segment is not an error.
pub(super) fn delete(run_dir: &Path, number: u64) -> io::Result<()> {
    match std::fs::remove_file(path(run_dir, number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
