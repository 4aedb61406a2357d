//! The requests for input that a server makes before it answers a request (basic/patterns/mrtr).

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::{members, unescape};
use serde_json::json;

use super::identity::{Identity, has_member};

/// The maximum number of inputs in one request for input.
const MAX_INPUTS: usize = 64;

/// The kinds of input, with the client capability that each requires.
const KINDS: [(&str, &str); 3] = [
    (method::ELICITATION_CREATE, "elicitation"),
    (method::SAMPLING_CREATE_MESSAGE, "sampling"),
    (method::ROOTS_LIST, "roots"),
];

/// A result that asks for input; its parts are JSON text.
#[derive(Debug)]
pub(super) struct InputQuestions<'a> {
    /// The requests for input, in order.
    pub(super) requests: Vec<InputRequest<'a>>,
    /// The state that the server wants back.
    pub(super) state: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct InputRequest<'a> {
    /// The key, as a JSON string.
    pub(super) key: String,
    /// The method, without quotes.
    pub(super) method: &'static str,
    pub(super) params: Option<&'a str>,
}

impl<'a> InputQuestions<'a> {
    /// Reads a result that asks for input of the client with this `identity`.
    ///
    /// # Errors
    ///
    /// Returns the error to answer the client's request with, if the client does not support the
    /// input or the result contains no request.
    pub(super) fn read(result: &'a str, identity: &Identity) -> Result<Self, RpcError> {
        let state = member(result, "requestState").filter(|state| *state != "null");
        let asked = member(result, "inputRequests").filter(|asked| *asked != "null");
        if state.is_none() && asked.is_none() {
            return Err(garbled_error(
                "input_required without inputRequests or requestState",
            ));
        }
        let mut requests = Vec::new();
        for (key, request) in asked.into_iter().flat_map(members) {
            if requests.len() == MAX_INPUTS {
                return Err(garbled_error("too many inputRequests"));
            }
            requests.push(read_request(&key, request, identity)?);
        }
        Ok(Self { requests, state })
    }
}

fn read_request<'a>(
    key: &str,
    request: &'a str,
    identity: &Identity,
) -> Result<InputRequest<'a>, RpcError> {
    let method = member(request, "method").and_then(unescape);
    let kind = (KINDS.iter()).find(|(known, _)| Some(*known) == method.as_deref());
    let Some((method, capability)) = kind else {
        return Err(garbled_error("unknown kind of input request"));
    };
    let params = member(request, "params");
    if !can_give(identity, capability, params) {
        let missing = if is_by_url(params) {
            json!({"elicitation": {"url": {}}})
        } else {
            json!({ *capability: {} })
        };
        let error = RpcError::new(
            RpcErrorCode::MissingRequiredClientCapability,
            format!(
                "the server needs {method}, but the client does not have the capability \
                 {capability}"
            ),
        );
        return Err(error.with_data(json!({ "requiredCapabilities": missing })));
    }
    Ok(InputRequest {
        key: serde_json::Value::from(key).to_string(),
        method,
        params,
    })
}

/// Returns whether the client declared the capability that a request requires. An empty
/// `elicitation` means elicitation by form (client/elicitation, "Capabilities").
fn can_give(identity: &Identity, capability: &str, params: Option<&str>) -> bool {
    let Some(declared) = identity.capability(capability) else {
        return false;
    };
    if capability != "elicitation" {
        return true;
    }
    if is_by_url(params) {
        return has_member(declared, "url");
    }
    has_member(declared, "form") || !has_member(declared, "url")
}

/// Returns whether an elicitation is by URL.
pub(super) fn is_by_url(params: Option<&str>) -> bool {
    params.and_then(|params| member(params, "mode")) == Some("\"url\"")
}

/// Returns the parameters for the client. Legacy clients require an id for an elicitation by URL,
/// which modern servers do not send.
pub(super) fn for_client(params: &str, id: &str) -> String {
    if is_by_url(Some(params)) && member(params, "elicitationId").is_none() {
        return with_member(params, "elicitationId", id);
    }
    params.to_owned()
}

fn garbled_error(reason: &str) -> RpcError {
    RpcError::new(
        RpcErrorCode::UpstreamGarbled,
        format!("invalid answer of the upstream: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(capabilities: &str, request: &str) -> Result<usize, i32> {
        let mut identity = Identity::default();
        identity.introduce(&format!(r#"{{"capabilities":{capabilities}}}"#));
        let result = format!(r#"{{"inputRequests":{{"k":{request}}}}}"#);
        InputQuestions::read(&result, &identity)
            .map(|asked| asked.requests.len())
            .map_err(|error| error.code.code())
    }

    #[test]
    fn clients_get_only_supported_input_requests() {
        let form = r#"{"method":"elicitation/create","params":{}}"#;
        let url = r#"{"method":"elicitation/create","params":{"mode":"url"}}"#;
        assert_eq!(read(r#"{"elicitation":{}}"#, form), Ok(1));
        assert_eq!(read(r#"{"elicitation":{}}"#, url), Err(-32021));
        assert_eq!(read(r#"{"elicitation":{"url":{}}}"#, url), Ok(1));
        assert_eq!(read(r#"{"elicitation":{"url":{}}}"#, form), Err(-32021));
        assert_eq!(read("{}", r#"{"method":"roots/list"}"#), Err(-32021));
        assert_eq!(read(r#"{"roots":{}}"#, r#"{"method":"roots/list"}"#), Ok(1));
        assert_eq!(read("{}", r#"{"method":"ping"}"#), Err(-31003));
    }

    #[test]
    fn results_without_input_requests_and_state_are_invalid() {
        let error = InputQuestions::read("{}", &Identity::default()).unwrap_err();
        assert_eq!(error.code, RpcErrorCode::UpstreamGarbled);
        let bare = InputQuestions::read(r#"{"requestState":"s"}"#, &Identity::default()).unwrap();
        assert_eq!((bare.requests.len(), bare.state), (0, Some("\"s\"")));
    }

    #[test]
    fn url_elicitations_get_an_identifier() {
        assert_eq!(
            for_client(r#"{"mode":"url","url":"u"}"#, "\"e\""),
            r#"{"mode":"url","url":"u","elicitationId":"e"}"#
        );
        assert_eq!(
            for_client(r#"{"mode":"form"}"#, "\"e\""),
            r#"{"mode":"form"}"#
        );
    }
}
