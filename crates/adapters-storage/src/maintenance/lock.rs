//! Tasks that one process does at a time.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask, StoreError};
use sqlx::{Connection as _, PgConnection};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::database::{Database, PostgresDatabase};
use crate::error::{failing, opening};
use crate::spool;

/// How long a server has to take a lock back before its connection is cut.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes the task unless somebody has it.
pub(super) async fn try_begin(
    database: &Database,
    task: MaintenanceTask,
) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
    match database {
        Database::Sqlite(database) => {
            let path = lock_file(database.path(), task);
            let file = spool::try_hold(&path).map_err(opening(&path))?;
            Ok(file.map(|file| Box::new(FileGuard(file)) as _))
        }
        Database::Postgres(database) => {
            let guard = try_lock(database, task)
                .await
                .map_err(failing("lock a task"))?;
            Ok(guard.map(|guard| Box::new(guard) as _))
        }
    }
}

fn lock_file(database: &Path, task: MaintenanceTask) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(format!(".{}.lock", task.as_str()));
    name.into()
}

/// Holds the lock of a file, which ends with the handle.
#[derive(Debug)]
struct FileGuard(#[expect(dead_code, reason = "closing it ends the lock")] File);

impl MaintenanceGuard for FileGuard {}

/// Returns the second key of the advisory lock of a task; those of writers are smaller.
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
    releases.finished().await;
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

/// Holds the lock of a connection, which ends with the connection.
#[derive(Debug)]
struct ConnectionGuard {
    /// Not in the pool any more, where others would use it. There until the guard is dropped.
    connection: Option<PgConnection>,
    key: i32,
    releases: Arc<Releases>,
}

impl MaintenanceGuard for ConnectionGuard {}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        // Without a runtime the connection is cut, and the server ends the lock when it notices.
        if let (Some(connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) {
            let key = self.key;
            let release = runtime.spawn(async move {
                if timeout(RELEASE_TIMEOUT, release(connection, key))
                    .await
                    .is_err()
                {
                    tracing::warn!("the database does not take the lock of a task back");
                }
            });
            self.releases.add(release);
        }
    }
}

async fn release(mut connection: PgConnection, key: i32) {
    let unlock = "SELECT pg_advisory_unlock(hashtext('riglm ' || current_schema()), $1)";
    let unlocked = sqlx::query(unlock).bind(key).execute(&mut connection).await;
    // A connection that fails has lost its lock, or is about to.
    let closed = match unlocked {
        Ok(_) => connection.close().await,
        Err(error) => Err(error),
    };
    if let Err(error) = closed {
        tracing::debug!("the connection of a task broke: {error}");
    }
}

/// Locks that this process is giving back. Who wants a task waits for them: a lock of which the
/// server does not know yet that it is free would be taken for somebody else's.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    pending: Mutex<Vec<JoinHandle<()>>>,
    turn: tokio::sync::Mutex<()>,
}

impl Releases {
    fn add(&self, release: JoinHandle<()>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|release| !release.is_finished());
        pending.push(release);
    }

    async fn finished(&self) {
        let _turn = self.turn.lock().await;
        let pending = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *pending)
        };
        for release in pending {
            if let Err(error) = release.await {
                tracing::debug!("the release of a task was cut off: {error}");
            }
        }
    }
}
