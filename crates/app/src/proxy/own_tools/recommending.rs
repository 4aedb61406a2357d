//! The recommendation tool: its arguments and its answer.

use std::sync::Arc;

use riglm_domain::intent::context::ContextSource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{ToolCaller, failure, result};
use super::arguments::{ArgumentsProblem, MAX_LIMIT, MAX_QUERY_CHARS, limit};
use crate::proxy::list_template::ListFetchError;
use riglm_discovery::recommend::{Exclusions, Project, RecommendRequest};
use riglm_discovery::search::Catalog;

#[derive(Debug, Deserialize)]
struct RecommendArguments {
    query: String,
    #[serde(default)]
    limit: Option<Value>,
    #[serde(default)]
    context: Option<ProjectArguments>,
}

#[derive(Debug, Default, Deserialize)]
struct ProjectArguments {
    #[serde(default)]
    languages: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
}

impl RecommendArguments {
    fn read(arguments: Option<&str>) -> Result<Self, ArgumentsProblem> {
        let wanted: Self = serde_json::from_str(arguments.unwrap_or("{}")).map_err(|error| {
            ArgumentsProblem::new(format!(
                r#"arguments must be an object such as {{"query": "send an e-mail"}}: {error}"#
            ))
        })?;
        let n_chars = wanted
            .query
            .trim()
            .chars()
            .take(MAX_QUERY_CHARS + 1)
            .count();
        if n_chars == 0 || n_chars > MAX_QUERY_CHARS {
            return Err(ArgumentsProblem::new(format!(
                "query must be a string of 1 to {MAX_QUERY_CHARS} characters that describes the \
                 task"
            )));
        }
        wanted.limit()?;
        Ok(wanted)
    }

    fn limit(&self) -> Result<Option<usize>, ArgumentsProblem> {
        limit(self.limit.as_ref())
    }
}

/// Returns the JSON text of the result of a call of the recommendation tool.
pub(super) async fn recommend(
    requester: &ToolCaller<'_>,
    arguments: Option<&str>,
    catalog: Result<Arc<Catalog>, ListFetchError>,
) -> String {
    let wanted = match RecommendArguments::read(arguments) {
        Ok(wanted) => wanted,
        Err(problem) => return failure(requester.era, problem.as_str()),
    };
    let Some(recommender) = &requester.shared.recommender else {
        return failure(requester.era, "recommendations are off");
    };
    let catalog = match catalog {
        Ok(catalog) => catalog,
        Err(reason) => {
            let problem = format!("failed to recommend tools: {reason}");
            return failure(requester.era, &problem);
        }
    };
    let row = requester.client_context.session_id(requester.shared).await;
    let query = wanted.query.trim().to_owned();
    let (source, at) = (ContextSource::Search, requester.received_at);
    (requester.shared).note_intent(requester.session, source, &query, at);
    let limit = wanted.limit().unwrap_or_default();
    let context = wanted.context.unwrap_or_default();
    let call = RecommendRequest {
        session: Some(row),
        session_key: Some(requester.session),
        is_of_session: true,
        principal: requester.client_context.principal.clone(),
        query,
        limit,
        exclusions: requester.exclusions(&catalog),
        catalog,
        project: Project::new(context.languages.iter().chain(&context.tags)),
    };
    match recommender.recommend(call).await {
        Ok(reply) => {
            let named = reply.tools.iter().map(|tool| &tool.tool);
            let now = std::time::Instant::now();
            (requester.client_context.search).note_found(requester.session, named, None, now);
            result(requester, &reply.text(), Some(&reply.json().to_string()))
        }
        Err(error) => failure(requester.era, &error.to_string()),
    }
}

impl ToolCaller<'_> {
    /// Returns the tools of a catalog that cannot be used now.
    fn exclusions(&self, catalog: &Catalog) -> Exclusions {
        let client = self.client_context.client_name();
        let mut ask =
            (self.client_context).list_request(&client, self.session, self.era, self.received_at);
        ask.client_hash = Some(self.client_context.client_hash(&self.shared.recorder));
        self.shared.exclusions(&ask, catalog)
    }
}

pub(super) fn input_schema() -> Value {
    let texts = |description: &str| {
        json!({
            "type": "array",
            "items": {"type": "string", "maxLength": Project::MAX_TAG_CHARS},
            "maxItems": Project::MAX_TAGS,
            "description": description,
        })
    };
    json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
                "description": "What you want to do, for example: test the login of a web app",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "description": "The most tools to recommend",
            },
            "context": {
                "type": "object",
                "description": "What the project is about",
                "properties": {
                    "languages": texts("Its programming languages"),
                    "tags": texts("Other keywords of the project"),
                },
            },
        },
        "required": ["query"],
    })
}

/// Returns the schema of the structured result.
pub(super) fn output_schema() -> Value {
    let share = json!({"type": "number", "minimum": 0, "maximum": 1});
    let neighbours = json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "support": {"type": "integer", "description": "How often they followed each other"},
                "share": share,
            },
        },
    });
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "quality": {"type": "string", "enum": ["high", "medium", "low"]},
            "tools": {
                "type": "array",
                "description": "The recommended tools, best first",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "description": {"type": "string"},
                        "score": share,
                        "factors": {"type": "object", "additionalProperties": share},
                        "explanation": {"type": "string"},
                        "before": neighbours,
                        "after": neighbours,
                    },
                    "required": ["name", "score", "factors", "explanation"],
                },
            },
            "left_out": {"type": "array", "items": {"type": "object"}},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "quality", "tools", "left_out", "notes"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_arguments_are_refused_with_the_reason() {
        let long = format!(r#"{{"query":"{}"}}"#, "x".repeat(MAX_QUERY_CHARS + 1));
        for (arguments, named) in [
            (None, "query"),
            (Some("[]"), "object"),
            (Some(r#"{"query":" "}"#), "query must"),
            (Some(&*long), "query must"),
            (Some(r#"{"query":"a","limit":0}"#), "limit must"),
            (Some(r#"{"query":"a","limit":51}"#), "limit must"),
            (Some(r#"{"query":"a","limit":-1}"#), "limit must"),
            (Some(r#"{"query":"a","context":{"tags":"x"}}"#), "object"),
        ] {
            let error = RecommendArguments::read(arguments).unwrap_err();
            assert!(error.as_str().contains(named), "{arguments:?}: {error:?}");
        }
        let all = r#"{"query":"a","limit":3,"context":{"languages":["rust"]},"more":1}"#;
        assert_eq!(
            RecommendArguments::read(Some(all)).unwrap().limit(),
            Ok(Some(3))
        );
        let whole = r#"{"query":"a","limit":5.0}"#;
        assert_eq!(
            RecommendArguments::read(Some(whole)).unwrap().limit(),
            Ok(Some(5))
        );
    }
}
