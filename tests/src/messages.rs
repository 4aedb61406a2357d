//! Texts of the messages that most tests send.

use crate::envelope::json_string;

/// The legacy revisions, oldest first.
pub const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Returns an initialize request of a client with all capabilities.
pub fn initialize(id: &str, revision: &str) -> String {
    let capabilities = r#"{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}},"experimental":{"x.example/odd":{"n":1.0}}}"#;
    initialize_with(id, revision, capabilities)
}

/// Returns an initialize request with the given capabilities.
pub fn initialize_with(id: &str, revision: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"raw-client","title":"Raw \u2192 client","version":"1.0.0","x-unknown":[1.0,null]}}}}}}"#
    )
}

/// Returns a request without params.
pub fn request(id: &str, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{}}}"#,
        json_string(method)
    )
}

/// Returns a request with raw params.
pub fn request_with(id: &str, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#,
        json_string(method)
    )
}

/// Returns a `tools/call` request with raw arguments.
pub fn call(id: &str, tool: &str, arguments: &str) -> String {
    request_with(
        id,
        "tools/call",
        &format!(
            r#"{{"name":{},"arguments":{arguments}}}"#,
            json_string(tool)
        ),
    )
}

/// Returns a `tools/call` request with raw arguments and a raw progress token.
pub fn call_with_progress(id: &str, tool: &str, arguments: &str, token: &str) -> String {
    request_with(
        id,
        "tools/call",
        &format!(
            r#"{{"name":{},"arguments":{arguments},"_meta":{{"progressToken":{token}}}}}"#,
            json_string(tool)
        ),
    )
}

/// Returns a notification with raw params.
pub fn notification(method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#,
        json_string(method)
    )
}

/// Returns the `notifications/cancelled` for the request with this raw id.
pub fn cancelled_notification(id: &str) -> String {
    notification(
        "notifications/cancelled",
        &format!(r#"{{"requestId":{id},"reason":"no longer wanted","x":null}}"#),
    )
}
