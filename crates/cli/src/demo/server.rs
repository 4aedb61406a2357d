//! A server of the demonstration: tools as data behind the MCP protocol.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::civil::{Date, Time};
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{CallFailure, Case, Collection};

/// The servers by name.
pub(super) static SERVERS: LazyLock<BTreeMap<String, ServerData>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("servers.json")).expect("a test reads the same file")
});

/// The description of a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerData {
    /// The items that a new server has.
    #[serde(default)]
    pub(super) collection: Collection,
    pub(super) tools: Vec<DemoTool>,
}

/// A tool, and its answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DemoTool {
    /// The definition that clients see.
    pub(super) definition: Tool,
    /// The first that has the arguments of a call answers it.
    cases: Vec<Case>,
}

impl DemoTool {
    /// Checks the arguments and makes the call.
    pub(super) fn call(
        &self,
        collection: &mut Collection,
        arguments: &JsonObject,
    ) -> Result<String, CallFailure> {
        self.check(arguments)?;
        let is_given = |(name, value): (&String, &Value)| arguments.get(name) == Some(value);
        let case = self
            .cases
            .iter()
            .find(|case| case.when.iter().all(is_given));
        let Some(case) = case else {
            let known = self
                .cases
                .first()
                .map(|case| Value::from(case.when.clone()));
            let known = known.unwrap_or_default();
            return Err(CallFailure(format!(
                "the demonstration has no answer for these arguments; it has one for {known}"
            )));
        };
        case.answer(collection, arguments)
    }

    /// Checks arguments against the definition.
    fn check(&self, arguments: &JsonObject) -> Result<(), CallFailure> {
        let schema = &self.definition.input_schema;
        let required = schema.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        if let Some(name) = required.find(|name| !arguments.contains_key(*name)) {
            return Err(CallFailure(format!("argument {name} is missing")));
        }
        for (name, value) in arguments {
            let parameter = schema.get("properties").and_then(|all| all.get(name));
            let failure = match parameter.map(|parameter| mismatch(parameter, value)) {
                Some(None) => continue,
                Some(Some(wanted)) => format!("argument {name} must be {wanted}"),
                None => format!("unknown argument {name:?}"),
            };
            return Err(CallFailure(failure));
        }
        Ok(())
    }
}

/// Returns the requirement that a value does not meet, by the schema of its parameter. A form of dates
/// or times in the description is one, too.
fn mismatch(parameter: &Value, value: &Value) -> Option<String> {
    let kind = parameter["type"].as_str().unwrap_or_default();
    let is_of_kind = match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "array" => {
            let is_item = |item| mismatch(&parameter["items"], item).is_none();
            value.as_array().is_some_and(|all| all.iter().all(is_item))
        }
        _ => false,
    };
    let text = value.as_str().unwrap_or_default();
    let description = parameter["description"].as_str().unwrap_or_default();
    if !is_of_kind {
        let items = parameter["items"]["type"].as_str();
        Some(items.map_or_else(
            || format!("of type {kind}"),
            |of| format!("a list of type {of}"),
        ))
    } else if parameter["enum"]
        .as_array()
        .is_some_and(|all| !all.contains(value))
    {
        Some(format!("one of {}", parameter["enum"]))
    } else if description.contains("YYYY-MM-DD") && text.parse::<Date>().is_err() {
        Some("a date as YYYY-MM-DD".into())
    } else if description.contains("HH:MM") && text.parse::<Time>().is_err() {
        Some("a time as HH:MM".into())
    } else {
        None
    }
}

/// A server with the items of one process.
pub(super) struct ToolServer {
    data: &'static ServerData,
    collection: Mutex<Collection>,
}

impl ToolServer {
    pub(super) fn new(data: &'static ServerData) -> Self {
        Self {
            data,
            collection: Mutex::new(data.collection.clone()),
        }
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.data.tools.iter().map(|tool| tool.definition.clone());
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut tools = self.data.tools.iter();
        let Some(tool) = tools.find(|tool| tool.definition.name == request.name) else {
            let text = format!("unknown tool {:?}", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = match tool.call(&mut self.collection.lock(), &arguments) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(failure) => CallToolResult::error(vec![ContentBlock::text(failure.to_string())]),
        };
        Ok(result.into())
    }
}
