//! The tools and the prompt that request input, and the progress of their multi-round calls.

use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, InputRequiredResult, InputResponses};
use serde_json::{Value, json};

/// The answer to a request.
pub(super) enum RoundStep {
    /// The request needs no input.
    None,
    /// The server needs input.
    Ask(InputRequiredResult),
    /// The client has sent all responses. The text is the result.
    Done(String),
    /// The request is invalid.
    Refuse(ErrorData),
}

/// Returns the input requests of each round, by key.
fn rounds(name: &str) -> Vec<Value> {
    match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            vec![json!({"user_name": form("What is your name?", "name", "string")})]
        }
        "test_input_required_result_sampling" | "test_missing_capability" => {
            vec![json!({"capital_question": sample("What is the capital of France?")})]
        }
        "test_input_required_result_list_roots" => vec![json!({"client_roots": roots()})],
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            vec![json!({"confirm": form("Please confirm", "ok", "boolean")})]
        }
        "test_input_required_result_multiple_inputs" => vec![json!({
            "user_name": form("What is your name?", "name", "string"),
            "greeting": sample("Generate a greeting"),
            "client_roots": roots(),
        })],
        "test_input_required_result_multi_round" => vec![
            json!({"step1": form("Step 1: What is your name?", "name", "string")}),
            json!({"step2": form("Step 2: What is your favorite color?", "color", "string")}),
        ],
        "test_input_required_result_capabilities" => vec![json!({
            "user_name": form("What is your name?", "name", "string"),
            "capital_question": sample("What is the capital of France?"),
        })],
        "test_input_required_result_prompt" => {
            vec![
                json!({"user_context": form("What context should the prompt use?", "context", "string")}),
            ]
        }
        _ => Vec::new(),
    }
}

fn form(message: &str, property: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object", "properties": {property: {"type": kind}}, "required": [property],
        },
    }})
}

fn sample(text: &str) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        "maxTokens": 100,
    }})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

/// Returns the state after a round. It selects the next round, and any other text is refused.
fn state(name: &str, round: usize) -> String {
    format!("{name}/{round}")
}

/// Returns the answer to a request with this state and these responses.
pub(super) fn step(
    name: &str,
    given: Option<&str>,
    responses: Option<&InputResponses>,
    capabilities: Option<&ClientCapabilities>,
) -> RoundStep {
    let rounds = rounds(name);
    if rounds.is_empty() {
        return RoundStep::None;
    }
    let round = match given {
        None => 0,
        Some(given) => match (0..rounds.len()).find(|round| state(name, *round) == given) {
            Some(round) => round,
            None => {
                return RoundStep::Refuse(ErrorData::invalid_params("not a state of ours", None));
            }
        },
    };
    let asked = match answerable(name, &rounds[round], capabilities) {
        Ok(asked) => asked,
        Err(refusal) => return RoundStep::Refuse(refusal),
    };
    let is_answered = responses.is_some_and(|responses| {
        asked
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .all(|key| responses.get(key).is_some_and(Value::is_object))
    });
    if !is_answered {
        return ask(name, round, &asked);
    }
    if let Some(next) = rounds.get(round + 1) {
        return ask(name, round + 1, next);
    }
    let responses = responses.cloned().unwrap_or_default();
    RoundStep::Done(format!("state-ok {}", json!(responses)))
}

fn ask(name: &str, round: usize, requests: &Value) -> RoundStep {
    let literal = json!({
        "resultType": "input_required",
        "inputRequests": requests,
        "requestState": state(name, round),
    });
    match serde_json::from_value(literal) {
        Ok(question) => RoundStep::Ask(question),
        Err(error) => RoundStep::Refuse(ErrorData::internal_error(error.to_string(), None)),
    }
}

/// Returns the input requests that the client supports.
fn answerable(
    name: &str,
    requests: &Value,
    capabilities: Option<&ClientCapabilities>,
) -> Result<Value, ErrorData> {
    let declared = json!(capabilities);
    let needs = |request: &Value| match request["method"].as_str() {
        Some("elicitation/create") => "elicitation",
        Some("sampling/createMessage") => "sampling",
        _ => "roots",
    };
    let (can, cannot): (Vec<_>, Vec<_>) = requests
        .as_object()
        .into_iter()
        .flatten()
        .partition(|(_, request)| declared.get(needs(request)).is_some_and(Value::is_object));
    if let Some((_, request)) = cannot.first()
        && (can.is_empty() || name != "test_input_required_result_capabilities")
    {
        let required = serde_json::from_value(json!({needs(request): {}})).unwrap_or_default();
        return Err(ErrorData::missing_required_client_capability(required));
    }
    let can: serde_json::Map<String, Value> = can
        .into_iter()
        .map(|(key, request)| (key.clone(), request.clone()))
        .collect();
    Ok(Value::Object(can))
}
