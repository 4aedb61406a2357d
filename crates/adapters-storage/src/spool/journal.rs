//! The journal of one run of the proxy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::id::RunId;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{Journal, JournalCondition, RecordSink, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::condition::SpoolCondition;
use super::flusher::Flusher;
use super::writer::SegmentWriter;
use super::{drainer, line, lock, recovery};
use crate::config::{Durability, RecordingConfig};
use crate::error::{open_error, operation_error};
use crate::private_file;

/// The number of waiting bytes at which the drainer stops collecting and starts to apply: half of
/// the largest batch.
const PRESSING_BYTES: u64 = 2 * 1024 * 1024;
/// The size of the blank line that tests for free space: more than the record of a call without its
/// arguments.
const PROBE_BYTES: usize = 4 * 1024;

/// The options of a journal.
#[derive(Clone, Debug)]
pub struct SpoolOptions {
    /// The durability of a record once [`Journal::append`] has returned.
    pub durability: Durability,
    /// The maximum number of bytes of records that wait for the database.
    pub max_bytes: u64,
    /// The time that [`SpoolJournal::close`] waits for the database to take the remaining records.
    pub close_grace: Duration,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Process,
            max_bytes: RecordingConfig::SPOOL_MAX_BYTES,
            close_grace: Duration::from_secs(5),
        }
    }
}

/// Writes records to the spool and drains them into a [`RecordSink`] in the background.
///
/// Appending is one `write` to the page cache, and with durability `power` the wait for a flush
/// that is shared with other callers. A dropped append may still have written its record. Dropping
/// the journal leaves unapplied records to the next run, as the death of the process does.
#[derive(Debug)]
pub struct SpoolJournal {
    shared: Arc<SharedState>,
    flusher: Option<Flusher>,
    drainer: Mutex<Option<JoinHandle<bool>>>,
    sink: Arc<dyn RecordSink>,
    run: RunId,
    opened_at: Timestamp,
    opened: Instant,
    options: SpoolOptions,
    /// A lock that tells other processes that this run lives.
    _lock: File,
}

/// The state that the journal shares with its drainer and its flusher.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) run_dir: PathBuf,
    pub(super) writer: Mutex<SegmentWriter>,
    /// Bytes written by this run so far. Changes only while the writer is locked.
    appended: AtomicU64,
    /// Bytes of dead runs that are not rows yet. They count towards the limit, so that each start
    /// does not begin with a full limit again.
    inherited: AtomicU64,
    /// Bytes applied by this run so far.
    pub(super) applied: watch::Sender<u64>,
    n_dropped: AtomicU64,
    pub(super) condition: SpoolCondition,
    durability: Durability,
    max_bytes: u64,
    /// Signals that a record was appended, or could not be.
    pub(super) wake: Notify,
    /// Signals that enough bytes wait to apply them at once.
    pressed: Notify,
    pub(super) closing: watch::Sender<bool>,
}

impl SharedState {
    /// Returns the number of waiting bytes of this run.
    pub(super) fn waiting(&self) -> u64 {
        // A record may be applied before its writer has counted it.
        let appended = self.appended.load(Ordering::Relaxed);
        appended.saturating_sub(*self.applied.borrow())
    }

    /// Waits until enough bytes wait to apply them at once.
    pub(super) async fn until_pressed(&self) {
        // The signal may be from before the last transaction.
        while self.waiting() < PRESSING_BYTES {
            self.pressed.notified().await;
        }
    }

