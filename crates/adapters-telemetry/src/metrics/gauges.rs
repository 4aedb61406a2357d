//! What is so at a moment: read when the metrics are asked for.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

/// What is read of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// The version of the program.
    pub version: &'static str,
    /// When the process started, in seconds since 1970-01-01 UTC.
    pub started_at: f64,
    /// How many sessions are open.
    pub n_sessions: u64,
    /// How many requests of clients wait for their answer.
    pub n_in_flight: u64,
    /// Each upstream.
    pub upstreams: Vec<UpstreamReading>,
    /// Where recorded calls go; `None` where nothing is recorded.
    pub recording: Option<RecordingReading>,
    /// Each encoder of the search.
    pub encoders: Vec<EncoderReading>,
    /// How many calls were learned from since the start.
    pub n_learned: u64,
    /// How often the predictor failed since the start.
    pub n_predictor_failures: u64,
    /// For which share of the hidden tools that were needed, as it was predicted, clients looked; `None`
    /// where none was needed yet.
    pub share_sought: Option<f64>,
}

/// What is read of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamReading {
    /// Its name.
    pub name: String,
    /// Whether the last attempt to reach it did.
    pub is_available: bool,
    /// How many connections to it are open.
    pub n_connections: u64,
    /// How many requests wait for a place among them.
    pub n_waiting: u64,
}

/// What is read of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingReading {
    /// Whether records become rows at present.
    pub is_sound: bool,
    /// How many bytes of records wait for the database.
    pub waiting_bytes: u64,
    /// How many records were lost since the start.
    pub n_dropped: u64,
}

/// What is read of an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderReading {
    /// The model.
    pub model: String,
    /// Whether searches have its vectors.
    pub is_ready: bool,
    /// Whether it failed or was late the last time.
    pub is_failing: bool,
}

type Read = Box<dyn Fn() -> Readings + Send + Sync>;

/// What is read, once for each time that the metrics are asked for.
#[derive(Default)]
pub(super) struct Moment {
    read: OnceLock<Read>,
    readings: Mutex<Readings>,
    asking: Mutex<()>,
}

impl Moment {
    /// Has `read` asked from now on. The first one counts.
    pub(super) fn watch(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        // The error says that there is one.
        let _ = self.read.set(Box::new(read));
    }

    /// Reads anew, when nobody else asks; what is read holds until the guard is dropped.
    pub(super) fn begin(&self) -> MutexGuard<'_, ()> {
        let guard = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = self.read.get() {
            *self.readings() = read();
        }
        guard
    }

    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has gauges take from a moment whenever the metrics are asked for.
pub(super) fn watch(meter: &Meter, moment: &Arc<Moment>) {
    let gauge = |name: &'static str, text: &'static str, take: fn(&Readings) -> Vec<Sample>| {
        let moment = Arc::clone(moment);
        let gauge = meter.f64_observable_gauge(name).with_description(text);
        gauge
            .with_callback(move |observer| {
                let samples = take(&moment.readings());
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
                let value = take(&moment.readings());
                if let Some(value) = value {
                    observer.observe(value, &[]);
                }
            })
            .build();
    };
    gauge("riglm_build_info", "1, with the version.", |read| {
        vec![(1.0, vec![KeyValue::new("version", read.version)])]
    });
    gauge(
        "riglm_start_time_seconds",
        "When the process started, in seconds since 1970-01-01 UTC.",
        |read| one(read.started_at),
    );
    gauge("riglm_sessions", "Open sessions.", |read| {
        one(number(read.n_sessions))
    });
    gauge(
        "riglm_requests_in_flight",
        "Requests of clients that wait for their answer.",
        |read| one(number(read.n_in_flight)),
    );
    gauge(
        "riglm_upstream_available",
        "1 unless the last attempt to reach the upstream failed.",
        |read| of_upstreams(read, |upstream| truth(upstream.is_available)),
    );
    gauge(
        "riglm_upstream_connections",
        "Open connections to the upstream.",
        |read| of_upstreams(read, |upstream| number(upstream.n_connections)),
    );
    gauge(
        "riglm_upstream_waiting",
        "Who waits for a place among the connections to the upstream.",
        |read| of_upstreams(read, |upstream| number(upstream.n_waiting)),
    );
    gauge(
        "riglm_store_available",
        "1 while records become rows of the database; absent where nothing is recorded.",
        |read| of_recording(read, |recording| truth(recording.is_sound)),
    );
    gauge(
        "riglm_spool_bytes",
        "Bytes of records that wait for the database.",
        |read| of_recording(read, |recording| number(recording.waiting_bytes)),
    );
    total(
        "riglm_records_dropped",
        "Records that were lost since the start.",
        |read| read.recording.map(|recording| recording.n_dropped),
    );
    gauge(
        "riglm_encoder_ready",
        "1 while searches have the vectors of the encoder.",
        |read| of_encoders(read, |encoder| truth(encoder.is_ready)),
    );
    gauge(
        "riglm_encoder_failing",
        "1 while the encoder fails or is late.",
        |read| of_encoders(read, |encoder| truth(encoder.is_failing)),
    );
    total(
        "riglm_learned_calls",
        "Calls that were learned from since the start.",
        |read| Some(read.n_learned),
    );
    total(
        "riglm_predictor_failures",
        "How often the predictor failed since the start.",
        |read| Some(read.n_predictor_failures),
    );
    gauge(
        "riglm_hidden_tools_sought_ratio",
        "For which share of the hidden tools that were needed, as predicted, clients looked.",
        |read| read.share_sought.map_or_else(Vec::new, one),
    );
}

type Sample = (f64, Vec<KeyValue>);

fn one(value: f64) -> Vec<Sample> {
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

fn truth(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is read is far below 2^53, and a gauge is a float"
)]
fn number(value: u64) -> f64 {
    value as f64
}
