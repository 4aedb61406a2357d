//! Distributed traces: what is told of the way of a request through the proxy.

use std::fmt;

use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::invocation::Outcome;
use riglm_domain::protocol::Revision;
use riglm_domain::trace_context::TraceContext;

/// Records spans: which part of the work for a request was done when.
///
/// Nothing here waits or fails: a tracer that cannot keep a span drops it. Every span has a place in
/// a trace, also one that is not recorded. It is the parent's trace, with the parent's state, where
/// there is a parent, and a new trace otherwise; and it is recorded where the parent is, so that a
/// trace has all of its parts or none. No two spans have the same place.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Begins a span now: a part of `parent`, which is the place that a request came from or that of
    /// another span.
    fn begin(&self, operation: &Operation<'_>, parent: Option<&TraceContext>) -> Box<dyn Span>;
}

/// A span that has begun. It ends when it is dropped.
pub trait Span: Send + Sync + fmt::Debug {
    /// Returns the place of the span, to be the parent of others, here and in other programs.
    fn context(&self) -> &TraceContext;

    /// Notes something that was not known when the span began.
    fn note(&mut self, attribute: Attribute<'_>);

    /// Says how what it stands for ended. Of several ends the last one counts.
    fn end_as(&mut self, end: End<'_>);
}

/// What a span stands for.
///
/// Texts in it come from clients and servers. Whoever makes one sees to it that they are names and
/// nothing else, and of a bounded length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// A request of a client, from its arrival to its answer.
    Request(Call<'a>),
    /// A request to an upstream, from when it is handed over to its answer.
    Upstream(&'a UpstreamName, Call<'a>),
    /// What the client is not answered before: the record of it.
    Store,
    /// The choice of a list, or the ranking of what was searched for.
    Prediction,
}

/// A request of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Its method.
    pub method: &'a str,
    /// What it names.
    pub target: Option<Target<'a>>,
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A tool that is called.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
}

impl<'a> Target<'a> {
    /// Returns the name of the target.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Self::Tool(name) | Self::Prompt(name) => name,
        }
    }
}

/// What is noted of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// The revision of the protocol.
    Revision(&'a Revision),
    /// The row of the session.
    Session(SessionId),
}

/// How what a span stands for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// Well.
    Ok,
    /// A tool was called, and its result says that it failed.
    ToolError,
    /// With an error that has this code, a JSON number.
    Code(&'a str),
    /// Without an answer, in one of the ways in which that happens.
    Unanswered(Outcome),
}

impl End<'_> {
    /// Returns the kind of the failure, from a closed set but for codes; `None` of what went well.
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
