//! Locks on tasks that only one process runs at a time.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask, StoreError};

use crate::database::Database;
use crate::error::{open_error, operation_error};
use crate::spool;

/// Locks the task; returns `None` while another holder has it.
pub(super) async fn try_begin(
    database: &Database,
    task: MaintenanceTask,
) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
    match database {
        Database::Sqlite(database) => {
            let path = lock_file(database.path(), task);
            let file = spool::try_hold(&path).map_err(open_error(&path))?;
            Ok(file.map(|file| Box::new(FileGuard(file)) as _))
        }
        Database::Postgres(database) => {
            (database.try_lock(task).await).map_err(operation_error("lock a maintenance task"))
        }
    }
}

fn lock_file(database: &Path, task: MaintenanceTask) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(format!(".{}.lock", task.as_str()));
    name.into()
}

/// The lock of a file. It ends when the handle is closed.
#[derive(Debug)]
struct FileGuard(#[expect(dead_code, reason = "closing it ends the lock")] File);

impl MaintenanceGuard for FileGuard {}
