//! The format of the Responses API of `OpenAI`: functions with `defer_loading`, the items
//! `function_call` and `tool_search_call`, and their outputs.

use std::borrow::Cow;

use riglm_domain::mcp::edit::member;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::block::{BlockError, BlockKind, FoundTools, Outcome, ToolBlock};
use super::content::{OutputPart, ToolOutput};
use super::definitions::{ProviderTool, ToolDefinition};
use super::provider::{Provider, SearchMode, ToolText};
use super::schema::{SchemaForm, provider_schema};
use super::tool_array::{AgentTool, Loading, ToolArray};

/// Returns a tool in the format of the provider.
pub(super) fn convert(tool: &ToolDefinition) -> ProviderTool {
    let schema = member(tool.text(), "inputSchema");
    let schema = provider_schema(schema, SchemaForm::ArraysWithItems);
    let mut value = json!({"type": "function", "name": tool.provider_name()});
    if let Some(text) = ToolText::of(tool.text()).with_note(schema.note) {
        value["description"] = text.into();
    }
    value["parameters"] = schema.schema;
    // Strict mode accepts few schemas. The server checks the arguments.
    value["strict"] = false.into();
    ProviderTool::new(&value, schema.originals)
}

/// Returns the search facility; `None` if riglm searches and its search tool is missing.
pub(super) fn search_facility(mode: SearchMode, array: &ToolArray) -> Option<Cow<'_, RawValue>> {
    let facility = match mode {
        SearchMode::Riglm => {
            let function = value_of(array.search()?);
            json!({"type": "tool_search", "execution": "client",
                "description": function["description"], "parameters": function["parameters"]})
        }
        SearchMode::Hosted => json!({"type": "tool_search"}),
        SearchMode::Bm25 | SearchMode::Regex => return None,
    };
    to_raw_value(&facility).ok().map(Cow::Owned)
}

fn value_of(tool: &AgentTool) -> Value {
    let text = tool.for_provider(Provider::OpenAi);
    serde_json::from_str(text.get()).unwrap_or_default()
}

/// Returns the item in a JSON text; `None` if it asks for no tool of the agent.
///
/// # Errors
///
/// Returns the reason why the item of a call is not valid.
pub(super) fn read_block(item: &RawValue) -> Result<Option<ToolBlock>, BlockError> {
    #[derive(Deserialize)]
    struct Item<'a> {
        r#type: Option<String>,
        call_id: Option<String>,
        name: Option<String>,
        execution: Option<String>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let item: Item<'_> = serde_json::from_str(item.get()).map_err(BlockError::Invalid)?;
    let kind = match item.r#type.as_deref() {
        Some("function_call") => BlockKind::Call,
        // The provider has executed its own search.
        Some("tool_search_call") if item.execution.as_deref() != Some("server") => {
            BlockKind::Search
        }
        Some(_) => return Ok(None),
        None => return Err(BlockError::NoType),
    };
    let missing = |member| {
        let kind = match kind {
            BlockKind::Call => "function_call",
            BlockKind::Search => "tool_search_call",
        };
        BlockError::Missing { kind, member }
    };
    let id = item.call_id.ok_or_else(|| missing("call_id"))?;
    let name = match kind {
        BlockKind::Call => item.name.ok_or_else(|| missing("name"))?,
        BlockKind::Search => String::new(),
    };
    let arguments = item.arguments.map_or("{}", RawValue::get);
    // The arguments of functions are JSON in a string.
    let arguments = match serde_json::from_str::<String>(arguments) {
        Ok(text) if text.trim().is_empty() => "{}".to_owned(),
        Ok(text) => text,
        Err(_) => arguments.to_owned(),
    };
    Ok(Some(ToolBlock {
        id,
        kind,
        name,
        arguments,
    }))
}

/// Returns the output item of an item.
pub(super) fn result(block: &ToolBlock, outcome: &Outcome, array: &ToolArray) -> Value {
    match (block.kind, outcome) {
        (BlockKind::Search, Outcome::Found(found)) if !found.output.is_error => json!({
            "type": "tool_search_output", "call_id": block.id, "execution": "client",
            "status": "completed", "tools": definitions(found, array)}),
        (BlockKind::Search, _) => json!({
            "type": "tool_search_output", "call_id": block.id, "execution": "client",
            "status": "incomplete", "tools": []}),
        (BlockKind::Call, Outcome::Output(output)) => json!({
            "type": "function_call_output", "call_id": block.id, "output": output_of(output)}),
        (BlockKind::Call, Outcome::Found(found)) => json!({
            "type": "function_call_output", "call_id": block.id,
            "output": output_of(&found.output)}),
    }
}

/// Returns the definitions of found tools that are not loaded.
pub(super) fn definitions(found: &FoundTools, array: &ToolArray) -> Vec<Value> {
    let tools = found.names.iter().filter_map(|name| array.by_name(name));
    let deferred = tools.filter(|tool| tool.loading == Loading::Deferred);
    deferred.map(value_of).collect()
}

/// Returns the output of a function: a text, or an array if it has files. The format has no mark for
/// errors, so the text of an error begins with a word.
fn output_of(output: &ToolOutput) -> Value {
    let is_text = |part: &OutputPart| matches!(part, OutputPart::Text(_));
    let lead = if output.is_error { "Error: " } else { "" };
    if output.parts.iter().all(is_text) {
        return format!("{lead}{}", output.text()).into();
    }
    let item = |part: &OutputPart| match part {
        OutputPart::Text(text) => json!({"type": "input_text", "text": text}),
        OutputPart::Image(file) => json!({"type": "input_image", "image_url":
            format!("data:{};base64,{}", file.media_type, file.data)}),
        OutputPart::Pdf(file) => json!({"type": "input_file", "filename": file.name, "file_data":
            format!("data:{};base64,{}", file.media_type, file.data)}),
    };
    let lead = (output.is_error).then(|| json!({"type": "input_text", "text": "Error:"}));
    let parts = output.parts.iter().map(item);
    lead.into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(kind: BlockKind, result_text: &str) -> Value {
        let block = ToolBlock {
            id: "id".into(),
            kind,
            name: String::new(),
            arguments: String::new(),
        };
        let outcome = Outcome::Output(ToolOutput::read(result_text));
        result(&block, &outcome, &ToolArray::default())
    }

    #[test]
    fn files_become_images_and_files() {
        let found = output(
            BlockKind::Call,
            r#"{"isError":true,"content":[{"type":"image","mimeType":"image/png","data":"AAAA"},
                {"type":"resource","resource":{"uri":"f","mimeType":"application/pdf","blob":"BBBB"}},
                {"type":"text","text":"a"}]}"#,
        );
        assert_eq!(
            found["output"],
            json!([
                {"type": "input_text", "text": "Error:"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_file", "filename": "f",
                    "file_data": "data:application/pdf;base64,BBBB"},
                {"type": "input_text", "text": "a"},
            ])
        );
    }

    #[test]
    fn a_search_that_failed_is_incomplete() {
        let found = output(BlockKind::Search, r#"{"isError":true,"content":[]}"#);
        assert_eq!(found["type"], "tool_search_output");
        assert_eq!(
            (&found["status"], &found["tools"]),
            (&json!("incomplete"), &json!([]))
        );
    }
}
