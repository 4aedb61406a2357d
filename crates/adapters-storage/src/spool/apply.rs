//! Hands records to the database, with patience.

use std::time::Duration;

use riglm_domain::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::condition::{Condition, one_line};

/// The first wait after the database failed to take a batch; each further one doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// The time after which a database that takes a batch is one that does not.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// What to do when the database does not take a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience<'a> {
    /// Report it.
    None,
    /// Try again until it does, and keep the condition up to date.
    Endless(&'a Condition),
}

/// Applies the records; says once when that starts to fail and once when it works again.
///
/// # Errors
///
/// Returns what the sink returned, only without patience.
pub(super) async fn apply(
    sink: &dyn RecordSink,
    records: &[Record],
    patience: Patience<'_>,
) -> Result<(), StoreError> {
    let Patience::Endless(condition) = patience else {
        return sink.apply(records).await;
    };
    let mut backoff = FIRST_BACKOFF;
    let mut failing_since = None;
    loop {
        let Err(error) = attempt(sink, records, condition).await else {
            break;
        };
        condition.stuck(one_line(&error));
        if failing_since.is_none() {
            failing_since = Some(Instant::now());
            warn!(
                error = &error as &dyn std::error::Error,
                "the database takes no records, they wait in the spool"
            );
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
    condition.applied();
    if let Some(since) = failing_since {
        let duration_ms = since.elapsed().as_millis();
        info!(duration_ms, "the database takes records again");
    }
    Ok(())
}

async fn attempt(
    sink: &dyn RecordSink,
    records: &[Record],
    condition: &Condition,
) -> Result<(), StoreError> {
    let mut applying = sink.apply(records);
    if let Ok(outcome) = timeout(SLOW_AFTER, &mut applying).await {
        return outcome;
    }
    condition.stuck("the database does not answer".into());
    applying.await
}
