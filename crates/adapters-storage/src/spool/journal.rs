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
use super::write_queue::{
    GroupOutcome, QueuedLine, WriteError, WriteFailure, WriteQueue, write_next,
};
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
/// Appending is one `write` to the page cache, which is shared with other callers under load, and
/// with durability `power` the wait for a flush, which is shared too. A dropped append has still
/// written its record. Dropping the journal leaves unapplied records to the next run, as the death
/// of the process does.
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
    queue: WriteQueue,
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

    /// Writes lines, which end in line breaks, and returns whether all of them are written. Lines
    /// that other callers add before this one writes are written with them.
    async fn write(&self, lines: Vec<u8>, n_lines: usize) -> Result<(), StoreError> {
        let line = QueuedLine::add(self, lines, n_lines);
        self.queue.let_others_add().await;
        line.write()
    }

    pub(super) fn queue(&self) -> &WriteQueue {
        &self.queue
    }

    /// Writes the lines that fit in the limit of waiting bytes.
    pub(super) fn write_lines(&self, writer: &mut SegmentWriter, lines: &[u8]) -> GroupOutcome {
        let waiting = self.all_waiting();
        let free = self.max_bytes.saturating_sub(waiting);
        let fitting = whole_lines(lines, usize::try_from(free).unwrap_or(usize::MAX));
        let is_full = fitting.len() < lines.len();
        let full = |n_written| WriteFailure {
            n_written,
            cause: WriteError::Full { bytes: waiting },
        };
        if fitting.is_empty() && is_full {
            return Err(full(0));
        }
        // A torn line before these ones is ended first.
        let n_ending = u64::from(writer.is_torn());
        let mut written = 0;
        let outcome = writer.append(fitting, &mut written);
        self.appended.fetch_add(written, Ordering::Relaxed);
        if waiting + written >= PRESSING_BYTES {
            self.pressed.notify_one();
        }
        let n_written = written.saturating_sub(n_ending);
        match outcome {
            Err(error) => Err(WriteFailure {
                n_written,
                cause: WriteError::Failed(Arc::new(error)),
            }),
            Ok(()) if is_full => Err(full(n_written)),
            Ok(()) => Ok(()),
        }
    }

    /// Counts records that could not be written.
    pub(super) fn count_dropped(&self, n_records: u64) {
        self.n_dropped.fetch_add(n_records, Ordering::Relaxed);
    }

    /// Writes the queued lines and refuses further ones.
    fn close_writer(&self) {
        let mut writer = self.writer.lock();
        write_next(self, &mut writer);
        writer.close();
    }

    /// Checks whether a record would be accepted now, by writing a blank line. Blocks for one write
    /// and, with durability `power`, for one flush.
    pub(super) fn probe(&self) {
        let mut line = vec![b' '; PROBE_BYTES];
        line.push(b'\n');
        let written = QueuedLine::add(self, line, 0).write();
        let outcome = written.and_then(|()| self.flush_newest());
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

/// Returns the lines at the beginning of `lines` that have at most `n_bytes`.
fn whole_lines(lines: &[u8], n_bytes: usize) -> &[u8] {
    if lines.len() <= n_bytes {
        return lines;
    }
    let end = memchr::memrchr(b'\n', &lines[..n_bytes]);
    &lines[..end.map_or(0, |at| at + 1)]
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
            queue: WriteQueue::default(),
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
        self.shared.close_writer();
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

    async fn write_records(&self, records: &[Record]) -> Result<(), StoreError> {
        let written = match line::of_each(records) {
            Ok(lines) => self.shared.write(lines, records.len()).await,
            Err(error) => Err(operation_error("encode a record")(error)),
        };
        // Also after a failure, so that the drainer tests for free space.
        self.shared.wake.notify_one();
        if let Err(error) = written {
            self.shared.count_dropped(records.len() as u64);
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
        self.append_all(std::slice::from_ref(record)).await
    }

    async fn append_all(&self, records: &[Record]) -> Result<(), StoreError> {
        let taken = self.write_records(records).await;
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

    use futures_util::future::join_all;
    use futures_util::poll;
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

    async fn open(dir: &Path, number: u8, sink: &Arc<MemoryStore>) -> SpoolJournal {
        let (options, sink) = (SpoolOptions::default(), Arc::clone(sink));
        let opening = SpoolJournal::open(dir, options, run(number), sink, moment(1));
        opening.await.unwrap()
    }

    /// Replaces the segment by a file that cannot be written, and returns the former one.
    fn make_unwritable(journal: &SpoolJournal) -> Arc<File> {
        let unwritable = File::open(segment::path(&journal.shared.run_dir, 1)).unwrap();
        journal.shared.writer.lock().replace(Arc::new(unwritable))
    }

    #[tokio::test]
    async fn records_of_concurrent_callers_are_written_together() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        let journal = open(dir.path(), 1, &sink).await;
        let records: Vec<_> = (1..=10)
            .map(|number| Record::SessionOpened(session(run(1), number)))
            .collect();
        journal.append(&records[0]).await.unwrap();
        let (alone, rest) = (&records[..1], &records[1..]);
        assert!(journal.shared.queue.is_alone());
        let appended = join_all(rest.iter().map(|record| journal.append(record))).await;
        assert!(appended.iter().all(Result::is_ok));
        assert!(!journal.shared.queue.is_alone());
        // A caller that is gone has added its record.
        let gone = Record::SessionOpened(session(run(1), 11));
        let mut appending = Box::pin(journal.append(&gone));
        assert!(poll!(appending.as_mut()).is_pending());
        drop(appending);
        journal.close().await;
        let applied = sink.records();
        for record in alone.iter().chain(rest).chain([&gone]) {
            assert!(applied.contains(record), "{record:?}");
        }
    }

    #[tokio::test]
    async fn all_callers_learn_that_their_records_were_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        let journal = open(dir.path(), 1, &sink).await;
        let writable = make_unwritable(&journal);
        let records = [1, 2, 3].map(|number| Record::SessionOpened(session(run(1), number)));
        let appended = join_all(records.iter().map(|record| journal.append(record))).await;
        assert!(appended.iter().all(Result::is_err), "{appended:?}");
        assert_eq!(journal.dropped_records(), 3);
        journal.shared.writer.lock().replace(writable);
        assert!(journal.append_all(&records).await.is_ok());
        journal.close().await;
        let applied = sink.records();
        assert!(records.iter().all(|record| applied.contains(record)));
    }

    #[test]
    fn only_whole_lines_are_taken() {
        let lines = b"one\ntwo\n";
        for (n_bytes, expected) in [
            (0, ""),
            (3, ""),
            (4, "one\n"),
            (7, "one\n"),
            (8, "one\ntwo\n"),
            (9, "one\ntwo\n"),
        ] {
            assert_eq!(whole_lines(lines, n_bytes), expected.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_nearly_full_journal_takes_the_records_that_fit() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        let records = [1, 2].map(|number| Record::SessionOpened(session(run(1), number)));
        let line = line::of_each(&records[..1]).unwrap();
        let options = SpoolOptions {
            max_bytes: line.len() as u64 + 1,
            ..SpoolOptions::default()
        };
        let opening = SpoolJournal::open(dir.path(), options, run(1), sink.clone(), moment(1));
        let journal = opening.await.unwrap();
        let appended = join_all(records.iter().map(|record| journal.append(record))).await;
        assert!(appended[0].is_ok(), "{appended:?}");
        assert!(matches!(appended[1], Err(StoreError::Full { .. })));
        journal.close().await;
        assert!(sink.records().contains(&records[0]));
        assert!(!sink.records().contains(&records[1]));
    }

    #[tokio::test]
    async fn the_loss_of_a_caller_that_is_gone_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        let journal = open(dir.path(), 1, &sink).await;
        make_unwritable(&journal);
        let record = Record::SessionOpened(session(run(1), 1));
        let mut appending = Box::pin(journal.append(&record));
        assert!(poll!(appending.as_mut()).is_pending());
        drop(appending);
        assert_eq!(journal.dropped_records(), 1);
        assert_ne!(journal.condition(), JournalCondition::Sound);
    }

    #[tokio::test]
    async fn records_that_were_added_before_the_close_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Arc::new(MemoryStore::default());
        let journal = open(dir.path(), 1, &sink).await;
        let record = Record::SessionOpened(session(run(1), 1));
        let mut appending = Box::pin(journal.append(&record));
        assert!(poll!(appending.as_mut()).is_pending());
        journal.close().await;
        assert!(appending.await.is_ok());
        assert!(sink.records().contains(&record));
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
            let writable = make_unwritable(&journal);
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
