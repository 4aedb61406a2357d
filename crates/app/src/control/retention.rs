//! Retention: deletion of old rows while the proxy runs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use riglm_ports::analytics::{Maintenance, MaintenanceTask, PurgeReport, StoreError};
use riglm_ports::clock::Clock;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

// The start has other work, so the first deletion waits.
const FIRST_AFTER: Duration = Duration::from_mins(1);
/// The time between two deletions.
const EVERY: Duration = Duration::from_hours(1);
/// The number of rows that are deleted in one step.
pub const STEP_ROWS: u32 = 500;
/// The pause between two steps, for other writers.
const PAUSE: Duration = Duration::from_millis(200);

/// Deletes rows that are older than the retention time.
#[derive(Debug)]
pub struct Retention {
    /// The rows.
    pub store: Arc<dyn Maintenance>,
    /// The clock, for the age of rows.
    pub clock: Arc<dyn Clock>,
    /// The retention time, which may change at any time; `None` to keep all rows.
    pub keep: watch::Receiver<Option<Duration>>,
}

impl Retention {
    /// Deletes old rows a minute after the start and then every hour, until `stop` is cancelled.
    /// Does nothing while another process does it, or without a retention time. Failures are
    /// logged.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(self.purge_for_ever()).await;
    }

    async fn purge_for_ever(self) {
        sleep(FIRST_AFTER).await;
        loop {
            match self.purge().await {
                Ok(Some(purged)) => report(&purged),
                Ok(None) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "failed to remove old rows, will retry in one hour");
                }
            }
            sleep(EVERY).await;
        }
    }

    /// Deletes all old rows, in steps with pauses. Returns the number of deleted rows, or `None` if
    /// another process is deleting.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; a part is deleted then.
    pub async fn purge(&self) -> Result<Option<PurgeReport>, StoreError> {
        let keep = *self.keep.borrow();
        let Some(before) = keep.and_then(|keep| earlier(self.clock.now(), keep)) else {
            return Ok(Some(PurgeReport {
                is_done: true,
                ..PurgeReport::default()
            }));
        };
        let Some(_guard) = self.store.try_begin(MaintenanceTask::Retention).await? else {
            return Ok(None);
        };
        let mut sum = PurgeReport::default();
        loop {
            let step = self.store.purge(before, STEP_ROWS).await?;
            sum.n_calls += step.n_calls;
            sum.n_sessions += step.n_sessions;
            sum.n_others += step.n_others;
            if step.is_done {
                sum.is_done = true;
                return Ok(Some(sum));
            }
            sleep(PAUSE).await;
        }
    }
}

/// Returns the time `keep` before `now`; `None` before the least timestamp.
fn earlier(now: Timestamp, keep: Duration) -> Option<Timestamp> {
    now.checked_sub(keep).ok()
}

