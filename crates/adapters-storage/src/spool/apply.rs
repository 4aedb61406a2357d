//! Passes records to the database, with retries and back-off.

use std::time::Duration;

use riglm_domain::resilience::Backoff;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::condition::{SpoolCondition, one_line};

/// The back-off after the database failed to take a batch.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// The number of records in a transaction after a failed one, which a slow server may manage before
/// its timeouts.
const MAX_RETRIED_RECORDS: usize = 1_000;
/// The time after which a running attempt counts as stuck.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// The behaviour when the database does not take a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum RetryPolicy<'a> {
    None,
    /// Retry until it does, and keep the condition up to date.
    Endless(&'a SpoolCondition),
}

/// Applies the records. Logs once when that starts to fail, and once when it works again.
///
/// # Errors
///
/// Returns the error of the sink, only without patience.
pub(super) async fn apply(
    sink: &dyn RecordSink,
    records: &[Record],
    patience: RetryPolicy<'_>,
) -> Result<(), StoreError> {
    let RetryPolicy::Endless(condition) = patience else {
        return sink.apply(records).await;
    };
    let (mut rest, mut part_size) = (records, records.len());
    let mut n_failures = 0_u32;
    let mut failing_since = None;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(part_size.min(rest.len()));
        let Err(error) = attempt(sink, part, condition).await else {
            rest = after;
            n_failures = 0;
            continue;
        };
        condition.set_apply_failure(one_line(&error));
        if failing_since.is_none() {
            failing_since = Some(Instant::now());
            warn!(
                error = &error as &dyn std::error::Error,
                "failed to write records to the database, they wait in the spool"
            );
        }
        part_size = part_size.min(MAX_RETRIED_RECORDS);
        n_failures = n_failures.saturating_add(1);
        sleep(BACKOFF.delay(n_failures, fastrand::f64())).await;
    }
    condition.clear_apply_failure();
    if let Some(since) = failing_since {
        let duration_ms = since.elapsed().as_millis();
        info!(duration_ms, "the database accepts records again");
    }
    Ok(())
}

async fn attempt(
    sink: &dyn RecordSink,
    records: &[Record],
    condition: &SpoolCondition,
) -> Result<(), StoreError> {
    let mut applying = sink.apply(records);
    if let Ok(outcome) = timeout(SLOW_AFTER, &mut applying).await {
        return outcome;
    }
    // Report the condition meanwhile, but do not cancel the attempt, which may still succeed.
    condition.set_apply_failure("the database does not answer".into());
    applying.await
}
