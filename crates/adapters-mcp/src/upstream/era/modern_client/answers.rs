//! The completion of legacy answers to modern answers, and the answers of the bridge itself.

use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::SERVER_INFO;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::ServerRequest;
use super::welcome::Welcome;

/// The methods whose results have a time to live.
const CACHEABLE: [&str; 5] = [
    method::TOOLS_LIST,
    method::PROMPTS_LIST,
    method::RESOURCES_LIST,
    method::RESOURCES_TEMPLATES_LIST,
    method::RESOURCES_READ,
];
/// The error code of legacy revisions for a resource that does not exist.
const RESOURCE_NOT_FOUND: &str = "-32002";
/// The error code of revision 2025-11-25 for a call that requires an elicitation by URL first.
const URL_ELICITATION_REQUIRED: &str = "-32042";

/// Returns the answer to a request with this method in the form of a modern server.
pub(super) fn as_modern(answer: &Message, method: &str, welcome: &Welcome) -> Message {
    let Some(envelope) = answer.single() else {
        return answer.clone();
    };
    if let Some(result) = answer.result(envelope)
        && envelope.kind() == MessageKind::Success
    {
        return answer.with_result(&complete(result, method, welcome));
    }
    match answer.error(envelope) {
        Some(error) if edit::member(error, "code") == Some(RESOURCE_NOT_FOUND) => {
            let code = RpcErrorCode::InvalidParams.code().to_string();
            answer.with_error(&edit::with_member(error, "code", &code))
        }
        _ => answer.clone(),
    }
}

/// Adds the required members of modern results.
fn complete(result: &str, method: &str, welcome: &Welcome) -> String {
    let mut result = with_default(result.to_owned(), "resultType", r#""complete""#);
    // A legacy result has no time to live, so it must not be cached.
    if CACHEABLE.contains(&method) {
        result = with_default(result, "ttlMs", "0");
        result = with_default(result, "cacheScope", r#""private""#);
    }
    with_server(result, welcome)
}

/// Adds the description of the server, unless the result has one.
fn with_server(result: String, welcome: &Welcome) -> String {
    match &welcome.server_info {
        Some(info) if edit::meta(&result, SERVER_INFO).is_none() => {
            edit::with_meta(&result, &[(SERVER_INFO, info)])
        }
        _ => result,
    }
}

fn with_default(object: String, key: &str, value: &str) -> String {
    match edit::member(&object, key) {
        Some(_) => object,
        None => edit::with_member(&object, key, value),
    }
}

/// Returns the answer to `server/discover`, from the handshake of the server.
pub(super) fn discover_answer(id: &RequestId, welcome: &Welcome) -> Message {
    let versions = json!(Revision::supported_revisions());
    let instructions = welcome
        .instructions
        .as_ref()
        .map_or_else(String::new, |text| format!(r#","instructions":{text}"#));
    let result = format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{}{instructions},"ttlMs":0,"cacheScope":"private"{}}}"#,
        welcome.capabilities,
        meta_of(welcome),
    );
    Message::success(id, &result)
}

/// One request for input, in the form for the client.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// The key of its answer.
    pub(super) key: &'a str,
    pub(super) method: &'a str,
    /// The parameters, as JSON text.
    pub(super) params: Option<&'a str>,
}

/// Returns the named questions of a server as the JSON text of `inputRequests`.
pub(super) fn input_requests(open: &[ServerRequest]) -> String {
    object_of(open.iter().filter_map(|request| {
        Some(Input {
            key: request.key.as_deref()?,
            method: &request.method,
            params: request.params.as_deref(),
        })
    }))
}

/// Returns requests for input as the JSON text of `inputRequests`.
pub(super) fn object_of<'a>(inputs: impl Iterator<Item = Input<'a>>) -> String {
    let inputs: Vec<String> = inputs.map(|input| entry(&input)).collect();
    format!("{{{}}}", inputs.join(","))
}

