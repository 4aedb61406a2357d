//! The compared ways from an ended span to a receiver.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    Protocol, SpanExporter as LibraryExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor as TaskProcessor;
use opentelemetry_sdk::trace::{
    BatchConfig, BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
    Span as SdkSpan, SpanData, SpanExporter, SpanLimits, SpanProcessor,
};
use reqwest::redirect::Policy;
use riglm_adapters_telemetry::{OtlpTracer, TracesOptions};
use riglm_domain::mcp::trace_context::{SpanId, TraceContext, TraceFlags, TraceId};
use riglm_ports::tracer::{Span, SpanAttribute, SpanOperation, SpanStatus, Tracer};

/// The names and attributes of the crate itself, so that all ways have the same spans.
#[expect(dead_code, reason = "the spans here have no failures")]
#[path = "../../src/traces/otlp/names.rs"]
mod names;

/// The header of every request to the receiver.
const HEADER: (&str, &str) = ("x-key", "configured");
/// The limits of all ways are those of the exporter of the crate.
const MAX_WAITING: usize = 4_096;
const MAX_BATCH: usize = 512;
const GATHER_FOR: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// One of the compared ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Spans are made and dropped. It is the baseline.
    Nothing,
    /// The exporter of this crate.
    Own,
    /// The exporter of the library with the batch processor of the SDK, which has a thread.
    Thread,
    /// The exporter of the library with the experimental batch processor, which has a task.
    Task,
}

impl Way {
    /// The ways that send spans.
    pub(crate) const SENDING: [Self; 3] = [Self::Own, Self::Thread, Self::Task];
    /// All ways.
    pub(crate) const ALL: [Self; 4] = [Self::Nothing, Self::Own, Self::Thread, Self::Task];

    /// Returns the name in arguments and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Own => "own",
            Self::Thread => "thread",
            Self::Task => "task",
        }
    }

    /// Returns the way of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// A tracer in use.
#[derive(Debug)]
pub(crate) struct Exporting {
    pub(crate) tracer: Arc<dyn Tracer>,
    own: Option<Arc<OtlpTracer>>,
    provider: Option<SdkTracerProvider>,
    n_failed: Arc<AtomicU64>,
}

impl Exporting {
    /// Starts to send spans to the receiver at this base URL. Needs a runtime.
    pub(crate) fn start(way: Way, base_url: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let n_failed = Arc::default();
        if way == Way::Own {
            let own = Arc::new(own_tracer(base_url));
            return Self {
                tracer: Arc::clone(&own) as Arc<dyn Tracer>,
                own: Some(own),
                provider: None,
                n_failed,
            };
        }
        let builder = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                1.0,
            ))))
            .with_span_limits(SpanLimits::default())
            .with_resource(
                Resource::builder_empty()
                    .with_service_name("bench")
                    .with_attribute(KeyValue::new("service.version", "1.2.3"))
                    .build(),
            );
        let counted = |client| CountingExporter {
            exporter: library_exporter(client, base_url),
            n_failed: Arc::clone(&n_failed),
        };
        let provider = match way {
            Way::Nothing | Way::Own => builder.with_span_processor(NoExport).build(),
            Way::Thread => {
                let exporter = counted(Client::Blocking);
                let processor = BatchSpanProcessor::builder(exporter).with_batch_config(limits());
                builder.with_span_processor(processor.build()).build()
            }
            Way::Task => {
                let exporter = counted(Client::Async);
                let processor = TaskProcessor::builder(exporter, Tokio).with_batch_config(limits());
                builder.with_span_processor(processor.build()).build()
            }
        };
        Self {
            tracer: Arc::new(LibraryTracer(provider.tracer("riglm"))),
            own: None,
            provider: Some(provider),
            n_failed,
        }
    }

    /// Sends the remaining spans, within 3 seconds where the way has a limit. Returns whether the
    /// way reports no error.
    pub(crate) async fn close(&self) -> bool {
        if let Some(own) = &self.own {
            own.close().await;
        }
        let Some(provider) = self.provider.clone() else {
            return true;
        };
        // It blocks.
        let shut_down = move || provider.shutdown_with_timeout(CLOSE_WITHIN).is_ok();
        tokio::task::spawn_blocking(shut_down).await.unwrap()
    }

    /// Returns the number of spans in batches that the exporter of the library failed to send.
    pub(crate) fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }
}

