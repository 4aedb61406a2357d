//! Recovery of the records that dead runs left in the spool, and import of the records of live
//! runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use riglm_domain::id::RunId;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use tracing::{info, warn};

use super::apply::{RetryPolicy, apply};
use super::reader::{SegmentEnd, SpoolReader};
use super::{lock, segment};
use crate::error::{open_error, operation_error};

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

#[derive(Debug, Default)]
pub(super) struct SpoolSurvey {
    /// Runs whose process is dead. This process holds their locks now.
    pub(super) dead: Vec<DeadRun>,
    /// The directories of runs that are alive, or that another process is recovering.
    pub(super) live: Vec<PathBuf>,
}

/// Inspects every run in the spool, oldest first. The caller holds the start-up lock.
pub(super) fn survey(spool_dir: &Path) -> io::Result<SpoolSurvey> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(spool_dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(run) = name.to_str().and_then(|name| name.parse::<RunId>().ok()) {
            runs.push((run, entry.path()));
        }
    }
    // Identifiers of runs begin with their time, so this is the order of the runs.
    runs.sort_unstable();
    let mut survey = SpoolSurvey::default();
    for (run, dir) in runs {
        match lock::try_hold(&lock::of_run(&dir)) {
            Ok(Some(held)) => survey.dead.push(DeadRun {
                run,
                dir,
                _lock: held,
            }),
            Ok(None) => survey.live.push(dir),
            // Its process has just ended cleanly and deleted the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let dir = dir.display();
                warn!(%error, "failed to read {dir}, its records stay there");
            }
        }
    }
    Ok(survey)
}

/// Applies the records of a dead run, closes its open calls and sessions, and deletes its
/// directory.
///
/// A crash meanwhile is harmless: the next process finds the directory again, and applying twice
/// changes nothing.
///
/// # Errors
///
/// Returns [`StoreError::Failed`] when the files cannot be read or deleted, and, without patience,
/// when the sink does not take the records. Unapplied records stay in the spool.
pub(super) async fn recover(
    dead: DeadRun,
    sink: &dyn RecordSink,
    patience: RetryPolicy<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let n_records = replay(&dead.dir, SegmentEnd::Final, sink, patience).await?;
    let run = dead.run;
    let lost = Record::RunLost {
        run,
        noticed_at: now,
    };
    apply(sink, &[lost], patience).await?;
    remove(&dead.dir).map_err(operation_error("remove the spool of an earlier run"))?;
    info!(
        records = n_records,
        %run,
        "recovered {n_records} records of run {run}, which did not shut down cleanly"
    );
    Ok(())
}

/// Applies the current records in the directory of a run; returns their number.
async fn replay(
    run_dir: &Path,
    end: SegmentEnd,
    sink: &dyn RecordSink,
    patience: RetryPolicy<'_>,
) -> Result<u64, StoreError> {
    // A live run continues to write. Records after this moment are not waited for.
    let mut rest = size(run_dir).map_err(operation_error("read the spool"))?;
    let mut reader = SpoolReader::new(run_dir);
    let (mut n_records, mut n_torn) = (0, 0);
    loop {
        let batch = reader
            .next_batch(end)
            .map_err(operation_error("read the spool"))?;
        if batch.bytes == 0 {
            break;
        }
        if !batch.records.is_empty() {
            apply(sink, &batch.records, patience).await?;
        }
        n_records += batch.records.len() as u64;
        n_torn += batch.n_torn;
        rest = rest.saturating_sub(batch.bytes);
        if rest == 0 && end == SegmentEnd::Growing {
            break;
        }
    }
    if n_torn > 0 {
        let dir = run_dir.display();
        warn!(
            lines.torn = n_torn,
            "skipped {n_torn} invalid lines in {dir}"
        );
    }
    Ok(n_records)
}

/// Returns the number of bytes that the runs left. A directory that cannot be read counts as 0.
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

/// Deletes the directory of a run, its lock last, so that another process can continue an
/// interrupted deletion.
pub(super) fn remove(run_dir: &Path) -> io::Result<()> {
    for number in segment::numbers(run_dir)? {
        segment::delete(run_dir, number)?;
    }
    std::fs::remove_file(lock::of_run(run_dir))?;
    std::fs::remove_dir(run_dir)
}

/// Imports the spool for a process that only reads: recovers dead runs, and applies the records
/// that live runs have written so far.
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
    // A run that is just starting must not seem dead.
    let startup = lock::hold_startup(spool_dir).await?;
    let survey = survey(spool_dir).map_err(open_error(spool_dir))?;
    drop(startup);
    for dir in survey.live {
        replay(&dir, SegmentEnd::Growing, sink, RetryPolicy::None).await?;
    }
    for run in survey.dead {
        recover(run, sink, RetryPolicy::None, now).await?;
    }
    Ok(())
}
