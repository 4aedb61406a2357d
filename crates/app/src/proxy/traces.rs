//! The spans of what clients ask: one for each request, from its arrival to its answer, and parts of it.
//!
//! A request carries the place of its span with it ([`Message::trace`]), through every edit, so that
//! whoever does a part of the work finds what it is a part of. Without a tracer there is nothing of all
//! this: no request is touched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use riglm_domain::edit::member;
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::method;
use riglm_domain::tool_result::is_error;
use riglm_domain::trace_context::TraceContext;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::tracer::{Attribute, Call, End, Operation, Span, Target, Tracer};

use super::caller::Caller;
use super::relay::params::RequestParams;
use super::shared::Shared;

/// The longest name that stands in a span, in characters.
const MAX_NAME_CHARS: usize = 128;
/// What stands for a method that is none of the protocol, whose text could be anything.
const OTHER: &str = "_OTHER";

/// The requests of one session that are traced and not answered yet.
#[derive(Debug)]
pub(super) struct Traces {
    tracer: Arc<dyn Tracer>,
    caller: Arc<Caller>,
    /// By their ids. A client may use one twice, which is refused: the refusal is for the second.
    open: Mutex<HashMap<RequestId, Vec<Open>>>,
}

#[derive(Debug)]
struct Open {
    span: Box<dyn Span>,
    is_call: bool,
}

impl Traces {
    /// Returns the traces of a session, where there is a tracer.
    pub(super) fn of(shared: &Shared, caller: &Arc<Caller>) -> Option<Arc<Self>> {
        let tracer = shared.tracer.as_ref()?;
        Some(Arc::new(Self {
            tracer: Arc::clone(tracer),
            caller: Arc::clone(caller),
            open: Mutex::default(),
        }))
    }

    /// Begins the spans of the requests in a message, as parts of what the client says that they are
    /// parts of. Returns the message made in the span of its first request.
    pub(super) fn begin(&self, message: Message) -> Message {
        let mut first = None;
        for part in message.envelopes() {
            let Some((method, id)) = part.as_request() else {
                continue;
            };
            let params = message.params(part);
            let said = params.and_then(TraceContext::of_params);
            let parent = said.as_ref().or(message.trace().map(Arc::as_ref));
            let read = RequestParams::read(params);
            let name = read.name();
            let call = call(method, name.as_deref());
            let span = self.tracer.begin(&Operation::Request(call), parent);
            first.get_or_insert_with(|| Arc::new(span.context().clone()));
            let is_call = method == "tools/call";
            let open = Open { span, is_call };
            self.open().entry(id.clone()).or_default().push(open);
        }
        match first {
            Some(first) => message.with_trace(Some(first)),
            None => message,
        }
    }

    /// Takes out the spans of the requests that a message answers. They end when they are dropped.
    fn answered(&self, message: &Message) -> Vec<Open> {
        let parts = message.envelopes().iter().filter(|part| part.is_response());
        let ended = parts.filter_map(|part| {
            let mut open = self.take(part.id()?)?;
            let end = end_of(message, part, open.is_call);
            open.span.end_as(end);
            Some(open)
        });
        ended.collect()
    }

    /// Ends the span of a request that is not answered.
    fn finished(&self, id: &RequestId) {
        if let Some(mut open) = self.take(id) {
            open.span.end_as(End::Unanswered(Outcome::Cancelled));
        }
    }

