//! What spans and their attributes are called: as in the semantic conventions of OpenTelemetry for the
//! Model Context Protocol, and of the proxy's own where those have no word.

use std::borrow::Cow;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use riglm_ports::tracer::{Attribute, Call, Operation, Target};

/// The kind of a failure.
pub(super) const ERROR_TYPE: &str = "error.type";
/// The code of an error.
pub(super) const STATUS_CODE: &str = "rpc.response.status_code";

const METHOD: &str = "mcp.method.name";
const REVISION: &str = "mcp.protocol.version";
const SESSION: &str = "mcp.session.id";
const OPERATION: &str = "gen_ai.operation.name";
const TOOL: &str = "gen_ai.tool.name";
const PROMPT: &str = "gen_ai.prompt.name";
/// The name of an upstream as it is configured.
const UPSTREAM: &str = "upstream.name";

/// Returns the name of a span.
pub(super) fn name(operation: &Operation<'_>) -> Cow<'static, str> {
    match operation {
        Operation::Store => "store".into(),
        Operation::Prediction => "prediction".into(),
        Operation::Request(call) | Operation::Upstream(_, call) => match call.target {
            Some(target) => format!("{} {}", call.method, target.name()).into(),
            None => call.method.to_owned().into(),
        },
    }
}

/// Returns the kind of a span.
pub(super) fn kind(operation: &Operation<'_>) -> SpanKind {
    match operation {
        Operation::Request(_) => SpanKind::Server,
        Operation::Upstream(..) => SpanKind::Client,
        Operation::Store | Operation::Prediction => SpanKind::Internal,
    }
}

/// Returns the attributes that a span begins with.
pub(super) fn attributes(operation: &Operation<'_>) -> Vec<KeyValue> {
    match operation {
        Operation::Store | Operation::Prediction => Vec::new(),
        Operation::Request(call) => of_call(call),
        Operation::Upstream(upstream, call) => {
            let mut attributes = of_call(call);
            attributes.push(KeyValue::new(UPSTREAM, upstream.as_str().to_owned()));
            attributes
        }
    }
}

/// Returns the attribute for what is noted of a span.
pub(super) fn attribute(attribute: Attribute<'_>) -> KeyValue {
    match attribute {
        Attribute::Revision(revision) => KeyValue::new(REVISION, revision.as_str().to_owned()),
        Attribute::Session(session) => KeyValue::new(SESSION, session.to_string()),
    }
}

fn of_call(call: &Call<'_>) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new(METHOD, call.method.to_owned())];
    match call.target {
        Some(Target::Tool(name)) => {
            attributes.push(KeyValue::new(OPERATION, "execute_tool"));
            attributes.push(KeyValue::new(TOOL, name.to_owned()));
        }
        Some(Target::Prompt(name)) => attributes.push(KeyValue::new(PROMPT, name.to_owned())),
        None => {}
    }
    attributes
}
