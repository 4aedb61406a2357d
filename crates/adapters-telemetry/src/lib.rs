//! Telemetry for operators: Prometheus metrics, and traces over OTLP, both through the
//! OpenTelemetry SDK.
//!
//! Traces need the feature `telemetry-otlp`. Without it, a configuration with a receiver is refused.

mod metrics;
mod traces;

pub use metrics::{
    EncoderReading, ExternalPredictorReading, Metrics, MetricsError, Readings, RecordingReading,
    UpstreamReading,
};
pub use traces::{
    OtlpConfig, OtlpTracer, ReceiverHeaders, TelemetryConfig, TracesError, TracesOptions,
};
