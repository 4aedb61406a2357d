//! Distributed traces: their configuration, and the tracer that sends spans to a receiver.

mod config;
#[cfg(not(feature = "telemetry-otlp"))]
mod no_otlp;
#[cfg(feature = "telemetry-otlp")]
mod otlp;

use std::time::Duration;

use http::HeaderMap;
use url::Url;

pub use self::config::{OtlpConfig, ReceiverHeaders, TelemetryConfig};
#[cfg(not(feature = "telemetry-otlp"))]
pub use self::no_otlp::OtlpTracer;
#[cfg(feature = "telemetry-otlp")]
pub use self::otlp::OtlpTracer;

/// The options of the tracer: the receiver, and the sampling.
#[derive(Clone, Debug)]
pub struct TracesOptions {
    /// The base URL of the receiver, `http` or `https`; `v1/traces` is added to its path.
    pub endpoint: Url,
    /// Headers of every request to the receiver. Secret values are marked as sensitive.
    pub headers: HeaderMap,
    /// The timeout of a request to the receiver.
    pub timeout: Duration,
    /// The ratio of recorded traces among the traces that begin here, from 0 to 1. A trace that
    /// began elsewhere is recorded if its parent is.
    pub sample_ratio: f64,
    /// The service name in the traces.
    pub service_name: String,
    /// The service version in the traces.
    pub service_version: String,
}

/// The reason why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// This build has no exporter.
    #[error("this build of riglm has no OTLP exporter: build it with `--features telemetry-otlp`")]
    NotBuilt,
    /// The HTTP client cannot be set up, usually because of TLS.
    #[cfg(feature = "telemetry-otlp")]
    #[error("failed to set up the HTTP client for traces")]
    Client(#[source] reqwest::Error),
}
