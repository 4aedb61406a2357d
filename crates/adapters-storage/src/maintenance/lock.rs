//! Locks on tasks that only one process runs at a time.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask, StoreError};
use sqlx::{Connection as _, PgConnection};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::database::{Database, PostgresDatabase};
use crate::error::{open_error, operation_error};
use crate::spool;

// The time that the server gets to release a lock before its connection is dropped.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

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
            let guard = try_lock(database, task)
                .await
                .map_err(operation_error("lock a maintenance task"))?;
            Ok(guard.map(|guard| Box::new(guard) as _))
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

/// Returns the second key of the advisory lock of a task. The keys of writers are smaller.
fn lock_key(task: MaintenanceTask) -> i32 {
    10 + match task {
        MaintenanceTask::Retention => 0,
        MaintenanceTask::Learning => 1,
        MaintenanceTask::WeightTuning => 2,
    }
}

async fn try_lock(
    database: &PostgresDatabase,
    task: MaintenanceTask,
) -> Result<Option<ConnectionGuard>, sqlx::Error> {
    let releases = database.releases();
    // A lock that this process is still releasing is not taken by others.
    releases.wait_for_releases().await;
    let mut connection = database.pool().acquire().await?;
    let key = lock_key(task);
    let has_lock: bool = sqlx::query_scalar(
        "SELECT pg_try_advisory_lock(hashtext('riglm ' || current_schema()), $1)",
    )
    .bind(key)
    .fetch_one(&mut *connection)
    .await?;
    Ok(has_lock.then(|| ConnectionGuard {
        connection: Some(connection.detach()),
        key,
        releases: Arc::clone(releases),
    }))
}

/// An advisory lock of a connection. It ends with the connection.
#[derive(Debug)]
struct ConnectionGuard {
    /// Detached from the pool, where others would use it. `Some` until the guard is dropped.
    connection: Option<PgConnection>,
    key: i32,
    releases: Arc<PendingReleases>,
}

impl MaintenanceGuard for ConnectionGuard {}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        // Without a runtime the connection is dropped, and the server releases the lock when it
        // notices.
        if let (Some(connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) {
            let key = self.key;
            let release = runtime.spawn(async move {
                if timeout(RELEASE_TIMEOUT, release(connection, key))
                    .await
                    .is_err()
                {
                    tracing::warn!(
                        "timeout while releasing the database lock of a maintenance task"
                    );
                }
            });
            self.releases.add(release);
        }
    }
}

async fn release(mut connection: PgConnection, key: i32) {
    let unlock = "SELECT pg_advisory_unlock(hashtext('riglm ' || current_schema()), $1)";
    let unlocked = sqlx::query(unlock).bind(key).execute(&mut connection).await;
    // A failed connection has lost its lock, or is about to.
    let closed = match unlocked {
        Ok(_) => connection.close().await,
        Err(error) => Err(error),
    };
    if let Err(error) = closed {
        tracing::debug!("failed to release the database lock of a maintenance task: {error}");
    }
}

/// Locks that this process is releasing.
///
/// An attempt to lock a task waits for them. Otherwise a lock whose release has not reached the
/// server would seem to belong to another process.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases {
    pending: Mutex<Vec<JoinHandle<()>>>,
    turn: tokio::sync::Mutex<()>,
}

impl PendingReleases {
    fn add(&self, release: JoinHandle<()>) {
        let mut pending = self.pending.lock();
        pending.retain(|release| !release.is_finished());
        pending.push(release);
    }

    async fn wait_for_releases(&self) {
        let _turn = self.turn.lock().await;
        let pending = {
            let mut pending = self.pending.lock();
            std::mem::take(&mut *pending)
        };
        for release in pending {
            if let Err(error) = release.await {
                tracing::debug!("the release of a database lock was aborted: {error}");
            }
        }
    }
}
