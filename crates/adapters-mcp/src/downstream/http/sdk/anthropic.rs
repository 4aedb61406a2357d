//! The format of the Messages API of Anthropic: tools with `defer_loading`, `tool_use` blocks, and
//! `tool_result` blocks, which may have `tool_reference` blocks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::members;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::block::{BlockError, BlockKind, FoundTools, Outcome, ToolBlock};
use super::content::{OutputPart, ToolOutput};
use super::definitions::{ProviderTool, ToolDefinition};
use super::names::{BM25_SEARCH, REGEX_SEARCH};
use super::provider::{Provider, SearchMode, ToolText};
use super::schema::{SchemaForm, provider_schema};
use super::tool_array::{AgentTool, Loading, ToolArray};

/// Returns a tool in the format of the provider.
pub(super) fn convert(tool: &ToolDefinition) -> ProviderTool {
    let schema = member(tool.text(), "inputSchema");
    let schema = provider_schema(schema, SchemaForm::PlainArguments);
    let mut value = json!({"name": tool.provider_name()});
    if let Some(text) = ToolText::of(tool.text()).with_note(schema.note) {
        value["description"] = text.into();
    }
    value["input_schema"] = schema.schema;
    ProviderTool::new(&value, schema.originals)
}

/// Returns the search facility; `None` if riglm searches and its search tool is missing.
pub(super) fn search_facility(mode: SearchMode, array: &ToolArray) -> Option<Cow<'_, RawValue>> {
    let facility = match mode {
        SearchMode::Riglm => {
            let search = array.search();
            return search.map(|tool| tool.for_provider(Provider::Anthropic));
        }
        SearchMode::Bm25 => json!({
            "type": "tool_search_tool_bm25_20251119", "name": BM25_SEARCH}),
        SearchMode::Regex => json!({
            "type": "tool_search_tool_regex_20251119", "name": REGEX_SEARCH}),
        SearchMode::Hosted => return None,
    };
    to_raw_value(&facility).ok().map(Cow::Owned)
}

/// Returns the block in a JSON text; `None` if it asks for no tool of the agent.
///
/// # Errors
///
/// Returns the reason why a `tool_use` block is not valid.
pub(super) fn read_block(block: &RawValue) -> Result<Option<ToolBlock>, BlockError> {
    #[derive(Deserialize)]
    struct Block<'a> {
        r#type: Option<String>,
        id: Option<String>,
        name: Option<String>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
    }
    let block: Block<'_> = serde_json::from_str(block.get()).map_err(BlockError::Invalid)?;
    match block.r#type.as_deref() {
        Some("tool_use") => {}
        Some(_) => return Ok(None),
        None => return Err(BlockError::NoType),
    }
    let kind = "tool_use";
    let missing = |member| BlockError::Missing { kind, member };
    let id = block.id.ok_or_else(|| missing("id"))?;
    let name = block.name.ok_or_else(|| missing("name"))?;
    let arguments = block.input.map_or("{}", RawValue::get);
    if !arguments.starts_with('{') {
        return Err(BlockError::Input(id));
    }
    Ok(Some(ToolBlock {
        id,
        kind: BlockKind::Call,
        name,
        arguments: arguments.to_owned(),
    }))
}

