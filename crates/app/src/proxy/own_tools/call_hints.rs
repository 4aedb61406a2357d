//! The hints for a model after a wrong call, so that its next call can succeed.

use std::fmt::Write as _;
use std::sync::Arc;

use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::excerpt::excerpt;

use crate::long_work::LongTextWork;
use riglm_discovery::search::{Catalog, CatalogTool, input_schema, nearest_tools};

/// The number of suggested names.
const N_NAMES: usize = 3;
/// The maximum size of a schema in a hint, in bytes.
const MAX_SCHEMA_BYTES: u64 = 16 << 10;
/// The maximum size of the schema of a suggested tool, in bytes.
const MAX_SUGGESTED_BYTES: u64 = 4 << 10;
/// The maximum length of a name that is repeated, in characters.
pub(in crate::proxy) const MAX_NAME_CHARS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Length {
    /// With schemas.
    Full,
    /// Without schemas, because they were shown before in this session.
    Short,
}

/// Returns the hint for a failed call of a hidden tool: its input schema. Returns `None` if there is
/// none, or if it is too large.
pub(in crate::proxy) fn schema_hint(tool: &CatalogTool) -> Option<String> {
    let schema = input_schema(&tool.definition, MAX_SCHEMA_BYTES)?;
    Some(format!("Input schema of {}: {schema}", tool.name))
}

/// Returns the hint for an unknown name, see [`unknown_of`]. The comparison of names takes long in
/// a large catalog, so it runs as long work.
pub(in crate::proxy) async fn unknown(
    work: &LongTextWork,
    principal: &Principal,
    name: &str,
    catalog: Arc<Catalog>,
    search: Option<&str>,
    length: Length,
) -> Option<String> {
    let (name, search) = (name.to_owned(), search.map(str::to_owned));
    let said = work.run(principal, move || {
        unknown_of(&name, &catalog, search.as_deref(), length)
    });
    said.await.flatten()
}

/// Returns the hint for an unknown name: the nearest names, and a reference to the search tool,
/// which is named `search` if there is one. Returns `None` without a useful hint.
fn unknown_of(
    name: &str,
    catalog: &Catalog,
    search: Option<&str>,
    length: Length,
) -> Option<String> {
    let known = || format!("No tool is named {:?}", excerpt(name, MAX_NAME_CHARS));
    let near = nearest_tools(name, catalog, N_NAMES);
    let near: Vec<&CatalogTool> = near.iter().map(|at| &catalog.tools()[*at]).collect();
    if near.is_empty() {
        return search.map(|search| format!("{}; {search} finds tools for a task.", known()));
    }
    let names: Vec<&str> = near.iter().map(|tool| tool.name.as_str()).collect();
    if length == Length::Short {
        return Some(format!(
            "{}; the nearest names are {}.",
            known(),
            names.join(", ")
        ));
    }
    let mut text = format!("{}. The nearest names:", known());
    for tool in near {
        let _ = write!(text, "\n- {}", tool.name);
        let line = tool.first_line();
        if !line.is_empty() {
            let _ = write!(text, ": {line}");
        }
        if let Some(schema) = input_schema(&tool.definition, MAX_SUGGESTED_BYTES) {
            let _ = write!(text, "\n  Input schema: {schema}");
        }
    }
    if let Some(search) = search {
        let _ = write!(text, "\n{search} finds other tools for a task.");
    }
    Some(text)
}

/// Appends a sentence to a text of a server.
pub(in crate::proxy) fn with_sentence(said: &str, more: &str) -> String {
    let said = said.trim_end();
    let end = if said.is_empty() || said.ends_with(['.', '!', '?', ':', ';']) {
        ""
    } else {
        "."
    };
    let space = if said.is_empty() { "" } else { " " };
    format!("{said}{end}{space}{more}")
}

#[cfg(test)]
mod tests {
    use riglm_domain::catalog::tool::ToolRef;
    use riglm_domain::id::UpstreamName;
    use serde_json::json;

    use super::*;

    fn catalog(names: &[&str]) -> Catalog {
        let tools = names.iter().map(|name| CatalogTool {
            name: format!("u__{name}"),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: (*name).into(),
            },
            definition: json!({"name": name, "description": "Does it.\nIn two lines.",
                "inputSchema": {"type": "object", "title": name}})
            .to_string()
            .into(),
            is_hidden: false,
        });
        Catalog::new(tools.collect(), Vec::new())
    }

    #[test]
    fn the_nearest_names_come_with_their_schemas_once() {
        let catalog = catalog(&["read_file", "write_file", "list_directory", "send"]);
        let unknown =
            |name: &str, length| unknown_of(name, &catalog, Some("find"), length).unwrap();
        let text = unknown("ReadFile", Length::Full);
        assert!(text.starts_with("No tool is named \"ReadFile\"."), "{text}");
        assert!(text.contains("- u__read_file: Does it.\n"), "{text}");
        assert!(
            text.contains(r#"{"type":"object","title":"read_file"}"#),
            "{text}"
        );
        assert!(
            text.contains("find finds other tools") && !text.contains("u__send"),
            "{text}"
        );
        let short = unknown("ReadFile", Length::Short);
        assert!(
            short.contains("u__read_file") && !short.contains("object"),
            "{short}"
        );
        let none = unknown("zzz", Length::Full);
        assert_eq!(
            none,
            "No tool is named \"zzz\"; find finds tools for a task."
        );
    }

    #[test]
    fn without_a_tool_for_searching_only_names_help() {
        let catalog = catalog(&["read_file"]);
        let text = unknown_of("read_fil", &catalog, None, Length::Full).unwrap();
        assert!(
            text.contains("- u__read_file") && !text.contains("other tools"),
            "{text}"
        );
        assert_eq!(unknown_of("zzz", &catalog, None, Length::Full), None);
    }

    #[test]
    fn sentences_are_joined_with_one_full_stop() {
        for said in ["Unknown tool: x", "Unknown tool: x.", "Unknown tool: x. "] {
            assert_eq!(with_sentence(said, "Try y."), "Unknown tool: x. Try y.");
        }
        assert_eq!(with_sentence("Really?", "Yes."), "Really? Yes.");
        assert_eq!(with_sentence("", "Yes."), "Yes.");
    }

    #[test]
    fn schemas_above_the_limit_are_left_out() {
        let fits = |n_bytes: usize| {
            let mut tool = catalog(&["read"]).tools()[0].clone();
            let definition = json!({"inputSchema": {"title": "x".repeat(n_bytes)}});
            tool.definition = definition.to_string().into();
            schema_hint(&tool).is_some()
        };
        let n_others = r#"{"title":""}"#.len();
        assert!(fits((16 << 10) - n_others));
        assert!(!fits((16 << 10) - n_others + 1));
    }
}
