//! The spans of client requests: one per request from arrival to answer, and spans for parts of it.
//!
//! A request carries the trace context of its span ([`Message::trace`]) through every edit. Later
//! steps find their parent span there. Without a tracer no request is changed.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::tool_result::has_error_result;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::tracer::{
    RequestTarget, Span, SpanAttribute, SpanOperation, SpanStatus, TracedRequest, Tracer,
};

use super::client_context::ClientContext;
use super::request_params::RequestParams;
use super::shared_state::SharedState;

/// The maximum length of a name in a span, in characters.
const MAX_NAME_CHARS: usize = 128;
/// The replacement for methods outside the protocol, whose text could be anything.
const OTHER: &str = "_OTHER";

/// The traced requests of one session that are not answered yet.
#[derive(Debug)]
pub(super) struct Traces {
    tracer: Arc<dyn Tracer>,
    client_context: Arc<ClientContext>,
    /// Open spans by request id. A client may use an id twice. The second request is refused, and
    /// the refusal belongs to the newest span.
    open: Mutex<HashMap<RequestId, Vec<OpenSpan>>>,
}

#[derive(Debug)]
struct OpenSpan {
    span: Box<dyn Span>,
    is_call: bool,
}

impl Traces {
    /// Returns the traces of a session if there is a tracer.
    pub(super) fn of(
        shared: &SharedState,
        client_context: &Arc<ClientContext>,
    ) -> Option<Arc<Self>> {
        let tracer = shared.tracer.as_ref()?;
        Some(Arc::new(Self {
            tracer: Arc::clone(tracer),
            client_context: Arc::clone(client_context),
            open: Mutex::default(),
        }))
    }

    /// Starts the spans of the requests in a message, with the parents that the client sent.
    /// Returns the message with the trace context of its first request.
    pub(super) fn begin(&self, message: Message) -> Message {
        let mut first = None;
        for part in message.envelopes() {
            let Some((method, id)) = part.as_request() else {
                continue;
            };
            let params = message.params(part);
            let said = params.and_then(TraceContext::of_params);
            let parent = said.as_ref().or(message.trace().map(Arc::as_ref));
            let name = RequestParams::of(&message, part).name();
            let call = call(method, name.as_deref());
            let span = self.tracer.begin(&SpanOperation::Request(call), parent);
            first.get_or_insert_with(|| Arc::new(span.context().clone()));
            let is_call = method == "tools/call";
            let open = OpenSpan { span, is_call };
            self.open.lock().entry(id.clone()).or_default().push(open);
        }
        match first {
            Some(first) => message.with_trace(Some(first)),
            None => message,
        }
    }

    /// Removes and returns the spans of the requests that a message answers. They end on drop.
    fn take_answered(&self, message: &Message) -> Vec<OpenSpan> {
        let parts = message.envelopes().iter().filter(|part| part.is_response());
        let ended = parts.filter_map(|part| {
            let mut open = self.take(part.id()?)?;
            let end = end_of(message, part, open.is_call);
            open.span.set_status(end);
            Some(open)
        });
        ended.collect()
    }

    fn end_unanswered(&self, id: &RequestId) {
        if let Some(mut open) = self.take(id) {
            (open.span).set_status(SpanStatus::Unanswered(Outcome::Cancelled));
        }
    }

    /// Removes a span and adds the attributes of the session that are known by now.
    fn take(&self, id: &RequestId) -> Option<OpenSpan> {
        let mut taken = {
            let mut open = self.open.lock();
            let of_id = open.get_mut(id)?;
            let taken = of_id.pop()?;
            if of_id.is_empty() {
                open.remove(id);
            }
            taken
        };
        if let Some(revision) = self.client_context.revision() {
            taken.span.set_attribute(SpanAttribute::Revision(&revision));
        }
        if let Some(row) = self.client_context.known_row() {
            taken.span.set_attribute(SpanAttribute::Session(row));
        }
        Some(taken)
    }
}

/// A client link that ends the spans of the requests that it answers.
#[derive(Debug)]
pub(super) struct Tracing {
    client: Arc<dyn ClientLink>,
    traces: Arc<Traces>,
}

impl Tracing {
    /// Returns the client link with tracing if there are traces.
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
        // The spans are held over the delivery, so that they include its time.
        let ended = self.traces.take_answered(&message);
        self.client.deliver(message, route).await;
        drop(ended);
    }

    async fn finish(&self, request: &RequestId) {
        self.traces.end_unanswered(request);
        self.client.finish(request).await;
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

/// Returns the description of a request for spans. `name` is the target in its parameters.
pub(super) fn call<'a>(method: &str, name: Option<&'a str>) -> TracedRequest<'a> {
    let name = name.map(within_limit);
    TracedRequest {
        method: method::request_method(method).unwrap_or(OTHER),
        target: match method {
            "tools/call" => name.map(RequestTarget::Tool),
            "prompts/get" => name.map(RequestTarget::Prompt),
            _ => None,
        },
    }
}

/// Returns the end status of the request that a part of a message answers.
pub(super) fn end_of<'a>(message: &'a Message, part: &Envelope, is_call: bool) -> SpanStatus<'a> {
    if part.kind() == MessageKind::Failure {
        let code = message.error(part).and_then(|error| member(error, "code"));
        // A code that is no number could contain anything, and must not reach the traces.
        let code = code.filter(|code| code.parse::<i64>().is_ok());
        return SpanStatus::Code(code.unwrap_or("none"));
    }
    if is_call && has_error_result(message, part) {
        return SpanStatus::ToolError;
    }
    SpanStatus::Ok
}

fn within_limit(name: &str) -> &str {
    let end = name.char_indices().nth(MAX_NAME_CHARS);
    end.map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use jiff::Timestamp;
    use riglm_domain::mcp::protocol::Transport;
    use riglm_domain::privacy::principal::Principal;
    use riglm_ports::contract::downstream::RecordedScene;
    use riglm_ports::fake::RecordingTracer;

    use super::*;
    use crate::proxy::ClientIdentity;

    fn traced(client: Arc<dyn ClientLink>) -> Arc<dyn ClientLink> {
        let visitor = ClientIdentity::from(&Principal::local());
        let context = ClientContext::new(Transport::Stdio, visitor, Timestamp::UNIX_EPOCH);
        let traces = Arc::new(Traces {
            tracer: Arc::<RecordingTracer>::default(),
            client_context: Arc::new(context),
            open: Mutex::default(),
        });
        Tracing::link(client, Some(&traces))
    }

    riglm_ports::client_link_contract!(contract, ready(Box::new(RecordedScene::new(traced))));

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
    fn errors_are_traced_by_their_code_only() {
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
