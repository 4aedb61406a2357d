//! The spans of log events: which session and which upstream an event is about.
//!
//! A session has one span and each of its upstream sessions a span within it. They are enabled at
//! every log level, since warnings need them most.

use riglm_domain::id::{SessionId, UpstreamName};
use tokio::task::JoinHandle;
use tracing::{Instrument as _, Span, error_span, field};

/// Returns the span of a new session. Its row is not known yet.
pub(super) fn session() -> Span {
    error_span!("session", id = field::Empty)
}

/// Names the row of a session in its span.
pub(super) fn set_session_id(span: &Span, row: SessionId) {
    span.record("id", field::display(row));
}

pub(super) fn upstream(session: &Span, name: &UpstreamName) -> Span {
    error_span!(parent: session, "upstream", %name)
}

/// Runs a task in the current span.
pub(super) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task.in_current_span())
}
