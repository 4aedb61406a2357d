//! Distributed traces: spans as OpenTelemetry has them, sent to a receiver of OTLP over HTTP.
//!
//! The SDK samples and keeps spans while they last. From there on they go through a queue with a
//! bound (`queue`) to a task that sends them in batches (`export`, `receiver`), so that nothing on the
//! way of a request waits for a receiver. The names and attributes (`names`) are those of the semantic
//! conventions for the Model Context Protocol.

mod export;
mod names;
mod queue;
mod receiver;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use riglm_domain::trace_context::{SpanId, TraceContext, TraceFlags, TraceId};
use riglm_ports::tracer::{Attribute, End, Operation, Span, Tracer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::export::Export;
use self::queue::Queue;
use self::receiver::Receiver;

/// How long the spans that are left may take to be sent when the program ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Where spans go, and which.
#[derive(Clone, Debug)]
pub struct TracesOptions {
    /// The base URL of the receiver, `http` or `https`; `v1/traces` is added to its path.
    pub endpoint: Url,
    /// Headers of every request to it; values that are secrets are marked as such.
    pub headers: HeaderMap,
    /// How long a request to it may take.
    pub timeout: Duration,
    /// The part of the traces that begin here which is recorded, from 0 to 1. Those that begin
    /// elsewhere are recorded if they are there.
    pub sample_ratio: f64,
    /// The name of this program in the traces.
    pub service_name: String,
    /// Its version.
    pub service_version: String,
}

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The HTTP client cannot be set up, which mostly means TLS.
    #[error("failed to set up the HTTP client for traces")]
    Client(#[source] reqwest::Error),
}

/// Sends spans to a receiver of OTLP over HTTP, in batches and in the background.
///
/// A receiver that is slow or gone costs spans and nothing else. How many were lost is said in the log
/// once a minute at most.
#[derive(Debug)]
pub struct OtlpTracer {
    tracer: SdkTracer,
    closing: CancellationToken,
    sending: Mutex<Option<JoinHandle<()>>>,
}

impl OtlpTracer {
    /// Begins to send what will be recorded, on a task of the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// Returns why no request can be made.
    pub fn start(options: TracesOptions) -> Result<Self, TracesError> {
        let resource = Resource::builder_empty()
            .with_service_name(options.service_name.clone())
            .with_attribute(KeyValue::new(
                "service.version",
                options.service_version.clone(),
            ))
            .build();
        let (queue, queued) = Queue::new();
        let provider = SdkTracerProvider::builder()
            // All of it is said here: the SDK would ask the environment for what is not.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                options.sample_ratio,
            ))))
            .with_resource(resource.clone())
            .with_span_processor(queue)
            .build();
        let closing = CancellationToken::new();
        let receiver = Receiver::new(options)?;
        let export = Export::new(receiver, &resource, queued);
        let sending = tokio::spawn(export.run(closing.clone()));
        Ok(Self {
            tracer: provider.tracer("riglm"),
            closing,
            sending: Mutex::new(Some(sending)),
        })
    }

    /// Sends what is left, for 3 seconds at most. Spans that end later are lost.
    pub async fn close(&self) {
        self.closing.cancel();
        let sending = (self.sending.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(sending) = sending else {
            return;
        };
        let abort = sending.abort_handle();
        if tokio::time::timeout(CLOSE_WITHIN, sending).await.is_err() {
            abort.abort();
            tracing::warn!("the last spans were not sent in time and are lost");
        }
    }
}

impl Tracer for OtlpTracer {
    fn begin(&self, operation: &Operation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span> {
        let is_remote = matches!(operation, Operation::Request(_));
        let above = match parent {
            Some(parent) => {
                Context::new().with_remote_span_context(span_context(parent, is_remote))
            }
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(names::name(operation))
            .with_kind(names::kind(operation))
            .with_attributes(names::attributes(operation));
        let span = self.tracer.build_with_context(builder, &above);
        let context = place(span.span_context(), parent);
        Box::new(OtlpSpan { span, context })
    }
}

/// One span; the SDK ends it when it is dropped.
#[derive(Debug)]
struct OtlpSpan {
    span: opentelemetry_sdk::trace::Span,
    context: TraceContext,
}

impl Span for OtlpSpan {
    fn context(&self) -> &TraceContext {
        &self.context
    }

    fn note(&mut self, attribute: Attribute<'_>) {
        if self.span.is_recording() {
            self.span.set_attribute(names::attribute(attribute));
        }
    }

    fn end_as(&mut self, end: End<'_>) {
        let Some(failure) = end.failure() else {
            return;
        };
        if !self.span.is_recording() {
            return;
        }
        if let End::Code(code) = end {
            let code = KeyValue::new(names::STATUS_CODE, code.to_owned());
            self.span.set_attribute(code);
        }
        let failure = KeyValue::new(names::ERROR_TYPE, failure.to_owned());
        self.span.set_attribute(failure);
        // The text of an error is content.
        self.span.set_status(Status::error(""));
    }
}

fn span_context(context: &TraceContext, is_remote: bool) -> SpanContext {
    let state = context.tracestate().and_then(|state| state.parse().ok());
    SpanContext::new(
        opentelemetry::trace::TraceId::from_bytes(context.trace.0),
        opentelemetry::trace::SpanId::from_bytes(context.span.0),
        opentelemetry::trace::TraceFlags::new(context.flags.to_byte()),
        is_remote,
        state.unwrap_or_default(),
    )
}

/// Returns the place of a span. What the SDK does not keep of the parent is taken from there.
fn place(made: &SpanContext, parent: Option<&TraceContext>) -> TraceContext {
    let span = SpanId(made.span_id().to_bytes());
    match parent {
        Some(parent) => parent.child(span, made.is_sampled()),
        None => TraceContext {
            trace: TraceId(made.trace_id().to_bytes()),
            span,
            flags: TraceFlags::default().with_sampled(made.is_sampled()),
            state: None,
        },
    }
}

#[cfg(test)]
mod tests;
