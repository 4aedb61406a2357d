//! Metrics: counters of events, and gauges that are read at each scrape.
//!
//! Names of upstreams come from the configuration, and names of tools from the lists of upstreams.
//! The number of both is bounded (`labels`). A client can choose no other part of a label.

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

use gauges::Scrape;
pub use gauges::{
    EncoderReading, ExternalPredictorReading, Readings, RecordingReading, UpstreamReading,
};
use instruments::Instruments;

/// The reason why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The exporter cannot be set up.
    #[error("failed to set up the metrics")]
    SetUp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The metrics cannot be serialized.
    #[error("failed to write the metrics")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    provider: SdkMeterProvider,
    instruments: Instruments,
    moment: Arc<Scrape>,
}

impl Metrics {
    /// The media type of the text of [`Self::text`].
    pub const MEDIA_TYPE: &'static str = prometheus::TEXT_FORMAT;

    /// Returns metrics with all counters at zero.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError::SetUp`] if the exporter fails to build.
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

    /// Registers an upstream, so that its series exist from the start.
    pub fn register_upstream(&self, upstream: &UpstreamName) {
        self.instruments.register_upstream(upstream);
    }

    /// Calls `read` at each scrape, for the values of gauges.
    pub fn set_readings_source(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        self.moment.set_source(read);
        gauges::register_gauges(&self.provider.meter("riglm"), &self.moment);
    }

    /// Returns all metrics in the Prometheus text format. Concurrent calls run one after the other.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError::Write`] if they cannot be serialized.
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
