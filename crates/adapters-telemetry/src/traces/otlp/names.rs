//! The names of spans and attributes. They follow the semantic conventions of OpenTelemetry for the
//! Model Context Protocol; names that are not defined there are our own.

use std::borrow::Cow;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use riglm_ports::tracer::{RequestTarget, SpanAttribute, SpanOperation, TracedRequest};

pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const STATUS_CODE: &str = "rpc.response.status_code";

const METHOD: &str = "mcp.method.name";
const REVISION: &str = "mcp.protocol.version";
const SESSION: &str = "mcp.session.id";
const OPERATION: &str = "gen_ai.operation.name";
const TOOL: &str = "gen_ai.tool.name";
const PROMPT: &str = "gen_ai.prompt.name";
// Not defined by the conventions: the name of an upstream in the configuration.
const UPSTREAM: &str = "upstream.name";

pub(super) fn name(operation: &SpanOperation<'_>) -> Cow<'static, str> {
    match operation {
        SpanOperation::Store => "store".into(),
        SpanOperation::Prediction => "prediction".into(),
        SpanOperation::Request(call) | SpanOperation::Upstream(_, call) => match call.target {
            Some(target) => format!("{} {}", call.method, target.name()).into(),
            None => call.method.to_owned().into(),
        },
    }
}

pub(super) fn kind(operation: &SpanOperation<'_>) -> SpanKind {
    match operation {
        SpanOperation::Request(_) => SpanKind::Server,
        SpanOperation::Upstream(..) => SpanKind::Client,
        SpanOperation::Store | SpanOperation::Prediction => SpanKind::Internal,
    }
}

/// Returns the attributes of a new span.
pub(super) fn attributes(operation: &SpanOperation<'_>) -> Vec<KeyValue> {
    match operation {
        SpanOperation::Store | SpanOperation::Prediction => Vec::new(),
        SpanOperation::Request(call) => of_call(call),
        SpanOperation::Upstream(upstream, call) => {
            let mut attributes = of_call(call);
            attributes.push(KeyValue::new(UPSTREAM, upstream.as_str().to_owned()));
            attributes
        }
    }
}

/// Returns the OpenTelemetry form of an attribute.
pub(super) fn attribute(attribute: SpanAttribute<'_>) -> KeyValue {
    match attribute {
        SpanAttribute::Revision(revision) => KeyValue::new(REVISION, revision.as_str().to_owned()),
        SpanAttribute::Session(session) => KeyValue::new(SESSION, session.to_string()),
    }
}

fn of_call(call: &TracedRequest<'_>) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new(METHOD, call.method.to_owned())];
    match call.target {
        Some(RequestTarget::Tool(name)) => {
            attributes.push(KeyValue::new(OPERATION, "execute_tool"));
            attributes.push(KeyValue::new(TOOL, name.to_owned()));
        }
        Some(RequestTarget::Prompt(name)) => {
            attributes.push(KeyValue::new(PROMPT, name.to_owned()));
        }
        None => {}
    }
    attributes
}
