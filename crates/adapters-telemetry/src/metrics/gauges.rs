//! Gauges: values that are read at each scrape.

use std::sync::{Arc, OnceLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use parking_lot::{Mutex, MutexGuard};
use riglm_domain::num::to_f64;

/// The current values of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// The version of the program.
    pub version: &'static str,
    /// The start of the process, in seconds since 1970-01-01 UTC.
    pub started_at: f64,
    /// The number of open sessions.
    pub n_sessions: u64,
    /// The number of client requests that wait for their answer.
    pub n_in_flight: u64,
    /// Whether the proxy is paused.
    pub is_paused: bool,
    /// The values of each upstream.
    pub upstreams: Vec<UpstreamReading>,
    /// The state of the recording; `None` if recording is off.
    pub recording: Option<RecordingReading>,
    /// The values of each encoder of the search.
    pub encoders: Vec<EncoderReading>,
    /// The number of calls that were learned from since the start.
    pub n_learned: u64,
    /// The number of failures of the predictor since the start.
    pub n_predictor_failures: u64,
    /// The requests to the external predictor; `None` without one.
    pub external_predictor: Option<ExternalPredictorReading>,
    /// The share of hidden tools, out of the ones predicted to be needed, for which clients
    /// searched; `None` if none was needed yet.
    pub share_sought: Option<f64>,
}

/// The current values of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamReading {
    /// The name of the upstream.
    pub name: String,
    /// Whether the last attempt to reach it succeeded.
    pub is_available: bool,
    /// The number of open connections to it.
    pub n_connections: u64,
    /// The number of requests that wait for a free connection.
    pub n_waiting: u64,
}

/// The current values of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingReading {
    /// Whether records currently become rows.
    pub is_sound: bool,
    /// The number of bytes of records that wait for the database.
    pub waiting_bytes: u64,
    /// The number of lost records since the start.
    pub n_dropped: u64,
}

/// The requests to an external predictor since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalPredictorReading {
    /// The number of answers in time.
    pub n_answers: u64,
    /// The number of requests without an answer in time.
    pub n_failures: u64,
}

/// The current values of an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderReading {
    /// The name of the model.
    pub model: String,
    /// Whether searches use its vectors.
    pub is_ready: bool,
    /// Whether its last request failed or timed out.
    pub is_failing: bool,
}

type Read = Box<dyn Fn() -> Readings + Send + Sync>;

/// The values of the current scrape, which are read once for all gauges.
#[derive(Default)]
pub(super) struct Scrape {
    read: OnceLock<Read>,
    readings: Mutex<Readings>,
    asking: Mutex<()>,
}

impl Scrape {
    /// Registers `read`. Only the first call has an effect.
    pub(super) fn set_source(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        // An error means that a reader is already registered.
        let _ = self.read.set(Box::new(read));
    }

    /// Reads the values for a new scrape. They stay constant until the guard is dropped, and
    /// concurrent scrapes wait.
    pub(super) fn begin(&self) -> MutexGuard<'_, ()> {
        let guard = self.asking.lock();
        if let Some(read) = self.read.get() {
            *self.readings.lock() = read();
        }
        guard
    }
}

