//! Telemetry for operators: Prometheus metrics, and traces over OTLP, both through the
//! OpenTelemetry SDK.

mod metrics;
mod traces;

pub use metrics::{
    EncoderReading, ExternalPredictorReading, Metrics, MetricsError, Readings, RecordingReading,
    UpstreamReading,
};
pub use traces::{
    OtlpConfig, OtlpTracer, ReceiverHeaders, TelemetryConfig, TracesError, TracesOptions,
};
