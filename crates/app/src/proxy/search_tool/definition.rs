//! The definition of the tool for searching, as it stands in lists.

use riglm_domain::edit::with_member;
use riglm_domain::protocol::Revision;
use serde_json::{Value, json};

use super::arguments::{MAX_LIMIT, MAX_QUERY_CHARS};

/// What a model is told of the tool.
const DESCRIPTION: &str = "Finds tools by what they do, among all tools of this server, those that \
    its list of tools leaves out included. Say in a few words what has to be done. The answer names \
    the tools that fit best, and every one of them can be called by that name right away, listed or \
    not. Search before you conclude that there is no tool for something.";

/// The texts of the definition, the same ones every time.
#[derive(Debug)]
pub(super) struct Definitions {
    /// For revisions that know no more than name, description and `inputSchema`.
    basic: String,
    /// With `annotations`.
    annotated: String,
    /// With `title` and `outputSchema` too.
    full: String,
}

impl Definitions {
    pub(super) fn new(name: &str) -> Self {
        let basic = json!({
            "name": name,
            "description": DESCRIPTION,
            "inputSchema": input_schema(),
        })
        .to_string();
        let annotations = json!({
            "readOnlyHint": true,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        })
        .to_string();
        let annotated = with_member(&basic, "annotations", &annotations);
        let title = Value::from("Search available tools").to_string();
        let full = with_member(&annotated, "title", &title);
        let full = with_member(&full, "outputSchema", &output_schema().to_string());
        Self {
            basic,
            annotated,
            full,
        }
    }

    /// Returns the definition with what a revision knows.
    pub(super) fn of(&self, revision: Option<&Revision>) -> &str {
        match revision {
            Some(revision) if revision.has_structured_results() => &self.full,
            Some(revision) if revision.has_annotations() => &self.annotated,
            _ => &self.basic,
        }
    }
}

fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
                "description": "What has to be done, in a few words, for example: create a calendar event",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "description": "The most tools to name",
            },
        },
        "required": ["query"],
    })
}

fn output_schema() -> Value {
    let named = |key: &str, schema: Value, description: &str| {
        let mut schema = json!({
            "type": "array",
            "description": description,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    key: schema,
                    "input_schema": {"type": "object"},
                },
            },
        });
        schema["items"]["required"] = json!(["name", "description", key]);
        schema
    };
    let mut matches = named(
        "score",
        json!({"type": "number"}),
        "The tools that fit, best first",
    );
    matches["items"]["properties"]["same_as"] = json!({
        "type": "array",
        "description": "Tools of other servers that are the same",
        "items": {"type": "string"},
    });
    json!({
        "type": "object",
        "properties": {
            "matches": matches,
            "predicted_next": named(
                "reason",
                json!({"type": "string"}),
                "Tools that are often called next",
            ),
            "quality": {"type": "string", "enum": ["high", "medium", "low"]},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["matches", "predicted_next", "quality", "notes"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(revision: &str) -> Vec<String> {
        let definitions = Definitions::new("n");
        let text = definitions.of(Some(&Revision::new(revision)));
        let definition: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
        definition.keys().cloned().collect()
    }

    #[test]
    fn the_output_schema_has_what_is_the_same_as_a_match_and_does_not_require_it() {
        let item = &output_schema()["properties"]["matches"]["items"];
        assert_eq!(item["properties"]["same_as"]["items"]["type"], "string");
        assert_eq!(item["required"], json!(["name", "description", "score"]));
    }

    #[test]
    fn a_definition_has_what_its_revision_knows() {
        let basic = ["name", "description", "inputSchema"];
        assert_eq!(keys("2024-11-05"), basic);
        let annotated = [&basic[..], &["annotations"]].concat();
        assert_eq!(keys("2025-03-26"), annotated);
        let full = [&annotated[..], &["title", "outputSchema"]].concat();
        assert_eq!(keys("2025-06-18"), full);
        assert_eq!(keys("2026-07-28"), full);
    }
}
