//! The tracer of a build without the feature `telemetry-otlp`: the same interface, but none ever
//! starts. So nothing else has to know which of the two was built.

use riglm_domain::mcp::trace_context::TraceContext;
use riglm_ports::tracer::{Span, SpanOperation, Tracer};

use super::{TracesError, TracesOptions};

/// Sends spans to a receiver of OTLP over HTTP, in a build with the feature `telemetry-otlp`.
///
/// This build has no such tracer. A configuration with a receiver is refused before one is started.
#[derive(Debug)]
pub enum OtlpTracer {}

impl OtlpTracer {
    /// Refuses to start.
    ///
    /// # Errors
    ///
    /// Returns [`TracesError::NotBuilt`].
    pub fn start(_: TracesOptions) -> Result<Self, TracesError> {
        Err(TracesError::NotBuilt)
    }

    /// Sends the remaining spans, in a build with the feature.
    pub async fn close(&self) {
        match *self {}
    }
}

impl Tracer for OtlpTracer {
    fn begin(
        &self,
        _operation: &SpanOperation<'_>,
        _parent: Option<&TraceContext>,
    ) -> Box<dyn Span> {
        match *self {}
    }
}
