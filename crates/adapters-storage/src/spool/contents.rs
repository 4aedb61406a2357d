//! Inspection of the spool over all runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_domain::id::RunId;
use tokio::time::{Instant, sleep};

use super::segment;

// The polling interval for the deletion of segments.
const POLL: Duration = Duration::from_millis(50);

/// Returns the number of bytes in the segments of all runs. While a run lives, its newest segments
/// may already be rows that its process is about to delete.
pub(crate) fn bytes(spool_dir: &Path) -> io::Result<u64> {
    let sizes = segments(spool_dir)?.into_iter().map(|(_, size)| size);
    Ok(sizes.sum())
}

pub(crate) fn contains_any(spool_dir: &Path, texts: &[String]) -> io::Result<bool> {
    for (path, _) in segments(spool_dir)? {
        let content = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            content => content?,
        };
        // A torn line may end inside a character.
        let content = String::from_utf8_lossy(&content);
        if texts.iter().any(|text| content.contains(text)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until every current non-empty segment is deleted, which means that its records are rows.
/// Returns false at the deadline.
pub(crate) async fn wait_until_drained(spool_dir: &Path, deadline: Instant) -> io::Result<bool> {
    let mut waiting = segments(spool_dir)?;
    loop {
        waiting.retain(|(path, _)| path.exists());
        if waiting.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(POLL).await;
    }
}

/// Returns the non-empty segments of all runs with their sizes; none without a spool.
fn segments(spool_dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let entries = match std::fs::read_dir(spool_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name
            .to_str()
            .is_none_or(|name| name.parse::<RunId>().is_err())
        {
            continue;
        }
        for number in segment::numbers(&entry.path())? {
            let path = segment::path(&entry.path(), number);
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.len() > 0 => found.push((path, metadata.len())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use riglm_ports::contract::scene::run;

    use super::*;

    #[test]
    fn only_run_segments_are_counted_and_searched() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert_eq!(bytes(&missing).unwrap(), 0);
        for n in [1, 2] {
            let run_dir = dir.path().join(run(n).to_string());
            std::fs::create_dir(&run_dir).unwrap();
            std::fs::write(segment::path(&run_dir, 3), format!("alice{n}\n")).unwrap();
            std::fs::write(run_dir.join("lock"), "carol").unwrap();
        }
        std::fs::write(dir.path().join("startup.lock"), "carol").unwrap();
        assert_eq!(bytes(dir.path()).unwrap(), 14);
        let mentions = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).into()).collect();
            contains_any(dir.path(), &texts).unwrap()
        };
        assert!(mentions(&["bob", "alice2"]));
        assert!(!mentions(&["bob", "carol"]));
    }
}