    /// Returns the number of waiting bytes, including bytes of dead runs.
    fn all_waiting(&self) -> u64 {
        self.waiting() + self.inherited.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes of dead runs that are not rows yet.
    pub(super) fn set_inherited(&self, bytes: u64) {
        self.inherited.store(bytes, Ordering::Relaxed);
    }

    /// Writes a line, which ends in a line break, within the limit of waiting bytes.
    fn write(&self, line: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let waiting = self.all_waiting();
        if waiting + line.len() as u64 > self.max_bytes {
            return Err(StoreError::Full { bytes: waiting });
        }
        let mut written = 0;
        let outcome = writer.append(line, &mut written);
        self.appended.fetch_add(written, Ordering::Relaxed);
        drop(writer);
        if waiting + written >= PRESSING_BYTES {
            self.pressed.notify_one();
        }
        outcome.map_err(operation_error("append to the journal"))
    }

    /// Checks whether a record would be accepted now, by writing a blank line. Blocks for one write
    /// and, with durability `power`, for one flush.
    pub(super) fn probe(&self) {
        let mut line = vec![b' '; PROBE_BYTES];
        line.push(b'\n');
        let outcome = self.write(&line).and_then(|()| self.flush_newest());
        match outcome {
            Ok(()) => self.condition.clear_append_failure(),
            Err(error) => self.condition.set_append_failure(&error),
        }
    }

    fn flush_newest(&self) -> Result<(), StoreError> {
        match self.durability {
            Durability::Process => Ok(()),
            Durability::Power => {
                let newest = self.writer.lock().newest();
                newest
                    .sync_data()
                    .map_err(operation_error("flush the journal to disk"))
            }
        }
    }

    /// Returns whether the newest segment has lines.
    pub(super) fn has_lines(&self) -> bool {
        self.writer.lock().len() > 0
    }

    pub(super) fn rotate(&self) {
        rotate(&mut self.writer.lock());
    }

    /// Starts a new segment when the newest one is larger than `min_bytes` and everything is
    /// applied.
    pub(super) fn rotate_applied(&self, min_bytes: u64) {
        let mut writer = self.writer.lock();
        if writer.len() > min_bytes && self.waiting() == 0 {
            rotate(&mut writer);
        }
    }
}

fn rotate(writer: &mut SegmentWriter) {
    if let Err(error) = writer.rotate() {
        warn!(%error, "failed to start a new segment of the spool, the current one keeps growing");
    }
}

impl SpoolJournal {
    /// Creates the directory of `run` under `spool_dir` and starts to drain records into `sink`.
    ///
    /// Records of dead runs in the spool are drained first, in the background. Calls of these runs
    /// that are still open are then lost as of `now`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Open`] when the directory cannot be created or is locked.
    pub async fn open(
        spool_dir: &Path,
        options: SpoolOptions,
        run: RunId,
        sink: Arc<dyn RecordSink>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        private_file::create_dir_all(spool_dir).map_err(open_error(spool_dir))?;
        let startup = lock::hold_startup(spool_dir).await?;
        let dead = recovery::survey(spool_dir)
            .map_err(open_error(spool_dir))?
            .dead;
        let run_dir = spool_dir.join(run.to_string());
        private_file::create_dir_all(&run_dir).map_err(open_error(&run_dir))?;
        let run_lock = lock::try_hold(&lock::of_run(&run_dir))
            .and_then(|held| held.ok_or_else(|| std::io::ErrorKind::ResourceBusy.into()))
            .map_err(open_error(&run_dir))?;
        // From here on the run's own lock shows that it lives.
        drop(startup);
        let writer =
            SegmentWriter::create(&run_dir, options.durability).map_err(open_error(&run_dir))?;
        let shared = Arc::new(SharedState {
            inherited: AtomicU64::new(recovery::bytes_of(&dead)),
            run_dir,
            writer: Mutex::new(writer),
            appended: AtomicU64::new(0),
            applied: watch::Sender::new(0),
            n_dropped: AtomicU64::new(0),
            condition: SpoolCondition::default(),
            durability: options.durability,
            max_bytes: options.max_bytes,
            wake: Notify::new(),
            pressed: Notify::new(),
            closing: watch::Sender::new(false),
        });
        let flusher = match options.durability {
            Durability::Process => None,
            Durability::Power => {
                let flusher = Flusher::spawn(Arc::clone(&shared));
                Some(flusher.map_err(operation_error("start the flusher"))?)
            }
        };
        let drainer = drainer::run(Arc::clone(&shared), Arc::clone(&sink), dead, now);
        Ok(Self {
            shared,
            flusher,
            drainer: Mutex::new(Some(tokio::spawn(drainer))),
            sink,
            run,
            opened_at: now,
            opened: Instant::now(),
            options,
            _lock: run_lock,
        })
    }

    /// Returns the number of records that were refused or could not be written since the start.
    pub fn dropped_records(&self) -> u64 {
        self.shared.n_dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of records that wait for the database.
    pub fn waiting_bytes(&self) -> u64 {
        self.shared.all_waiting()
    }

    /// Waits until all records appended before this call are applied. Returns false if that takes
    /// longer than `within`.
    pub async fn wait_until_applied(&self, within: Duration) -> bool {
        let target = self.shared.appended.load(Ordering::Relaxed);
        let mut applied = self.shared.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= target);
        matches!(timeout(within, reached).await, Ok(Ok(_)))
    }