    /// Takes out a span, with what is known of its session by now.
    fn take(&self, id: &RequestId) -> Option<Open> {
        let mut taken = {
            let mut open = self.open();
            let of_id = open.get_mut(id)?;
            let taken = of_id.pop()?;
            if of_id.is_empty() {
                open.remove(id);
            }
            taken
        };
        if let Some(revision) = self.caller.revision() {
            taken.span.note(Attribute::Revision(&revision));
        }
        if let Some(row) = self.caller.known_row() {
            taken.span.note(Attribute::Session(row));
        }
        Some(taken)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<RequestId, Vec<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the client, on which the spans of its requests end.
#[derive(Debug)]
pub(super) struct Tracing {
    client: Arc<dyn ClientLink>,
    traces: Arc<Traces>,
}

impl Tracing {
    /// Returns the way to the client with its traces, where there are any.
    pub(super) fn link(
        client: Arc<dyn ClientLink>,
        traces: Option<&Arc<Traces>>,
    ) -> Arc<dyn ClientLink> {
        match traces {
            Some(traces) => Arc::new(Self {
                client,
                traces: Arc::clone(traces),
            }),
            None => client,
        }
    }
}

#[async_trait]
impl ClientLink for Tracing {
    async fn deliver(&self, message: Message, route: Route) {
        let ended = self.traces.answered(&message);
        self.client.deliver(message, route).await;
        drop(ended);
    }

    async fn finish(&self, request: &RequestId) {
        self.traces.finished(request);
        self.client.finish(request).await;
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

impl Shared {
    /// Begins the span of a part of the work for the request whose span has the place `of`.
    pub(super) fn span(
        &self,
        operation: &Operation<'_>,
        of: Option<&Arc<TraceContext>>,
    ) -> Option<Box<dyn Span>> {
        let tracer = self.tracer.as_ref()?;
        if *operation == Operation::Store && !self.recorder.is_on() {
            return None;
        }
        Some(tracer.begin(operation, Some(of?)))
    }
}

/// Returns a request as it stands in spans; `name` is what its parameters name.
pub(super) fn call<'a>(method: &str, name: Option<&'a str>) -> Call<'a> {
    let name = name.map(within_limit);
    Call {
        method: method::known(method).unwrap_or(OTHER),
        target: match method {
            "tools/call" => name.map(Target::Tool),
            "prompts/get" => name.map(Target::Prompt),
            _ => None,
        },
    }
}

/// Returns how a request ended that a part of a message answers.
pub(super) fn end_of<'a>(message: &'a Message, part: &Envelope, is_call: bool) -> End<'a> {
    if part.kind() == Kind::Failure {
        let code = message.error(part).and_then(|error| member(error, "code"));
        // What is no number could be anything.
        let code = code.filter(|code| code.parse::<i64>().is_ok());
        return End::Code(code.unwrap_or("none"));
    }
    match message.result(part) {
        Some(result) if is_call && is_error(result) => End::ToolError,
        _ => End::Ok,
    }
}

fn within_limit(name: &str) -> &str {
    let end = name.char_indices().nth(MAX_NAME_CHARS);
    end.map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_methods_are_those_of_the_protocol() {
        let long = "\u{e9}".repeat(200);
        let cut = call("tools/call", Some(&long)).target.unwrap();
        assert_eq!(cut.name().chars().count(), MAX_NAME_CHARS);
        let other = call("secret/method", Some("secret"));
        assert_eq!((other.method, other.target), (OTHER, None));
        assert_eq!(call("resources/read", Some("n")).target, None);
    }

    #[test]
    fn an_error_is_told_by_its_code_alone() {
        let end = |text: &str| {
            let message = Message::from_text(text.into()).unwrap();
            let end = end_of(&message, message.single().unwrap(), true);
            end.failure().map(str::to_owned)
        };
        let error = |error: &str| end(&format!(r#"{{"id":1,"error":{error}}}"#));
        assert_eq!(
            error(r#"{"code":-32602,"message":"secret"}"#).as_deref(),
            Some("-32602")
        );
        assert_eq!(error(r#"{"code":"secret"}"#).as_deref(), Some("none"));
        let failed = end(r#"{"id":1,"result":{"isError":true}}"#);
        assert_eq!(failed.as_deref(), Some("tool_error"));
        assert_eq!(end(r#"{"id":1,"result":{}}"#), None);
    }
}
