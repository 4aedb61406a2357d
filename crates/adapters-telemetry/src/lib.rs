//! What the program tells of itself, for the tools of operators: metrics in the form of Prometheus, and
//! traces over OTLP, both through the SDK of OpenTelemetry.

mod metrics;
mod traces;

pub use metrics::{
    EncoderReading, Metrics, MetricsError, Readings, RecordingReading, UpstreamReading,
};
pub use traces::{OtlpTracer, TracesError, TracesOptions};
