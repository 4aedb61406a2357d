//! What other runs left in the spool, or are about to carry to the database themselves.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use riglm_domain::id::RunId;
use riglm_domain::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use tracing::{info, warn};

use super::apply::{Patience, apply};
use super::reader::{End, SpoolReader};
use super::{lock, segment};
use crate::error::{failing, opening};

/// The directory of a run whose process is dead, locked by this process.
#[derive(Debug)]
pub(super) struct DeadRun {
    run: RunId,
    dir: PathBuf,
    _lock: File,
}

impl DeadRun {
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The runs in a spool.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Those whose process is dead; this process holds their locks now.
    pub(super) dead: Vec<DeadRun>,
    /// The directories of those that are alive, or that another process is recovering.
    pub(super) live: Vec<PathBuf>,
}

/// Looks at every run in the spool, oldest first. The caller holds the start-up lock.
pub(super) fn survey(spool_dir: &Path) -> io::Result<Survey> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(spool_dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(run) = name.to_str().and_then(|name| name.parse::<RunId>().ok()) {
            runs.push((run, entry.path()));
        }
    }
    runs.sort_unstable();
    let mut survey = Survey::default();
    for (run, dir) in runs {
        match lock::try_hold(&lock::of_run(&dir)) {
            Ok(Some(held)) => survey.dead.push(DeadRun {
                run,
                dir,
                _lock: held,
            }),
            Ok(None) => survey.live.push(dir),
            // Its process has just ended cleanly and removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let dir = dir.display();
                warn!(%error, "could not look into {dir}, its records stay there");
            }
        }
    }
    Ok(survey)
}

/// Applies what a dead run left, closes what it left open, and removes its directory.
///
/// Dying on the way is harmless: the next process finds the directory again, and applying twice
/// changes nothing.
///
/// # Errors
///
/// Returns [`StoreError::Failed`] when the files cannot be read or removed, and, without patience,
/// when the sink does not take the records. What was not applied stays where it is.
pub(super) async fn recover(
    dead: DeadRun,
    sink: &dyn RecordSink,
    patience: Patience<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let n_records = replay(&dead.dir, End::Final, sink, patience).await?;
    let run = dead.run;
    let lost = Record::RunLost {
        run,
        noticed_at: now,
    };
    apply(sink, &[lost], patience).await?;
    remove(&dead.dir).map_err(failing("remove the spool of a dead run"))?;
    info!(records = n_records, %run, "recovered {n_records} records of run {run}, which did not end cleanly");
    Ok(())
}

/// Applies what is in the directory of a run now; returns how many records that were.
async fn replay(
    run_dir: &Path,
    end: End,
    sink: &dyn RecordSink,
    patience: Patience<'_>,
) -> Result<u64, StoreError> {
    // A live run goes on writing: what comes after this moment is not waited for.
    let mut rest = size(run_dir).map_err(failing("read the spool"))?;
    let mut reader = SpoolReader::new(run_dir);
    let (mut n_records, mut n_torn) = (0, 0);
    loop {
        let batch = reader.next_batch(end).map_err(failing("read the spool"))?;
        if batch.bytes == 0 {
            break;
        }
        if !batch.records.is_empty() {
            apply(sink, &batch.records, patience).await?;
        }
        n_records += batch.records.len() as u64;
        n_torn += batch.n_torn;
        rest = rest.saturating_sub(batch.bytes);
        if rest == 0 && end == End::Growing {
            break;
        }
    }
    if n_torn > 0 {
        let dir = run_dir.display();
        warn!(
            lines.torn = n_torn,
            "skipped {n_torn} lines in {dir} that are no records"
        );
    }
    Ok(n_records)
}

/// Returns how many bytes the runs left. What cannot be looked at counts as nothing.
pub(super) fn bytes_of(runs: &[DeadRun]) -> u64 {
    runs.iter().map(|run| size(&run.dir).unwrap_or(0)).sum()
}

fn size(run_dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for number in segment::numbers(run_dir)? {
        match std::fs::metadata(segment::path(run_dir, number)) {
            Ok(metadata) => bytes += metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Removes the directory of a run, its lock last, so that whoever finds the rest may claim it.
pub(super) fn remove(run_dir: &Path) -> io::Result<()> {
    for number in segment::numbers(run_dir)? {
        segment::delete(run_dir, number)?;
    }
    std::fs::remove_file(lock::of_run(run_dir))?;
    std::fs::remove_dir(run_dir)
}

/// Brings the rows up to date with the spool for a process that only reads: recovers dead runs
/// and applies what live ones have written so far.
///
/// # Errors
///
/// Returns [`StoreError`] when the spool cannot be read or the sink does not take the records.
pub(crate) async fn import(
    spool_dir: &Path,
    sink: &dyn RecordSink,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !spool_dir.exists() {
        return Ok(());
    }
    let startup = lock::hold_startup(spool_dir).await?;
    let survey = survey(spool_dir).map_err(opening(spool_dir))?;
    drop(startup);
    for dir in survey.live {
        replay(&dir, End::Growing, sink, Patience::None).await?;
    }
    for run in survey.dead {
        recover(run, sink, Patience::None, now).await?;
    }
    Ok(())
}
