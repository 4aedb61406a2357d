//! The spool fulfils the contract of journals.

use std::sync::Arc;

use riglm_adapters_storage::SpoolJournal;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::Journal;
use riglm_ports::contract::journal::JournalScene;
use riglm_ports::contract::scene::run;
use riglm_ports::fake::MemoryStore;

use crate::scene::Scene;

/// A spool over a database in memory.
#[derive(Debug)]
struct Spool {
    journal: SpoolJournal,
    database: Arc<MemoryStore>,
    _directory: tempfile::TempDir,
}

impl Spool {
    async fn new() -> Box<Self> {
        let (scene, database) = (Scene::new(), Arc::<MemoryStore>::default());
        let journal = scene.start(run(1), &database).await;
        Box::new(Self {
            journal,
            database,
            _directory: scene.dir,
        })
    }
}

impl JournalScene for Spool {
    fn journal(&self) -> &dyn Journal {
        &self.journal
    }

    fn applied(&self) -> Vec<Record> {
        self.database.records()
    }

    fn set_failing(&self, is_failing: bool) {
        if is_failing {
            self.database.start_failing();
        } else {
            self.database.stop_failing();
        }
    }
}

riglm_ports::journal_contract!(contract, Spool::new());
