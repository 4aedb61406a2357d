//! The tools, resources and prompts that the conformance suite requires, as literals.

use serde_json::{Map, Value, json};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The tools without arguments.
const PLAIN: [&str; 23] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_error_handling",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_reconnection",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_elicitation",
];

pub(super) fn tools() -> Value {
    let mut tools: Vec<Value> = PLAIN
        .iter()
        .map(|name| {
            json!({
                "name": name,
                "description": format!("Tests {name}"),
                "inputSchema": {"type": "object", "properties": {}},
            })
        })
        .collect();
    tools.push(json!({
        "name": "test_headers",
        "description": "An argument that is repeated in a header",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
            "required": ["region"],
        },
    }));
    tools.push(json!({
        "name": "json_schema_2020_12_tool",
        "description": "Tool with JSON Schema 2020-12 features",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }},
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        },
    }));
    Value::Array(tools)
}

/// Returns a result with a text.
pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Returns the result of a tool without input requests. Returns `None` for unknown tools.
pub(super) fn result(name: &str, arguments: Option<&Map<String, Value>>) -> Option<Value> {
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    Some(match name {
        "test_simple_text" => text_result("This is a simple text response for testing."),
        "test_image_content" => json!({"content": [image]}),
        "test_audio_content" => {
            json!({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]})
        }
        "test_embedded_resource" => json!({"content": [embedded_resource(
            "test://embedded-resource", "text/plain", "This is an embedded resource content.",
        )]}),
        "test_multiple_content_types" => json!({"content": [
            {"type": "text", "text": "Multiple content types test:"},
            image,
            embedded_resource("test://mixed-content-resource", "application/json", r#"{"test":"data"}"#),
        ]}),
        "test_error_handling" => json!({
            "isError": true,
            "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
        }),
        "test_headers" | "json_schema_2020_12_tool" => {
            text_result(&Value::from(arguments.cloned()).to_string())
        }
        known if PLAIN.contains(&known) => text_result("done"),
        _ => return None,
    })
}

fn embedded_resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})
}

pub(super) fn resources() -> Value {
    json!([
        {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
        {"uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain"},
    ])
}

pub(super) fn resource(uri: &str) -> Option<Value> {
    Some(match uri {
        "test://static-text" => json!({
            "uri": uri, "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        "test://watched-resource" => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "Watched resource content"})
        }
        _ => {
            let id = uri
                .strip_prefix("test://template/")?
                .strip_suffix("/data")?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
        }
    })
}

pub(super) fn prompts() -> Value {
    let prompts: Vec<Value> = [
        ("test_simple_prompt", &[][..]),
        ("test_prompt_with_arguments", &["arg1", "arg2"]),
        ("test_prompt_with_embedded_resource", &["resourceUri"]),
        ("test_prompt_with_image", &[]),
        ("test_input_required_result_prompt", &[]),
    ]
    .iter()
    .map(|(name, arguments)| {
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|argument| json!({"name": argument, "required": true}))
            .collect();
        json!({"name": name, "description": format!("Tests {name}"), "arguments": arguments})
    })
    .collect();
    Value::Array(prompts)
}

/// Returns a prompt with a text.
pub(super) fn prompt_saying(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
}

/// Returns a prompt. Returns `None` for unknown prompts.
pub(super) fn prompt(name: &str, arguments: Option<&Map<String, Value>>) -> Option<Value> {
    let argument = |name: &str| {
        arguments
            .and_then(|arguments| arguments.get(name)?.as_str())
            .unwrap_or_default()
    };
    Some(match name {
        "test_simple_prompt" => prompt_saying("This is a simple prompt for testing."),
        "test_prompt_with_arguments" => prompt_saying(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        )),
        "test_prompt_with_embedded_resource" => json!({"messages": [
            {"role": "user", "content": embedded_resource(
                argument("resourceUri"), "text/plain", "Embedded resource content for testing.",
            )},
            {"role": "user", "content": {
                "type": "text", "text": "Please process the embedded resource above.",
            }},
        ]}),
        "test_prompt_with_image" => json!({"messages": [
            {"role": "user", "content": {"type": "image", "data": PNG, "mimeType": "image/png"}},
            {"role": "user", "content": {"type": "text", "text": "Please analyze the image above."}},
        ]}),
        _ => return None,
    })
}
