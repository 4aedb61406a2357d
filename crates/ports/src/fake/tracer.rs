//! A tracer that records spans in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use riglm_domain::mcp::trace_context::{SpanId, TraceContext, TraceFlags, TraceId};

use crate::tracer::{RequestTarget, Span, SpanAttribute, SpanOperation, SpanStatus, Tracer};

/// A completed span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSpan {
    /// The operation as text: `request tools/call echo`, `upstream calc tools/call add`.
    pub name: String,
    /// The context of the span.
    pub context: TraceContext,
    /// The context of the parent span.
    pub parent: Option<TraceContext>,
    /// The attributes as text.
    pub attributes: Vec<String>,
    /// The type of the failure.
    pub failure: Option<String>,
}

/// Records completed spans, in the order of their ends. A span without a parent is recorded; any
/// other one is recorded if its parent is.
#[derive(Clone, Debug, Default)]
pub struct RecordingTracer {
    ended: Arc<Mutex<Vec<RecordedSpan>>>,
    n_begun: Arc<AtomicU64>,
}

impl RecordingTracer {
    /// Returns the completed spans.
    #[must_use]
    pub fn ended_spans(&self) -> Vec<RecordedSpan> {
        (self.ended.lock()).clone()
    }

    /// Returns the number of spans that have begun.
    #[must_use]
    pub fn n_begun(&self) -> u64 {
        self.n_begun.load(Ordering::Acquire)
    }
}

impl Tracer for RecordingTracer {
    fn begin(&self, operation: &SpanOperation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span> {
        let number = self.n_begun.fetch_add(1, Ordering::AcqRel) + 1;
        let span = SpanId(number.to_be_bytes());
        let context = parent.map_or_else(
            || TraceContext {
                trace: TraceId(u128::from(number).to_be_bytes()),
                span,
                flags: TraceFlags::default().with_sampled(true),
                state: None,
            },
            |parent| parent.child(span, parent.is_sampled()),
        );
        Box::new(FakeSpan {
            ended: Arc::clone(&self.ended),
            span: RecordedSpan {
                name: name_of(operation),
                context,
                parent: parent.cloned(),
                attributes: Vec::new(),
                failure: None,
            },
        })
    }
}

fn name_of(operation: &SpanOperation<'_>) -> String {
    let (kind, call) = match operation {
        SpanOperation::Store => return "store".into(),
        SpanOperation::Prediction => return "prediction".into(),
        SpanOperation::Request(call) => ("request".to_owned(), call),
        SpanOperation::Upstream(upstream, call) => (format!("upstream {upstream}"), call),
    };
    let target = call.target.map(RequestTarget::name).unwrap_or_default();
    format!("{kind} {} {target}", call.method).trim_end().into()
}

#[derive(Debug)]
struct FakeSpan {
    ended: Arc<Mutex<Vec<RecordedSpan>>>,
    span: RecordedSpan,
}

impl Span for FakeSpan {
    fn context(&self) -> &TraceContext {
        &self.span.context
    }

    fn set_attribute(&mut self, attribute: SpanAttribute<'_>) {
        self.span.attributes.push(match attribute {
            SpanAttribute::Revision(revision) => format!("revision {}", revision.as_str()),
            SpanAttribute::Session(session) => format!("session {session}"),
        });
    }

    fn set_status(&mut self, end: SpanStatus<'_>) {
        self.span.failure = end.failure().map(str::to_owned);
    }
}

impl Drop for FakeSpan {
    fn drop(&mut self) {
        let mut ended = self.ended.lock();
        // Like a real tracer, it drops spans that are not sampled.
        if self.span.context.is_sampled() {
            ended.push(self.span.clone());
        }
    }
}
