//! The task that makes rows of what was appended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use riglm_ports::analytics::RecordSink;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, warn};

use super::apply::{Patience, apply};
use super::condition::one_line;
use super::journal::Shared;
use super::reader::{Batch, End, SpoolReader};
use super::recovery::{self, DeadRun};
use super::segment;

/// The shortest time between the starts of two transactions while little is waiting: records
/// that arrive meanwhile share the next one.
const COLLECT_FOR: Duration = Duration::from_millis(100);
/// The size in bytes over which a segment that is all applied is replaced by a new one.
const MIN_ROTATED_BYTES: u64 = 64 * 1024;
/// The age after which a segment with lines is replaced by a new one, however small it is: what is a
/// row by then does not stay in a file besides.
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(1);
/// The wait after the files of the spool could not be read.
const READ_BACKOFF: Duration = Duration::from_secs(1);
/// The wait after a record was refused, while nothing else is appended, before it is looked
/// whether there is room again.
const PROBE_BACKOFF: Duration = Duration::from_millis(500);

/// Replays the dead runs, then carries records until the journal closes; returns whether nothing
/// is left then.
pub(super) async fn run(
    shared: Arc<Shared>,
    sink: Arc<dyn RecordSink>,
    dead: Vec<DeadRun>,
    now: Timestamp,
) -> bool {
    let mut dead = dead;
    while !dead.is_empty() {
        let run = dead.remove(0);
        let dir = run.dir().display().to_string();
        let patience = Patience::Endless(&shared.condition);
        if let Err(error) = recovery::recover(run, sink.as_ref(), patience, now).await {
            let error = &error as &dyn std::error::Error;
            warn!(error, "could not read all that a dead run left in {dir}");
        }
        shared.set_inherited(recovery::bytes_of(&dead));
    }
    let mut closing = shared.closing.subscribe();
    let mut reader = SpoolReader::new(&shared.run_dir);
    let mut oldest = segment::FIRST;
    let mut renewed = Instant::now();
    loop {
        let started = Instant::now();
        // Noted before the files are read: nothing is appended once it is true.
        let is_closing = *closing.borrow_and_update();
        let (returned, batch) = match next_batch(reader).await {
            Ok(read) => read,
            Err(ended) => {
                error!(%ended, "the reader of the spool ended, records wait for the next start");
                shared.condition.stuck(one_line(&ended));
                return false;
            }
        };
        reader = returned;
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                warn!(%error, "could not read the spool, trying again");
                shared.condition.stuck(one_line(&error));
                sleep(READ_BACKOFF).await;
                continue;
            }
        };
        carry(&shared, sink.as_ref(), &batch).await;
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
            // The next pass goes on to the new segment and deletes the old one.
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

/// Reads and parses on a thread that may block.
async fn next_batch(
    mut reader: SpoolReader,
) -> Result<(SpoolReader, io::Result<Batch>), tokio::task::JoinError> {
    tokio::task::spawn_blocking(move || {
        let batch = reader.next_batch(End::Growing);
        (reader, batch)
    })
    .await
}

async fn carry(shared: &Shared, sink: &dyn RecordSink, batch: &Batch) {
    if batch.n_torn > 0 {
        let n = batch.n_torn;
        warn!(
            lines.torn = n,
            "skipped {n} lines of the spool that are no records"
        );
    }
    if !batch.records.is_empty() {
        // With endless patience there is no error.
        drop(apply(sink, &batch.records, Patience::Endless(&shared.condition)).await);
    }
    // Also what kept the files from being read is over.
    shared.condition.applied();
    shared
        .applied
        .send_modify(|applied| *applied += batch.bytes);
}

/// Looks whether a record would be taken by now. Waiting for the next one to tell would be wrong
/// where none comes because this one was refused.
async fn probe(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    // If the thread panics, the condition stays what it is.
    drop(tokio::task::spawn_blocking(move || shared.probe()).await);
}

/// Deletes the segments before the one that is read; a later pass retries what fails.
fn delete_applied(shared: &Shared, oldest: &mut u64, current: u64) {
    while *oldest < current {
        if let Err(error) = segment::delete(&shared.run_dir, *oldest) {
            warn!(%error, "could not delete an applied segment of the spool");
            return;
        }
        *oldest += 1;
    }
}

/// Waits until the next transaction is worth its cost.
async fn collect(shared: &Shared, closing: &mut watch::Receiver<bool>, started: Instant) {
    tokio::select! {
        () = sleep_until(started + COLLECT_FOR) => {}
        () = shared.pressed.notified() => {}
        _ = closing.changed() => {}
    }
}