/// Registers gauges that take their values from `moment` at each scrape.
#[expect(clippy::too_many_lines, reason = "one statement for each gauge")]
pub(super) fn register_gauges(meter: &Meter, moment: &Arc<Scrape>) {
    let gauge = |name: &'static str, text: &'static str, take: fn(&Readings) -> Vec<Sample>| {
        let moment = Arc::clone(moment);
        let gauge = meter.f64_observable_gauge(name).with_description(text);
        gauge
            .with_callback(move |observer| {
                let samples = take(&moment.readings.lock());
                for (value, labels) in samples {
                    observer.observe(value, &labels);
                }
            })
            .build();
    };
    let total = |name: &'static str, text: &'static str, take: fn(&Readings) -> Option<u64>| {
        let moment = Arc::clone(moment);
        let counter = meter.u64_observable_counter(name).with_description(text);
        counter
            .with_callback(move |observer| {
                let value = take(&moment.readings.lock());
                if let Some(value) = value {
                    observer.observe(value, &[]);
                }
            })
            .build();
    };
    gauge(
        "riglm_build_info",
        "1, with the version as a label.",
        |read| vec![(1.0, vec![KeyValue::new("version", read.version)])],
    );
    gauge(
        "riglm_start_time_seconds",
        "Start time of the process, in seconds since 1970-01-01 UTC.",
        |read| single_sample(read.started_at),
    );
    gauge("riglm_sessions", "Open sessions.", |read| {
        single_sample(to_f64(read.n_sessions))
    });
    gauge(
        "riglm_requests_in_flight",
        "Requests of clients in flight.",
        |read| single_sample(to_f64(read.n_in_flight)),
    );
    gauge(
        "riglm_paused",
        "1 while the proxy is paused, else 0.",
        |read| single_sample(flag_value(read.is_paused)),
    );
    gauge(
        "riglm_upstream_available",
        "1 if the last attempt to reach the upstream succeeded, else 0.",
        |read| of_upstreams(read, |upstream| flag_value(upstream.is_available)),
    );
    gauge(
        "riglm_upstream_connections",
        "Open connections to the upstream.",
        |read| of_upstreams(read, |upstream| to_f64(upstream.n_connections)),
    );
    gauge(
        "riglm_upstream_waiting",
        "Requests that wait for a free connection to the upstream.",
        |read| of_upstreams(read, |upstream| to_f64(upstream.n_waiting)),
    );
    gauge(
        "riglm_store_available",
        "1 while the database accepts records; absent if nothing is recorded.",
        |read| of_recording(read, |recording| flag_value(recording.is_sound)),
    );
    gauge(
        "riglm_spool_bytes",
        "Bytes of records that wait for the database.",
        |read| of_recording(read, |recording| to_f64(recording.waiting_bytes)),
    );
    total(
        "riglm_records_dropped",
        "Records lost since the start.",
        |read| read.recording.map(|recording| recording.n_dropped),
    );
    gauge(
        "riglm_encoder_ready",
        "1 while searches have vectors of the encoder.",
        |read| of_encoders(read, |encoder| flag_value(encoder.is_ready)),
    );
    gauge(
        "riglm_encoder_failing",
        "1 while the encoder fails or is late.",
        |read| of_encoders(read, |encoder| flag_value(encoder.is_failing)),
    );
    total(
        "riglm_learned_calls",
        "Calls learned since the start.",
        |read| Some(read.n_learned),
    );
    total(
        "riglm_predictor_failures",
        "Failures of the predictor since the start.",
        |read| Some(read.n_predictor_failures),
    );
    total(
        "riglm_external_predictor_answers",
        "Answers of the external predictor in time since the start; absent without one.",
        |read| read.external_predictor.map(|external| external.n_answers),
    );
    total(
        "riglm_external_predictor_failures",
        "Requests to the external predictor without an answer in time since the start; absent \
         without one.",
        |read| read.external_predictor.map(|external| external.n_failures),
    );
    gauge(
        "riglm_hidden_tools_sought_ratio",
        "Share of the needed hidden tools, as predicted, for which clients looked.",
        |read| read.share_sought.map_or_else(Vec::new, single_sample),
    );
}

type Sample = (f64, Vec<KeyValue>);

fn single_sample(value: f64) -> Vec<Sample> {
    vec![(value, Vec::new())]
}

fn of_upstreams(read: &Readings, value: fn(&UpstreamReading) -> f64) -> Vec<Sample> {
    let upstreams = read.upstreams.iter();
    upstreams
        .map(|upstream| {
            let name = KeyValue::new("upstream", upstream.name.clone());
            (value(upstream), vec![name])
        })
        .collect()
}

fn of_recording(read: &Readings, value: fn(&RecordingReading) -> f64) -> Vec<Sample> {
    let recording = read.recording.iter();
    recording
        .map(|recording| (value(recording), Vec::new()))
        .collect()
}

fn of_encoders(read: &Readings, value: fn(&EncoderReading) -> f64) -> Vec<Sample> {
    let encoders = read.encoders.iter();
    encoders
        .map(|encoder| {
            let model = KeyValue::new("model", encoder.model.clone());
            (value(encoder), vec![model])
        })
        .collect()
}

fn flag_value(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