/// Returns the answer about a task with these members, as JSON text without braces.
pub(super) fn about_task(
    id: &RequestId,
    result_type: &str,
    members: &str,
    welcome: &Welcome,
) -> Message {
    let result = format!(r#"{{"resultType":"{result_type}",{members}}}"#);
    Message::success(id, &with_server(result, welcome))
}

/// Returns the answer that only acknowledges a request.
pub(super) fn acknowledgement(id: &RequestId, welcome: &Welcome) -> Message {
    let result = r#"{"resultType":"complete"}"#.to_owned();
    Message::success(id, &with_server(result, welcome))
}

/// Returns the answer that asks for input, the JSON text of `inputRequests`.
pub(super) fn input_required(
    id: &RequestId,
    inputs: &str,
    state: &str,
    welcome: &Welcome,
) -> Message {
    let result = format!(
        r#"{{"resultType":"input_required","inputRequests":{inputs},"requestState":{}{}}}"#,
        Value::from(state),
        meta_of(welcome),
    );
    Message::success(id, &result)
}

fn entry(input: &Input<'_>) -> String {
    let params = input
        .params
        .map_or_else(String::new, |params| format!(r#","params":{params}"#));
    format!(
        r#"{}:{{"method":{}{params}}}"#,
        Value::from(input.key),
        Value::from(input.method)
    )
}

fn meta_of(welcome: &Welcome) -> String {
    welcome
        .server_info
        .as_ref()
        .map_or_else(String::new, |info| {
            format!(r#","_meta":{{"{SERVER_INFO}":{info}}}"#)
        })
}

/// Returns the parameters of the elicitations that a call requires first, if the answer is that
/// error.
pub(super) fn required_elicitations(answer: &Message) -> Option<Vec<String>> {
    let error = answer.error(answer.single()?)?;
    if edit::member(error, "code") != Some(URL_ELICITATION_REQUIRED) {
        return None;
    }
    let elicitations = edit::member(edit::member(error, "data")?, "elicitations")?;
    let elicitations: Vec<&RawValue> = serde_json::from_str(elicitations).ok()?;
    let params = elicitations.into_iter().map(|entry| {
        let params = entry.get();
        match edit::member(params, "mode") {
            Some(_) => params.to_owned(),
            None => edit::with_member(params, "mode", r#""url""#),
        }
    });
    let params: Vec<String> = params.collect();
    (!params.is_empty()).then_some(params)
}

/// Returns the error for a call that requires an elicitation by URL, if the client does not support
/// it.
pub(super) fn lacks_url_elicitation() -> RpcError {
    RpcError::new(
        RpcErrorCode::MissingRequiredClientCapability,
        "the call needs the client capability elicitation.url",
    )
    .with_data(json!({"requiredCapabilities": {"elicitation": {"url": {}}}}))
}

/// Returns the error for a call with too many rounds of input.
pub(super) fn too_many_rounds(max_rounds: u32) -> RpcError {
    let text = format!("the call asked for input more than {max_rounds} times");
    RpcError::new(RpcErrorCode::LimitReached, text)
}

/// Returns the cancellation of a request, with the reason of the message `like`.
pub(super) fn cancellation(id: &RequestId, like: Option<(&Message, &Envelope)>) -> Message {
    if let Some((message, envelope)) = like
        && let Some(params) = message.params(envelope)
    {
        return message.with_params(&edit::with_member(params, "requestId", &id.to_json()));
    }
    Message::cancellation(id, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome() -> Welcome {
        Welcome::read(r#"{"capabilities":{},"serverInfo":{"name":"s", "version":"1"}}"#)
    }

    fn text(message: &Message) -> String {
        String::from_utf8_lossy(message.raw()).into_owned()
    }

    #[test]
    fn existing_result_members_are_kept() {
        let result = r#"{ "n":1.0,"ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":7}}"#;
        let answer = Message::success(&RequestId::Number("1".into()), result);
        assert_eq!(
            text(&as_modern(&answer, "tools/list", &welcome())),
            r#"{"jsonrpc":"2.0","id":1,"result":{ "n":1.0,"ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":7},"resultType":"complete","cacheScope":"private"}}"#
        );
    }

    #[test]
    fn a_missing_resource_is_an_invalid_parameter() {
        let answer = |code| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code": {code} ,"message":"m","data":null}}}}"#
            );
            Message::from_text(text).unwrap()
        };
        let read = |code| text(&as_modern(&answer(code), "resources/read", &welcome()));
        assert_eq!(read(-32002), text(&answer(-32602)));
        assert_eq!(read(-32603), text(&answer(-32603)));
    }

    #[test]
    fn only_elicitations_by_url_are_taken_out_of_an_error() {
        let error = |code, data| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m","data":{data}}}}}"#
            );
            required_elicitations(&Message::from_text(text).unwrap())
        };
        let data = r#"{"elicitations":[{"mode":"url","url":"u","n":1e3}]}"#;
        let expected = vec![r#"{"mode":"url","url":"u","n":1e3}"#.to_owned()];
        assert_eq!(error(-32042, data), Some(expected));
        assert_eq!(error(-32042, r#"{"elicitations":[]}"#), None);
        assert_eq!(error(-32000, data), None);
    }
}
