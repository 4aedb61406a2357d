//! The observers of events, and the readings of metrics.

use std::sync::Arc;

use riglm_adapters_storage::Storage;
use riglm_adapters_telemetry::{
    EncoderReading, ExternalPredictorReading, Metrics, Readings, RecordingReading, UpstreamReading,
};
use riglm_app::control::events::{EventFeed, Observers};
use riglm_app::proxy::Proxy;
use riglm_discovery::learning::LivePredictions;
use riglm_discovery::search::{EncoderCondition, ToolSearch};
use riglm_ports::analytics::JournalCondition;
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;

/// The observers of events.
#[derive(Clone, Debug)]
pub(super) struct Telemetry {
    pub(super) metrics: Arc<Metrics>,
    pub(super) feed: Arc<EventFeed>,
}

impl Telemetry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        Ok(Self {
            metrics: Arc::new(Metrics::new()?),
            feed: Arc::new(EventFeed::new(clock)),
        })
    }

    /// Returns an observer that forwards each event to all observers.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        let (metrics, feed) = (Arc::clone(&self.metrics), Arc::clone(&self.feed));
        Arc::new(Observers::new(vec![metrics, feed]))
    }
}

/// The sources that metrics read when they are scraped.
#[derive(Clone, Debug)]
pub(super) struct ReadingSources {
    pub(super) proxy: Arc<Proxy>,
    pub(super) storage: Option<Arc<Storage>>,
    pub(super) search: Arc<ToolSearch>,
    pub(super) predictions: LivePredictions,
    /// The start of the process, in seconds since 1970-01-01 UTC.
    pub(super) started_at: f64,
}

impl ReadingSources {
    pub(super) fn read(&self) -> Readings {
        let upstreams = self.proxy.upstream_states().into_iter();
        let encoders = self.search.encoders();
        let next_tools = self.predictions.get();
        let next_tools = next_tools.as_ref();
        Readings {
            version: env!("CARGO_PKG_VERSION"),
            started_at: self.started_at,
            n_sessions: self.proxy.n_sessions() as u64,
            n_in_flight: self.proxy.n_in_flight() as u64,
            is_paused: self.proxy.is_paused(),
            upstreams: upstreams
                .map(|state| UpstreamReading {
                    name: state.name.as_str().into(),
                    is_available: state.is_available,
                    n_connections: state.n_connections as u64,
                    n_waiting: state.n_waiting as u64,
                })
                .collect(),
            recording: self.storage.as_ref().map(|storage| RecordingReading {
                is_sound: storage.condition() == JournalCondition::Sound,
                waiting_bytes: storage.waiting_bytes(),
                n_dropped: storage.dropped_records(),
            }),
            encoders: (encoders.into_iter())
                .map(|(model, condition)| EncoderReading {
                    model,
                    is_ready: condition == EncoderCondition::Ready,
                    is_failing: condition == EncoderCondition::Failing,
                })
                .collect(),
            n_learned: next_tools.map_or(0, |next_tools| next_tools.n_learned()),
            n_predictor_failures: next_tools.map_or(0, |next_tools| next_tools.n_failed()),
            external_predictor: next_tools
                .and_then(|next_tools| next_tools.advice_counts())
                .map(|counts| ExternalPredictorReading {
                    n_answers: counts.answers,
                    n_failures: counts.failures,
                }),
            share_sought: next_tools.and_then(|next_tools| next_tools.share_sought()),
        }
    }
}