/// Returns the arguments of a call with the names that the server knows. Of two values for one
/// argument the last one counts, as for parsers.
pub(super) fn server_arguments<'a>(tool: &AgentTool, arguments: &'a str) -> Cow<'a, str> {
    let originals = tool.definition.for_provider(Provider::Anthropic);
    let originals = originals.originals();
    let has_changed = |name: &str| originals.contains_key(name);
    if originals.is_empty() || !members(arguments).any(|(name, _)| has_changed(&name)) {
        return arguments.into();
    }
    // One pass, because a model may be made to send very many arguments.
    let mut renamed: Vec<(Cow<'_, str>, &str)> = Vec::new();
    let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for (name, value) in members(arguments) {
        let name = originals
            .get(&*name)
            .map_or(name, |original| original.as_str().into());
        match places.entry(name) {
            Entry::Occupied(place) => renamed[*place.get()].1 = value,
            Entry::Vacant(place) => {
                renamed.push((place.key().clone(), value));
                place.insert(renamed.len() - 1);
            }
        }
    }
    let mut text = String::with_capacity(arguments.len());
    for (name, value) in renamed {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&Value::from(name).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text.into()
}

pub(super) fn result(block: &ToolBlock, outcome: &Outcome, array: &ToolArray) -> Value {
    let (content, is_error) = match outcome {
        Outcome::Output(output) => (content(output), output.is_error),
        Outcome::Found(found) => (references(found, array), found.output.is_error),
    };
    let mut value = json!({"type": "tool_result", "tool_use_id": block.id, "content": content});
    if is_error {
        value["is_error"] = true.into();
    }
    value
}

/// Returns the content for found tools: references to tools that are not loaded. A result has either
/// references or text.
pub(super) fn references(found: &FoundTools, array: &ToolArray) -> Vec<Value> {
    let tools = found.names.iter().filter_map(|name| array.by_name(name));
    let tools: Vec<&AgentTool> = tools.collect();
    let references: Vec<Value> = tools
        .iter()
        .filter(|tool| tool.loading == Loading::Deferred)
        .map(|tool| json!({"type": "tool_reference", "tool_name": tool.provider_name()}))
        .collect();
    if !references.is_empty() {
        return references;
    }
    if tools.is_empty() {
        return content(&found.output);
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.provider_name()).collect();
    let names = names.join(", ");
    let text = format!("These tools fit, and you have them already: {names}.");
    vec![json!({"type": "text", "text": text})]
}

fn content(output: &ToolOutput) -> Vec<Value> {
    let block = |part: &OutputPart| match part {
        OutputPart::Text(text) => json!({"type": "text", "text": text}),
        OutputPart::Image(file) => json!({"type": "image", "source": {
            "type": "base64", "media_type": file.media_type, "data": file.data}}),
        OutputPart::Pdf(file) => json!({"type": "document", "title": file.name, "source": {
            "type": "base64", "media_type": file.media_type, "data": file.data}}),
    };
    output.parts.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use riglm_app::proxy::OwnToolNames;

    use super::super::definitions::Definitions;
    use super::*;

    fn array() -> ToolArray {
        let tool = |name: &str| {
            let text = format!(
                r#"{{"name":"{name}","inputSchema":{{"properties":{{"$top":{{}},"b":{{}}}}}}}}"#
            );
            Definitions::default().share(&text).unwrap()
        };
        let listed = vec![tool("loaded"), tool("de/ferred")];
        let chosen = HashSet::from(["loaded".to_owned()]);
        let own = OwnToolNames::default();
        ToolArray::default().with_list(listed, &own, Some(&chosen), |_| false)
    }

    fn block() -> ToolBlock {
        ToolBlock {
            id: "id".into(),
            kind: BlockKind::Call,
            name: String::new(),
            arguments: String::new(),
        }
    }

    #[test]
    fn changed_arguments_go_back_to_the_server_as_they_were() {
        let array = array();
        let tool = array.by_name("loaded").unwrap();
        let changed = super::super::names::argument_name("$top").into_owned();
        let arguments = format!(r#"{{"{changed}":1.0,"b":{{"{changed}":2}}}}"#);
        assert_eq!(
            server_arguments(tool, &arguments),
            format!(r#"{{"$top":1.0,"b":{{"{changed}":2}}}}"#)
        );
    }

    #[test]
    fn the_last_of_two_values_for_one_argument_counts() {
        let array = array();
        let tool = array.by_name("loaded").unwrap();
        let changed = super::super::names::argument_name("$top").into_owned();
        let arguments = format!(r#"{{"$top":1,"{changed}":2,"c":3,"{changed}":4}}"#);
        assert_eq!(
            server_arguments(tool, &arguments),
            r#"{"$top":4,"c":3}"#.to_owned()
        );
        let unchanged = r#"{"c":3, "c":4}"#;
        assert!(matches!(
            server_arguments(tool, unchanged),
            Cow::Borrowed(same) if same == unchanged
        ));
    }

    #[test]
    fn very_many_arguments_take_one_pass() {
        let array = array();
        let tool = array.by_name("loaded").unwrap();
        let changed = super::super::names::argument_name("$top").into_owned();
        // With an edit for each argument, these would be a hundred billion bytes.
        let more: Vec<String> = (0..300_000).map(|n| format!(r#","{n}":0"#)).collect();
        let more = more.concat();
        let renamed = server_arguments(tool, &format!(r#"{{"{changed}":1{more}}}"#)).into_owned();
        assert_eq!(renamed, format!(r#"{{"$top":1{more}}}"#));
    }

    #[test]
    fn only_deferred_tools_are_referred_to() {
        let array = array();
        let found = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let output = ToolOutput::read(r#"{"content":[{"type":"text","text":"nothing"}]}"#);
            let outcome = Outcome::Found(FoundTools { names, output });
            result(&block(), &outcome, &array)["content"].clone()
        };
        let deferred = array.by_name("de/ferred").unwrap().provider_name();
        let reference = json!([{"type": "tool_reference", "tool_name": deferred}]);
        assert_eq!(found(&["loaded", "de/ferred", "hidden"]), reference);
        let text = found(&["loaded"]).to_string();
        assert!(text.contains("have them already: loaded"), "{text}");
        assert_eq!(
            found(&["hidden"]),
            json!([{"type": "text", "text": "nothing"}])
        );
    }

    #[test]
    fn files_become_images_and_documents() {
        let output = ToolOutput::read(
            r#"{"isError":true,"content":[{"type":"image","mimeType":"image/png","data":"AAAA"},
                {"type":"resource","resource":{"uri":"f","mimeType":"application/pdf","blob":"BBBB"}}]}"#,
        );
        assert_eq!(
            result(&block(), &Outcome::Output(output), &array()),
            json!({"type": "tool_result", "tool_use_id": "id", "is_error": true, "content": [
                {"type": "image", "source":
                    {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "title": "f", "source":
                    {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}},
            ]})
        );
    }
}
