//! The clauses of [`Tracer`] and its [`Span`](crate::tracer::Span)s.

use std::collections::HashSet;

use riglm_domain::mcp::trace_context::TraceContext;

use crate::tracer::{SpanOperation, TracedRequest, Tracer};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03";
const REQUEST: SpanOperation<'static> = SpanOperation::Request(TracedRequest {
    method: "ping",
    target: None,
});

fn span_context(tracer: &impl Tracer, parent: Option<&TraceContext>) -> TraceContext {
    tracer.begin(&REQUEST, parent).context().clone()
}

/// A span is in the trace of its parent, with the parent's state, and recorded if the parent is.
pub fn a_part_belongs_to_the_trace_of_its_parent(tracer: &impl Tracer) {
    for (flags, is_sampled) in [("-03", true), ("-02", false)] {
        let text = PARENT.replace("-03", flags);
        let parent = TraceContext::parse(&text, Some("b=2,a=1")).unwrap();
        let part = span_context(tracer, Some(&parent));
        assert_eq!(part, parent.child(part.span, is_sampled));
        let part_of_part = span_context(tracer, Some(&part));
        assert_eq!(part_of_part, part.child(part_of_part.span, is_sampled));
    }
}

/// A span without a parent begins a trace of its own.
pub fn without_a_parent_a_trace_begins(tracer: &impl Tracer) {
    let places = [span_context(tracer, None), span_context(tracer, None)];
    assert_ne!(places[0].trace, places[1].trace);
    for place in places {
        // Both identifiers are valid for propagation.
        let again = TraceContext::parse(&place.traceparent(), place.tracestate());
        assert_eq!(again, Some(place));
    }
}

/// Each span has a unique context.
pub fn every_place_is_another(tracer: &impl Tracer) {
    let parent = TraceContext::parse(PARENT, None).unwrap();
    let spans = (0..100).map(|_| span_context(tracer, Some(&parent)).span);
    let mut seen: HashSet<_> = spans.collect();
    seen.insert(parent.span);
    assert_eq!(seen.len(), 101);
}

/// Runs all clauses.
pub fn all(tracer: &impl Tracer) {
    a_part_belongs_to_the_trace_of_its_parent(tracer);
    without_a_parent_a_trace_begins(tracer);
    every_place_is_another(tracer);
}
