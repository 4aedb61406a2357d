//! A tracer that remembers what it is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::trace_context::{SpanId, TraceContext, TraceFlags, TraceId};

use crate::tracer::{Attribute, End, Operation, Span, Target, Tracer};

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSpan {
    /// What it stands for, in words: `request tools/call echo`, `upstream calc tools/call add`.
    pub name: String,
    /// Its place.
    pub context: TraceContext,
    /// The place that it is a part of.
    pub parent: Option<TraceContext>,
    /// What was noted, in words.
    pub attributes: Vec<String>,
    /// The kind of its failure.
    pub failure: Option<String>,
}

/// Remembers the spans that ended, in the order of their ends. All are recorded whose parent is, or
/// that have none.
#[derive(Clone, Debug, Default)]
pub struct RecordingTracer {
    ended: Arc<Mutex<Vec<RecordedSpan>>>,
    n_begun: Arc<AtomicU64>,
}

impl RecordingTracer {
    /// Returns the spans that have ended.
    #[must_use]
    pub fn ended(&self) -> Vec<RecordedSpan> {
        (self.ended.lock().unwrap_or_else(PoisonError::into_inner)).clone()
    }

    /// Returns how many spans have begun.
    #[must_use]
    pub fn n_begun(&self) -> u64 {
        self.n_begun.load(Ordering::Acquire)
    }
}

impl Tracer for RecordingTracer {
    fn begin(&self, operation: &Operation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span> {
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

fn name_of(operation: &Operation<'_>) -> String {
    let (kind, call) = match operation {
        Operation::Store => return "store".into(),
        Operation::Prediction => return "prediction".into(),
        Operation::Request(call) => ("request".to_owned(), call),
        Operation::Upstream(upstream, call) => (format!("upstream {upstream}"), call),
    };
    let target = call.target.map(Target::name).unwrap_or_default();
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

    fn note(&mut self, attribute: Attribute<'_>) {
        self.span.attributes.push(match attribute {
            Attribute::Revision(revision) => format!("revision {}", revision.as_str()),
            Attribute::Session(session) => format!("session {session}"),
        });
    }

    fn end_as(&mut self, end: End<'_>) {
        self.span.failure = end.failure().map(str::to_owned);
    }
}

impl Drop for FakeSpan {
    fn drop(&mut self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if self.span.context.is_sampled() {
            ended.push(self.span.clone());
        }
    }
}
