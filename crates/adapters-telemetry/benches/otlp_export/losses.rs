//! The losses that a program can see: in the log, and in the metrics of the SDK.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The fields of log messages with a number of lost spans.
const LOSSES: [&str; 4] = [
    "n_lost",
    "dropped_span_count",
    "dropped_spans",
    "rejected_spans",
];
/// The counter of the SDK, with the label of the reason for a loss.
const COUNTER: &str = "otel_sdk_processor_span_processed";
const REASON: &str = "error_type";

/// Adds up the lost spans that the log mentions.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossLog(Arc<AtomicU64>);

impl LossLog {
    /// Begins to read the log of this process.
    pub(crate) fn install() -> Self {
        let log = Self::default();
        tracing::subscriber::set_global_default(log.clone()).unwrap();
        log
    }

    /// Returns the number of lost spans in all messages so far.
    pub(crate) fn n_lost(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Subscriber for LossLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut LossVisitor(self));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct LossVisitor<'a>(&'a LossLog);

impl Visit for LossVisitor<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if LOSSES.contains(&field.name()) {
            self.0.0.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_u64(field, value.unsigned_abs());
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// The metrics that the SDK keeps about itself.
#[derive(Debug)]
pub(crate) struct SdkMetrics(Registry);

impl SdkMetrics {
    /// Begins to collect them. Processors that exist already are not in them.
    pub(crate) fn install() -> Self {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .build()
            .unwrap();
        let provider = SdkMeterProvider::builder().with_reader(exporter).build();
        opentelemetry::global::set_meter_provider(provider);
        Self(registry)
    }

    /// Returns the number of spans that were lost for a reason; `None` if nothing is counted.
    pub(crate) fn n_lost(&self) -> Option<f64> {
        let families = self.0.gather();
        let counter = families
            .iter()
            .find(|family| family.name().starts_with(COUNTER))?;
        let lost = counter.get_metric().iter().filter(|metric| {
            let labels = metric.get_label();
            labels.iter().any(|label| label.name() == REASON)
        });
        Some(lost.map(|metric| metric.get_counter().get_value()).sum())
    }
}
