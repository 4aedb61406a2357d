//! A spool in a temporary directory, and records for it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_storage::{Durability, SpoolJournal, SpoolOptions, Store};
use riglm_domain::id::RunId;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{Journal as _, RecordSink};
use riglm_ports::contract::scene::{call, end, moment, session};
use riglm_ports::fake::MemoryStore;

/// A generous deadline, for a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A spool in its own directory.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) options: SpoolOptions,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            options: SpoolOptions::default(),
        }
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    pub(crate) fn run_dir(&self, run: RunId) -> PathBuf {
        self.spool().join(run.to_string())
    }

    pub(crate) async fn start<S: RecordSink + 'static>(
        &self,
        run: RunId,
        sink: &Arc<S>,
    ) -> SpoolJournal {
        let sink = Arc::<S>::clone(sink);
        SpoolJournal::open(&self.spool(), self.options.clone(), run, sink, moment(99))
            .await
            .unwrap()
    }

    pub(crate) async fn sqlite(&self) -> Arc<Store> {
        let store = Store::sqlite(self.dir.path().join("riglm.db"), Durability::Process);
        store.open().await.unwrap();
        Arc::new(store)
    }
}

/// Returns the records of a session of the run: one completed call and one open call.
pub(crate) fn session_records(run: RunId) -> Vec<Record> {
    let session = session(run, 1);
    let (done, open) = (call(session.id, 2), call(session.id, 3));
    vec![
        Record::SessionOpened(session),
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        Record::CallOpened(open),
    ]
}

pub(crate) fn run_lost(run: RunId) -> Record {
    Record::RunLost {
        run,
        noticed_at: moment(99),
    }
}

pub(crate) async fn append(journal: &SpoolJournal, records: &[Record]) {
    for record in records {
        journal.append(record).await.unwrap();
    }
}

/// Leaves the records of the run in the spool, like a killed process.
pub(crate) async fn leave_in_spool(scene: &Scene, run: RunId) {
    let unreachable = Arc::new(MemoryStore::default());
    unreachable.start_failing();
    let journal = scene.start(run, &unreachable).await;
    append(&journal, &session_records(run)).await;
}

pub(crate) fn add_text(segment: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(segment).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let outcome = tokio::time::timeout(DEADLINE, waiting).await;
    outcome.unwrap_or_else(|_| panic!("{what} did not come true"));
}

/// Returns the records without the last one, which must be `RunLost`. Its time is set by the
/// journal.
pub(crate) fn without_last(records: &[Record], expected: RunId) -> &[Record] {
    let (last, rest) = records.split_last().unwrap();
    assert!(matches!(last, Record::RunLost { run, .. } if *run == expected));
    rest
}