    /// Refuses further records, drains the remaining ones within the grace period, and deletes the
    /// directory of the run when nothing is left.
    ///
    /// Calls and sessions that are still open then are lost, as after a crash. Further calls do
    /// nothing.
    pub async fn close(&self) {
        let drainer = self.drainer.lock().take();
        let Some(mut drainer) = drainer else {
            return;
        };
        // In this order: once `closing` is set, the drainer relies on nothing being appended.
        self.shared.writer.lock().close();
        self.shared.closing.send_replace(true);
        let Ok(Ok(true)) = timeout(self.options.close_grace, &mut drainer).await else {
            drainer.abort();
            let bytes = self.shared.waiting();
            warn!(
                waiting_bytes = bytes,
                "left {bytes} bytes of records in the spool for the next start"
            );
            return;
        };
        // The elapsed monotonic time since the start makes a clock unnecessary.
        let noticed_at = self.opened_at + self.opened.elapsed();
        let lost = Record::RunLost {
            run: self.run,
            noticed_at,
        };
        if let Err(error) = self.sink.apply(&[lost]).await {
            warn!(
                %error,
                "failed to close open sessions and calls in the database, the next start retries"
            );
            return;
        }
        if let Err(error) = recovery::remove(&self.shared.run_dir) {
            warn!(%error, "failed to remove the spool of this run, the next start retries");
        }
    }

    async fn write_record(&self, record: &Record) -> Result<(), StoreError> {
        let written = line::of(record)
            .map_err(operation_error("encode a record"))
            .and_then(|line| self.shared.write(&line));
        // Also after a failure, so that the drainer tests for free space.
        self.shared.wake.notify_one();
        if let Err(error) = written {
            self.shared.n_dropped.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        match &self.flusher {
            None => Ok(()),
            Some(flusher) => flusher.flush().await,
        }
    }
}

#[async_trait]
impl Journal for SpoolJournal {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        let taken = self.write_record(record).await;
        match &taken {
            Ok(()) => self.shared.condition.clear_append_failure(),
            Err(error) => self.shared.condition.set_append_failure(error),
        }
        taken
    }

    fn condition(&self) -> JournalCondition {
        self.shared.condition.current()
    }
}

impl Drop for SpoolJournal {
    fn drop(&mut self) {
        let drainer = self.drainer.get_mut();
        if let Some(drainer) = drainer {
            drainer.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use riglm_ports::contract::scene::{moment, run, session};
    use riglm_ports::fake::MemoryStore;

    use super::*;
    use crate::spool::segment;

    async fn wait_for_condition(journal: &SpoolJournal, is_so: impl Fn(JournalCondition) -> bool) {
        let waiting = async {
            while !is_so(journal.condition()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(Duration::from_secs(30), waiting).await.unwrap();
    }

    #[tokio::test]
    async fn journal_detects_and_recovers_from_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        for durability in [Durability::Process, Durability::Power] {
            let options = SpoolOptions {
                durability,
                ..SpoolOptions::default()
            };
            let run = run(durability as u8);
            let opening = SpoolJournal::open(dir.path(), options, run, sink.clone(), moment(1));
            let journal = opening.await.unwrap();
            let unwritable = File::open(segment::path(&journal.shared.run_dir, 1)).unwrap();
            let writable = journal.shared.writer.lock().replace(Arc::new(unwritable));
            let record = Record::SessionOpened(session(run, 1));
            assert!(journal.append(&record).await.is_err());
            let JournalCondition::Behind { reason } = journal.condition() else {
                panic!("the journal lost a record and is sound");
            };
            assert!(reason.starts_with("failed to append to the journal: "));
            assert_eq!(journal.dropped_records(), 1);

            journal.shared.writer.lock().replace(writable);
            wait_for_condition(&journal, |condition| condition == JournalCondition::Sound).await;
            journal.append(&record).await.unwrap();
            journal.close().await;
            assert!(sink.records().contains(&record));
            assert_eq!(journal.dropped_records(), 1);
        }
    }
}