fn own_tracer(base_url: &str) -> OtlpTracer {
    OtlpTracer::start(TracesOptions {
        endpoint: base_url.parse().unwrap(),
        headers: [(
            HEADER.0.parse::<http::HeaderName>().unwrap(),
            HEADER.1.parse().unwrap(),
        )]
        .into_iter()
        .collect(),
        timeout: TIMEOUT,
        sample_ratio: 1.0,
        service_name: "bench".into(),
        service_version: "1.2.3".into(),
    })
    .unwrap()
}

/// Every limit is set. The environment has no say in any that can be set.
fn limits() -> BatchConfig {
    BatchConfigBuilder::default()
        .with_max_queue_size(MAX_WAITING)
        .with_max_export_batch_size(MAX_BATCH)
        .with_scheduled_delay(GATHER_FOR)
        .with_max_concurrent_exports(1)
        // Longer than one batch can take with its retries.
        .with_max_export_timeout(3 * TIMEOUT)
        .build()
}

/// The HTTP client of the library's exporter.
#[derive(Clone, Copy)]
enum Client {
    Blocking,
    Async,
}

/// Returns the exporter of the library, with an HTTP client like that of this crate.
fn library_exporter(client: Client, base_url: &str) -> LibraryExporter {
    let builder = LibraryExporter::builder().with_http();
    let builder = match client {
        Client::Blocking => {
            // It cannot be made on a runtime.
            let client = std::thread::spawn(|| {
                reqwest::blocking::Client::builder()
                    .timeout(TIMEOUT)
                    .connect_timeout(TIMEOUT / 2)
                    .redirect(Policy::none())
                    .referer(false)
                    .tls_certs_only([])
                    .no_proxy()
                    .build()
                    .unwrap()
            });
            builder.with_http_client(client.join().unwrap())
        }
        Client::Async => builder.with_http_client(
            reqwest::Client::builder()
                .timeout(TIMEOUT)
                .connect_timeout(TIMEOUT / 2)
                .redirect(Policy::none())
                .referer(false)
                .tls_certs_only([])
                .no_proxy()
                .build()
                .unwrap(),
        ),
    };
    builder
        .with_endpoint(format!("{base_url}/v1/traces"))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIMEOUT)
        .with_headers(HashMap::from([(HEADER.0.into(), HEADER.1.into())]))
        .build()
        .unwrap()
}

/// Counts the spans of batches that could not be sent, which the library does not.
#[derive(Debug)]
struct CountingExporter {
    exporter: LibraryExporter,
    n_failed: Arc<AtomicU64>,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let n = batch.len() as u64;
        let sent = self.exporter.export(batch).await;
        if sent.is_err() {
            self.n_failed.fetch_add(n, Ordering::Relaxed);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Drops every span.
#[derive(Debug)]
struct NoExport;

impl SpanProcessor for NoExport {
    fn on_start(&self, _: &mut SdkSpan, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        drop(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Begins spans as the tracer of this crate does.
#[derive(Debug)]
struct LibraryTracer(SdkTracer);

impl Tracer for LibraryTracer {
    fn begin(&self, operation: &SpanOperation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span> {
        let above = match parent {
            Some(parent) => {
                let parent = SpanContext::new(
                    opentelemetry::trace::TraceId::from_bytes(parent.trace.0),
                    opentelemetry::trace::SpanId::from_bytes(parent.span.0),
                    opentelemetry::trace::TraceFlags::new(parent.flags.to_byte()),
                    matches!(operation, SpanOperation::Request(_)),
                    opentelemetry::trace::TraceState::default(),
                );
                Context::new().with_remote_span_context(parent)
            }
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(names::name(operation))
            .with_kind(names::kind(operation))
            .with_attributes(names::attributes(operation));
        let span = self.0.build_with_context(builder, &above);
        let made = span.span_context();
        let context = TraceContext {
            trace: TraceId(made.trace_id().to_bytes()),
            span: SpanId(made.span_id().to_bytes()),
            flags: TraceFlags::default().with_sampled(made.is_sampled()),
            state: None,
        };
        Box::new(LibrarySpan { span, context })
    }
}

#[derive(Debug)]
struct LibrarySpan {
    span: SdkSpan,
    context: TraceContext,
}

impl Span for LibrarySpan {
    fn context(&self) -> &TraceContext {
        &self.context
    }

    fn set_attribute(&mut self, attribute: SpanAttribute<'_>) {
        if self.span.is_recording() {
            self.span.set_attribute(names::attribute(attribute));
        }
    }

    fn set_status(&mut self, _: SpanStatus<'_>) {}
}
