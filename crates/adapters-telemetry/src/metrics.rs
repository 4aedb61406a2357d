//! Metrics: what is counted of events, and what is read when somebody asks.
//!
//! Names of upstreams come from the configuration, names of tools from what upstreams list; both are
//! bounded (`labels`), and nothing else in a label can be chosen by a client.

mod gauges;
mod instruments;
mod labels;

use std::fmt;
use std::sync::Arc;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};
use riglm_domain::id::UpstreamName;
use riglm_ports::observer::{Event, Observer};

use gauges::Moment;
pub use gauges::{EncoderReading, Readings, RecordingReading, UpstreamReading};
use instruments::Instruments;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The exporter cannot be set up.
    #[error("failed to set up the metrics")]
    SetUp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// They cannot be written.
    #[error("failed to write the metrics")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    provider: SdkMeterProvider,
    instruments: Instruments,
    moment: Arc<Moment>,
}

impl Metrics {
    /// The media type of what [`Self::text`] returns.
    pub const MEDIA_TYPE: &'static str = prometheus::TEXT_FORMAT;

    /// Returns metrics that have counted nothing yet.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError::SetUp`] where the exporter refuses.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .without_target_info()
            .scope_info_enabled(false)
            .build()
            .map_err(|error| MetricsError::SetUp(error.into()))?;
        let provider = SdkMeterProvider::builder().with_reader(exporter).build();
        let instruments = Instruments::new(&provider.meter("riglm"));
        Ok(Self {
            registry,
            provider,
            instruments,
            moment: Arc::default(),
        })
    }

    /// Notes that there is an upstream, so that what is counted of it is there from the start.
    pub fn expect(&self, upstream: &UpstreamName) {
        self.instruments.expect(upstream);
    }

    /// Has `read` asked whenever the metrics are, for what is not counted but is so at a moment.
    pub fn watch(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        self.moment.watch(read);
        gauges::watch(&self.provider.meter("riglm"), &self.moment);
    }

    /// Returns all metrics in the text format of Prometheus. They are written for one at a time: who
    /// asks meanwhile waits.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError::Write`] where they cannot be written in it.
    pub fn text(&self) -> Result<String, MetricsError> {
        let _one_at_a_time = self.moment.begin();
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(|error| MetricsError::Write(error.into()))
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        self.instruments.count(event);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
