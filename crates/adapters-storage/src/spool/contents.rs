//! What stands in the spool, of whatever run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_domain::id::RunId;
use tokio::time::{Instant, sleep};

use super::segment;

/// How often it is looked whether segments are gone.
const POLL: Duration = Duration::from_millis(50);

/// Returns how many bytes the segments of all runs have. While a run lives, the newest of them are
/// rows already, which its process is about to remove.
pub(crate) fn bytes(spool_dir: &Path) -> io::Result<u64> {
    let sizes = segments(spool_dir)?.into_iter().map(|(_, size)| size);
    Ok(sizes.sum())
}

/// Returns whether a segment has one of the texts.
pub(crate) fn mentions(spool_dir: &Path, texts: &[String]) -> io::Result<bool> {
    for (path, _) in segments(spool_dir)? {
        let content = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            content => content?,
        };
        let content = String::from_utf8_lossy(&content);
        if texts.iter().any(|text| content.contains(text)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until every segment that has lines now is gone, which means that its records are rows;
/// returns whether they are by the deadline.
pub(crate) async fn passed(spool_dir: &Path, deadline: Instant) -> io::Result<bool> {
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

/// Returns the segments of all runs that have lines, with their sizes; none without a spool.
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
    fn what_the_runs_wrote_is_found_and_nothing_else() {
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
            mentions(dir.path(), &texts).unwrap()
        };
        assert!(mentions(&["bob", "alice2"]));
        assert!(!mentions(&["bob", "carol"]));
    }
}
