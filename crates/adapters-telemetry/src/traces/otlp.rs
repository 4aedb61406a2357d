//! The tracer: OpenTelemetry spans, sent to a receiver of OTLP over HTTP.
//!
//! The SDK samples and holds spans while they are open. Completed spans go through a bounded queue
//! (`queue`) to a task that sends them in batches (`export`, `receiver`), so that no request waits
//! for the receiver. The names and attributes (`names`) follow the semantic conventions for the
//! Model Context Protocol.

mod export;
mod names;
mod queue;
mod receiver;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanLimits};
use parking_lot::Mutex;
use riglm_domain::mcp::trace_context::{SpanId, TraceContext, TraceFlags, TraceId};
use riglm_ports::tracer::{Span, SpanAttribute, SpanOperation, SpanStatus, Tracer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::export::SpanExport;
use self::queue::SpanQueue;
use self::receiver::OtlpReceiver;
use super::{TracesError, TracesOptions};

/// Sends spans to a receiver of OTLP over HTTP, in batches and in the background.
///
/// A slow or unreachable receiver causes lost spans and no other problem. The log has the number of
/// lost spans, once a minute at most.
#[derive(Debug)]
pub struct OtlpTracer {
    tracer: SdkTracer,
    closing: CancellationToken,
    sending: Mutex<Option<JoinHandle<()>>>,
}

impl OtlpTracer {
    /// Starts a task on the current runtime that sends the recorded spans.
    ///
    /// # Errors
    ///
    /// Returns the reason why the HTTP client cannot be set up.
    pub fn start(options: TracesOptions) -> Result<Self, TracesError> {
        let resource = Resource::builder_empty()
            .with_service_name(options.service_name.clone())
            .with_attribute(KeyValue::new(
                "service.version",
                options.service_version.clone(),
            ))
            .build();
        let (queue, queued) = SpanQueue::new();
        let provider = SdkTracerProvider::builder()
            // Every option is set explicitly. Otherwise the SDK would read it from the environment.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                options.sample_ratio,
            ))))
            .with_span_limits(SpanLimits::default())
            .with_resource(resource.clone())
            .with_span_processor(queue)
            .build();
        let closing = CancellationToken::new();
        let receiver = OtlpReceiver::new(options)?;
        let export = SpanExport::new(receiver, &resource, queued);
        let sending = tokio::spawn(export.run(closing.clone()));
        Ok(Self {
            tracer: provider.tracer("riglm"),
            closing,
            sending: Mutex::new(Some(sending)),
        })
    }

    /// Sends the remaining spans, for 3 seconds at most, and logs how many were lost. Spans that end
    /// later are lost.
    pub async fn close(&self) {
        self.closing.cancel();
        let sending = (self.sending.lock()).take();
        let Some(sending) = sending else {
            return;
        };
        if let Err(error) = sending.await {
            tracing::error!("the task that sends trace spans failed: {error}");
        }
    }
}

impl Tracer for OtlpTracer {
    fn begin(&self, operation: &SpanOperation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span> {
        let is_remote = matches!(operation, SpanOperation::Request(_));
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
        let context = trace_context(span.span_context(), parent);
        Box::new(OtlpSpan { span, context })
    }
}

/// A span. The SDK ends it when it is dropped.
#[derive(Debug)]
struct OtlpSpan {
    span: opentelemetry_sdk::trace::Span,
    context: TraceContext,
}

impl Span for OtlpSpan {
    fn context(&self) -> &TraceContext {
        &self.context
    }

    fn set_attribute(&mut self, attribute: SpanAttribute<'_>) {
        if self.span.is_recording() {
            self.span.set_attribute(names::attribute(attribute));
        }
    }

    fn set_status(&mut self, end: SpanStatus<'_>) {
        let Some(failure) = end.failure() else {
            return;
        };
        if !self.span.is_recording() {
            return;
        }
        if let SpanStatus::Code(code) = end {
            let code = KeyValue::new(names::STATUS_CODE, code.to_owned());
            self.span.set_attribute(code);
        }
        let failure = KeyValue::new(names::ERROR_TYPE, failure.to_owned());
        self.span.set_attribute(failure);
        // The description stays empty: the text of an error may be confidential.
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

/// Returns the context of a span. Values that the SDK does not keep are taken from the parent.
fn trace_context(made: &SpanContext, parent: Option<&TraceContext>) -> TraceContext {
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
