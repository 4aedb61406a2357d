//! Advisory locks on tasks that only one process runs at a time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask};
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

// The time that the server gets to release a lock before its connection is dropped.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the second key of the advisory lock of a task. The keys of writers are smaller.
fn lock_key(task: MaintenanceTask) -> i32 {
    10 + match task {
        MaintenanceTask::Retention => 0,
        MaintenanceTask::Learning => 1,
        MaintenanceTask::WeightTuning => 2,
    }
}

/// Locks the task on a connection of its own; returns `None` while another holder has it.
pub(super) async fn try_lock(
    pool: &PgPool,
    releases: &Arc<PendingReleases>,
    task: MaintenanceTask,
) -> Result<Option<ConnectionGuard>, sqlx::Error> {
    // A lock that this process is still releasing is not taken by others.
    releases.wait_for_releases().await;
    let mut connection = pool.acquire().await?;
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
pub(super) struct ConnectionGuard {
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
pub(super) struct PendingReleases {
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
