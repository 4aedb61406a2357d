//! Distributed tracing of requests through the proxy.

use std::fmt;

use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_domain::usage::invocation::Outcome;

/// Records spans: the start and the end of each step in the processing of a request.
///
/// No method blocks or fails: a tracer that cannot store a span drops it. Every span has a context
/// in a trace, even if it is not recorded. With a parent, the span belongs to the parent's trace
/// and has the parent's trace state; otherwise it starts a new trace. It is recorded if its parent
/// is recorded, so that a trace has all of its spans or none. Each span has a unique context.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Begins a span now. `parent` is the context that arrived with the request, or the context of
    /// another span.
    fn begin(&self, operation: &SpanOperation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span>;
}

/// A span that has begun. It ends when it is dropped.
pub trait Span: Send + Sync + fmt::Debug {
    /// Returns the context of the span, to be the parent of other spans, here and in other
    /// programs.
    fn context(&self) -> &TraceContext;

    /// Adds an attribute that was not known when the span began.
    fn set_attribute(&mut self, attribute: SpanAttribute<'_>);

    /// Sets the status of the span. The last call counts.
    fn set_status(&mut self, end: SpanStatus<'_>);
}

/// The operation that a span measures.
///
/// Names in it come from clients and servers. The caller ensures that they are nothing but names of
/// a bounded length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOperation<'a> {
    /// A request of a client, from its arrival to its answer.
    Request(TracedRequest<'a>),
    /// A request to an upstream, from the moment it is passed on to its answer.
    Upstream(&'a UpstreamName, TracedRequest<'a>),
    /// The write of the record that must be stored before the client gets its answer.
    Store,
    /// The selection of a list, or the ranking of search results.
    Prediction,
}

/// A request of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedRequest<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The target that the request names.
    pub target: Option<RequestTarget<'a>>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTarget<'a> {
    /// The name of a tool.
    Tool(&'a str),
    /// The name of a prompt.
    Prompt(&'a str),
}

impl<'a> RequestTarget<'a> {
    /// Returns the name of the target.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Self::Tool(name) | Self::Prompt(name) => name,
        }
    }
}

/// An attribute of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanAttribute<'a> {
    /// The revision of the protocol.
    Revision(&'a Revision),
    /// The identifier of the session.
    Session(SessionId),
}

/// The status of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanStatus<'a> {
    /// Success.
    Ok,
    /// A tool was called, and its result is marked as an error.
    ToolError,
    /// A JSON-RPC error with this code, a JSON number.
    Code(&'a str),
    /// No answer; the outcome has the reason.
    Unanswered(Outcome),
}

impl SpanStatus<'_> {
    /// Returns the type of the failure; `None` for a success. All values but codes are from a
    /// closed set.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Ok | Self::Unanswered(Outcome::Ok) => None,
            Self::ToolError => Some("tool_error"),
            Self::Code(code) => Some(code),
            Self::Unanswered(outcome) => Some(match outcome {
                Outcome::Cancelled => "cancelled",
                Outcome::Timeout => "timeout",
                _ => "unanswered",
            }),
        }
    }
}
