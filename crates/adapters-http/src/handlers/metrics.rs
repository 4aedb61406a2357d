//! `GET /metrics`: all metrics, in the text format of Prometheus.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use http::{StatusCode, header};
use tokio::sync::Semaphore;

use crate::problem::{Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// The source of the metrics.
#[derive(Clone)]
pub struct MetricsSource {
    media_type: &'static str,
    /// Renders the text. Called for each request, on a thread that may block.
    text: Arc<dyn Fn() -> Result<String, Box<dyn Error + Send + Sync>> + Send + Sync>,
    turn: Arc<Semaphore>,
}

impl MetricsSource {
    /// Creates a source from the media type of the text and a function that renders it.
    pub fn new(
        media_type: &'static str,
        text: impl Fn() -> Result<String, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            media_type,
            text: Arc::new(text),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsSource").finish_non_exhaustive()
    }
}

/// Return all metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics", tag = "observing", security(("token" = ["read"])),
    responses(
        (status = OK, description = "The metrics in the text format of Prometheus.", body = String, content_type = "text/plain"),
        (status = INTERNAL_SERVER_ERROR, description = "The metrics cannot be rendered.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors,
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Result<impl IntoResponse, Problem> {
    let MetricsSource {
        media_type,
        text,
        turn,
    } = parts.metrics;
    // The text is large, so only one is rendered at a time. The semaphore is never closed.
    let _turn = turn.acquire_owned().await;
    let written = tokio::task::spawn_blocking(move || text()).await;
    let failed = || {
        let detail = "failed to render the metrics";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    };
    // A panic of the task is already reported.
    let text = written.map_err(|_| failed())?.map_err(|error| {
        tracing::error!("failed to render the metrics: {error}");
        failed()
    })?;
    Ok(([(header::CONTENT_TYPE, media_type)], text))
}
