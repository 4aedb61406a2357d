//! Hands records to the database, with patience.

use std::time::Duration;

use riglm_domain::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// The first wait after the database failed to take a batch; each further one doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What to do when the database does not take a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Report it.
    None,
    /// Try again until it does.
    Endless,
}

/// Applies the records; says once when that starts to fail and once when it works again.
///
/// # Errors
///
/// Returns what the sink returned, only without patience.
pub(super) async fn apply(
    sink: &dyn RecordSink,
    records: &[Record],
    patience: Patience,
) -> Result<(), StoreError> {
    let mut backoff = FIRST_BACKOFF;
    let mut failing_since = None;
    loop {
        let Err(error) = sink.apply(records).await else {
            break;
        };
        if patience == Patience::None {
            return Err(error);
        }
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
    if let Some(since) = failing_since {
        let duration_ms = since.elapsed().as_millis();
        info!(duration_ms, "the database takes records again");
    }
    Ok(())
}