fn report(purged: &PurgeReport) {
    let PurgeReport {
        n_calls,
        n_sessions,
        n_others,
        ..
    } = *purged;
    if n_calls + n_sessions + n_others > 0 {
        info!(
            n_calls,
            n_sessions, n_others, "removed rows older than recording.retention_days"
        );
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::{InvocationId, SessionId};
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::{
        InvocationFilter, InvocationRepository as _, RecordSink as _, SessionRepository as _,
    };
    use riglm_ports::contract::scene::{call, run, session};
    use riglm_ports::fake::{ManualClock, MemoryStore};
    use tokio::task::JoinHandle;
    use tokio::time::advance;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// Returns a store with a session that ended two days ago, with more calls than one step
    /// deletes, and one that ended now.
    async fn store(now: Timestamp) -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::default());
        for (n, at) in [(1, now - 2 * DAY), (2, now)] {
            let mut row = session(run(1), n);
            row.id = SessionId::new(at, [n; 10]);
            row.started_at = at;
            let mut records = vec![Record::SessionOpened(row.clone())];
            for n in 0..=STEP_ROWS {
                let [a, b, c, d] = n.to_be_bytes();
                let mut call = call(row.id, 1);
                call.id = InvocationId::new(at, [a, b, c, d, 0, 0, 0, 0, 0, 0]);
                call.started_at = at;
                records.push(Record::CallOpened(call));
            }
            let session = row.id;
            records.push(Record::SessionClosed {
                session,
                ended_at: at,
            });
            store.apply(&records).await.unwrap();
        }
        store
    }

    async fn n_calls(store: &MemoryStore) -> u64 {
        store.count(&InvocationFilter::default()).await.unwrap()
    }

    fn running(
        store: &Arc<MemoryStore>,
        clock: &Arc<ManualClock>,
        keep: Option<Duration>,
    ) -> (JoinHandle<()>, CancellationToken) {
        let stop = CancellationToken::new();
        let retention = Retention {
            store: store.clone(),
            clock: clock.clone(),
            keep: watch::channel(keep).1,
        };
        (tokio::spawn(retention.run(stop.clone())), stop)
    }

    /// Advances the time in pieces that are shorter than any wait.
    async fn pass(time: Duration) {
        let piece = Duration::from_millis(100);
        for _ in 0..time.as_millis() / piece.as_millis() {
            advance(piece).await;
            tokio::task::yield_now().await;
        }
    }

    const ALL: u64 = 2 * (STEP_ROWS as u64 + 1);

    #[tokio::test(start_paused = true)]
    async fn old_rows_are_deleted_after_a_minute_then_hourly() {
        let clock = Arc::new(ManualClock::default());
        let store = store(clock.now()).await;
        let (task, stop) = running(&store, &clock, Some(DAY));
        pass(FIRST_AFTER / 2).await;
        assert_eq!(n_calls(&store).await, ALL);
        pass(FIRST_AFTER).await;
        assert_eq!(n_calls(&store).await, ALL / 2);
        assert_eq!(store.sessions(9).await.unwrap().len(), 1);
        clock.advance(2 * DAY);
        pass(EVERY / 2).await;
        assert_eq!(n_calls(&store).await, ALL / 2);
        pass(EVERY).await;
        assert_eq!(n_calls(&store).await, 0);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_deleted_in_steps_with_pauses() {
        let clock = Arc::new(ManualClock::default());
        let store = store(clock.now()).await;
        let (_task, _stop) = running(&store, &clock, Some(DAY));
        let mut seen = Vec::new();
        for _ in 0..700 {
            advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
            seen.push(n_calls(&store).await);
        }
        seen.dedup();
        assert_eq!(seen, [ALL, ALL - u64::from(STEP_ROWS), ALL / 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn retention_runs_in_only_one_process_at_a_time() {
        let clock = Arc::new(ManualClock::default());
        let store = store(clock.now()).await;
        let other = store.try_begin(MaintenanceTask::Retention).await.unwrap();
        let (_task, _stop) = running(&store, &clock, Some(DAY));
        pass(FIRST_AFTER * 2).await;
        assert_eq!(n_calls(&store).await, ALL);
        drop(other);
        pass(EVERY).await;
        assert_eq!(n_calls(&store).await, ALL / 2);
        let free = store.try_begin(MaintenanceTask::Retention).await.unwrap();
        assert!(free.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again() {
        let clock = Arc::new(ManualClock::default());
        let store = store(clock.now()).await;
        store.start_failing();
        let (_task, _stop) = running(&store, &clock, Some(DAY));
        pass(FIRST_AFTER * 2).await;
        store.stop_failing();
        pass(EVERY).await;
        assert_eq!(n_calls(&store).await, ALL / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_kept_until_a_retention_limit_is_set() {
        let clock = Arc::new(ManualClock::default());
        let store = store(clock.now()).await;
        let (limit, keep) = watch::channel(None);
        let retention = Retention {
            store: store.clone(),
            clock: clock.clone(),
            keep,
        };
        let _task = tokio::spawn(retention.run(CancellationToken::new()));
        pass(FIRST_AFTER * 2).await;
        assert_eq!(n_calls(&store).await, ALL);
        limit.send_replace(Some(DAY));
        pass(EVERY).await;
        assert_eq!(n_calls(&store).await, ALL / 2);
    }
}
