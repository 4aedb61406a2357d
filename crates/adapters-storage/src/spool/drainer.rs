//! The drainer: the task that turns appended records into rows.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use riglm_ports::analytics::RecordSink;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, warn};

use super::apply::{RetryPolicy, apply};
use super::condition::one_line;
use super::journal::SharedState;
use super::reader::{RecordBatch, SegmentEnd, SpoolReader};
use super::recovery::{self, DeadRun};
use super::segment;

/// The shortest time between the starts of two transactions under little load. Records that arrive
/// meanwhile share the next transaction.
const COLLECT_FOR: Duration = Duration::from_millis(100);
/// The same time under load, when a transaction that waits longer is shared by many more records.
const COLLECT_UNDER_LOAD_FOR: Duration = Duration::from_millis(500);
/// The number of bytes that arrive in [`COLLECT_FOR`] under load: the records of about 100 calls.
const LOAD_BYTES: u64 = 64 * 1024;
/// The size in bytes above which a completely applied segment is replaced by a new one.
const MIN_ROTATED_BYTES: u64 = 64 * 1024;
/// The age after which a non-empty segment is replaced by a new one, however small it is. So data
/// that is in rows does not stay in a file.
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(1);
/// The back-off after the files of the spool could not be read.
const READ_BACKOFF: Duration = Duration::from_secs(1);
/// The wait after a refused record, while nothing else is appended, before the next check for free
/// space.
const PROBE_BACKOFF: Duration = Duration::from_millis(500);

/// Replays the dead runs, then drains records until the journal closes; returns whether nothing is
/// left then.
pub(super) async fn run(
    shared: Arc<SharedState>,
    sink: Arc<dyn RecordSink>,
    dead: Vec<DeadRun>,
    now: Timestamp,
) -> bool {
    let mut dead = dead;
    while !dead.is_empty() {
        let run = dead.remove(0);
        let dir = run.dir().display().to_string();
        let patience = RetryPolicy::Endless(&shared.condition);
        if let Err(error) = recovery::recover(run, sink.as_ref(), patience, now).await {
            let error = &error as &dyn std::error::Error;
            warn!(
                error,
                "failed to recover all records of an earlier run from {dir}"
            );
        }
        shared.set_inherited(recovery::bytes_of(&dead));
    }
    let mut closing = shared.closing.subscribe();
    let mut reader = SpoolReader::new(&shared.run_dir);
    let mut oldest = segment::FIRST;
    let mut renewed = Instant::now();
    loop {
        let started = Instant::now();
        // Read before the files: nothing is appended once it is true.
        let is_closing = *closing.borrow_and_update();
        let (returned, batch) = match next_batch(reader).await {
            Ok(read) => read,
            Err(ended) => {
                error!(%ended, "the spool reader failed, records wait for the next start");
                shared.condition.set_apply_failure(one_line(&ended));
                return false;
            }
        };
        reader = returned;
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                warn!(%error, "failed to read the spool, retrying");
                shared.condition.set_apply_failure(one_line(&error));
                sleep(READ_BACKOFF).await;
                continue;
            }
        };
        apply_batch(&shared, sink.as_ref(), &batch).await;
        // All segments before the current one are completely applied.
        delete_applied(&shared, &mut oldest, reader.segment());
        if shared.condition.is_refusing() {
            probe(&shared).await;
        }
        if batch.bytes == 0 && is_closing {
            return true;
        }
        if !batch.is_full() && renewed.elapsed() >= MAX_SEGMENT_AGE && shared.has_lines() {
            shared.rotate();
            renewed = Instant::now();
            // The next pass continues with the new segment and deletes the old one.
            continue;
        }
        if batch.bytes == 0 {
            shared.rotate_applied(MIN_ROTATED_BYTES);
            tokio::select! {
                // The beginning of a call is soon followed by its end, and by other calls.
                () = shared.wake.notified() => collect(&shared, &mut closing, Instant::now()).await,
                () = sleep(PROBE_BACKOFF), if shared.condition.is_refusing() => {}
                _ = closing.changed() => {}
                () = sleep_until(renewed + MAX_SEGMENT_AGE), if shared.has_lines() => {}
            }
        } else if !batch.is_full() {
            collect(&shared, &mut closing, started).await;
        }
    }
}

/// Reads and parses on a thread for blocking work.
async fn next_batch(
    mut reader: SpoolReader,
) -> Result<(SpoolReader, io::Result<RecordBatch>), tokio::task::JoinError> {
    tokio::task::spawn_blocking(move || {
        let batch = reader.next_batch(SegmentEnd::Growing);
        (reader, batch)
    })
    .await
}

async fn apply_batch(shared: &SharedState, sink: &dyn RecordSink, batch: &RecordBatch) {
    if batch.n_torn > 0 {
        let n = batch.n_torn;
        warn!(lines.torn = n, "skipped {n} invalid lines of the spool");
    }
    if !batch.records.is_empty() {
        // With endless patience there is no error.
        drop(
            apply(
                sink,
                &batch.records,
                RetryPolicy::Endless(&shared.condition),
            )
            .await,
        );
    }
    // The files can be read again, too.
    shared.condition.clear_apply_failure();
    shared
        .applied
        .send_modify(|applied| *applied += batch.bytes);
}

/// Checks whether a record would be accepted now. Without this check, the journal would stay behind
/// if no further record arrives because the last one was refused.
async fn probe(shared: &Arc<SharedState>) {
    let shared = Arc::clone(shared);
    // If the thread panics, the condition stays unchanged.
    drop(tokio::task::spawn_blocking(move || shared.probe()).await);
}

/// Deletes the segments before the current one. A later pass retries a failure.
fn delete_applied(shared: &SharedState, oldest: &mut u64, current: u64) {
    while *oldest < current {
        if let Err(error) = segment::delete(&shared.run_dir, *oldest) {
            warn!(%error, "failed to delete an applied segment of the spool");
            return;
        }
        *oldest += 1;
    }
}

/// Waits until enough records have arrived for the next transaction, or until its time has come.
async fn collect(shared: &SharedState, closing: &mut watch::Receiver<bool>, started: Instant) {
    tokio::select! {
        () = collect_in_time(shared, started) => {}
        () = shared.until_pressed() => {}
        _ = closing.changed() => {}
    }
}

/// Waits for [`COLLECT_FOR`], and again while many records arrive.
async fn collect_in_time(shared: &SharedState, started: Instant) {
    let (mut due, mut waiting) = (started, 0);
    loop {
        due += COLLECT_FOR;
        sleep_until(due).await;
        let n_new = shared.waiting().saturating_sub(waiting);
        if n_new < LOAD_BYTES || due >= started + COLLECT_UNDER_LOAD_FOR {
            return;
        }
        waiting += n_new;
    }
}
