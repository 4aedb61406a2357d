//! Detection of upstream search tools, by their definitions.

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::members;

/// The names of parameters for a query, in lower case, without `_` and `-`.
const QUERY_NAMES: [&str; 10] = [
    "query",
    "q",
    "search",
    "searchquery",
    "searchterm",
    "searchterms",
    "searchtext",
    "keyword",
    "keywords",
    "querytext",
];

/// Returns whether a tool with this definition, which is JSON text, is a search tool: it only reads
/// (`readOnlyHint`) and takes a query.
///
/// `openWorldHint` is not used: it is true unless a server sets it, and a tool that reads one web
/// page has it as well. A query parameter is common to all search tools, and rare among others.
pub(super) fn is_search_tool(definition: &str) -> bool {
    let annotations = member(definition, "annotations");
    let is_reading = annotations.and_then(|of| member(of, "readOnlyHint")) == Some("true");
    is_reading && {
        let schema = member(definition, "inputSchema");
        let properties = schema.and_then(|schema| member(schema, "properties"));
        let mut properties = members(properties.unwrap_or_default());
        properties.any(|(name, _)| is_query(&name))
    }
}

/// Returns whether a parameter of this name is a query.
pub(super) fn is_query(name: &str) -> bool {
    let plain = name.chars().filter(|it| !matches!(it, '_' | '-'));
    let plain: String = plain.flat_map(char::to_lowercase).collect();
    QUERY_NAMES.contains(&&*plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(annotations: &str, properties: &str) -> bool {
        is_search_tool(&format!(
            r#"{{"name":"t","inputSchema":{{"properties":{{{properties}}}}},"annotations":{annotations}}}"#
        ))
    }

    #[test]
    fn read_only_tools_with_a_query_are_search_tools() {
        let reads = r#"{"readOnlyHint":true}"#;
        for name in ["query", "q", "search_query", "Keywords", "searchTerm"] {
            assert!(
                tool(reads, &format!(r#""limit":{{}},"{name}":{{}}"#)),
                "{name}"
            );
        }
        for name in ["url", "id", "sql_query_plan", "question"] {
            assert!(!tool(reads, &format!(r#""{name}":{{}}"#)), "{name}");
        }
        for annotations in ["{}", r#"{"readOnlyHint":false,"openWorldHint":true}"#, "7"] {
            assert!(!tool(annotations, r#""query":{}"#), "{annotations}");
        }
        assert!(!is_search_tool("{}") && !is_search_tool("") && !tool(reads, ""));
    }
}
