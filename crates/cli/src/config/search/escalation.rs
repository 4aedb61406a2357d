//! Language models in a search: the subsections `search.expansion` and `search.rerank`. They name
//! an endpoint, which the search does not know.

use std::time::Duration;

use riglm_adapters_prediction::chat::ChatConfig;
use riglm_discovery::search::ModelLimits;
use riglm_domain::retrieval::{BriefCatalog, ExpansionRules};
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The longest timeout for a language model.
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

/// The subsection `search.expansion`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ExpansionConfig {
    /// Whether the query of a search with an answer of low quality is expanded.
    pub enabled: bool,
    /// The number of alternative queries.
    #[validate(range(max = 3, message = "expected a number from 0 to 3"))]
    pub n_variants: usize,
    /// Whether words are replaced by synonyms.
    pub synonyms: bool,
    /// Whether earlier queries of the same principal that led to successful calls are tried.
    pub history: bool,
    /// The timeout of the language model.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_timeout"))]
    pub timeout: Duration,
    /// The rate limit of requests of all searches to the language model, per minute.
    #[validate(range(min = 1, max = 6_000, message = "expected a number from 1 to 6000"))]
    pub max_requests_per_minute: u32,
    /// The language model, if one is used.
    #[validate(nested)]
    pub endpoint: Option<ChatConfig>,
}

impl Default for ExpansionConfig {
    fn default() -> Self {
        let rules = ExpansionRules::default();
        let limits = ModelLimits::default();
        Self {
            enabled: true,
            n_variants: rules.n_variants,
            synonyms: rules.synonyms,
            history: rules.history,
            timeout: limits.deadline,
            max_requests_per_minute: limits.max_per_minute,
            endpoint: None,
        }
    }
}

impl ExpansionConfig {
    /// Returns the configured rules; `None` if expansion is off or has no source.
    #[must_use]
    pub fn rules(&self) -> Option<ExpansionRules> {
        let has_source = self.synonyms || self.history || self.endpoint.is_some();
        let is_on = self.enabled && self.n_variants > 0 && has_source;
        is_on.then_some(ExpansionRules {
            n_variants: self.n_variants,
            synonyms: self.synonyms,
            history: self.history,
        })
    }

    /// Returns the limits on requests to the language model.
    #[must_use]
    pub fn limits(&self) -> ModelLimits {
        ModelLimits {
            deadline: self.timeout,
            max_per_minute: self.max_requests_per_minute,
        }
    }
}

/// The reranker of search results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RerankBy {
    /// No reranking.
    #[default]
    None,
    /// A language model with a chat endpoint.
    Endpoint,
    /// The model of the client, if the client supports sampling.
    Client,
}

/// The subsection `search.rerank`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_rerank"))]
pub struct RerankConfig {
    /// The reranker.
    pub by: RerankBy,
    /// The number of tools that are reranked.
    #[validate(range(min = 2, max = 30, message = "expected a number from 2 to 30"))]
    pub max_tools: usize,
    /// The timeout of the reranker.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_timeout"))]
    pub timeout: Duration,
    /// The rate limit per minute: of all searches for the endpoint, of a session for its client.
    #[validate(range(min = 1, max = 6_000, message = "expected a number from 1 to 6000"))]
    pub max_requests_per_minute: u32,
    /// The language model of `by = "endpoint"`.
    #[validate(nested)]
    pub endpoint: Option<ChatConfig>,
}

impl Default for RerankConfig {
    fn default() -> Self {
        let limits = ModelLimits::default();
        Self {
            by: RerankBy::default(),
            max_tools: BriefCatalog::MAX_TOOLS,
            timeout: limits.deadline,
            max_requests_per_minute: limits.max_per_minute,
            endpoint: None,
        }
    }
}

impl RerankConfig {
    /// Returns the limits on requests to the model.
    #[must_use]
    pub fn limits(&self) -> ModelLimits {
        ModelLimits {
            deadline: self.timeout,
            max_per_minute: self.max_requests_per_minute,
        }
    }
}

fn check_rerank(config: &RerankConfig) -> Result<(), ValidationError> {
    if config.by == RerankBy::Endpoint && config.endpoint.is_none() {
        let message = "by is endpoint, and search.rerank.endpoint is missing";
        return Err(ValidationError::new("endpoint").with_message(message.into()));
    }
    Ok(())
}

fn check_timeout(timeout: &Duration) -> Result<(), ValidationError> {
    if timeout.is_zero() || *timeout > MAX_TIMEOUT {
        let message = "expected a time from 1ms to 1m";
        return Err(ValidationError::new("range").with_message(message.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riglm_discovery::search::NotesConfig;

    use super::*;

    fn error_text<T: Validate + serde::de::DeserializeOwned>(json: &str) -> String {
        let section: T = match serde_json::from_str(json) {
            Ok(section) => section,
            Err(error) => return error.to_string(),
        };
        section
            .validate()
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn invalid_escalation_settings_are_refused_with_the_reason() {
        for (json, reason) in [
            (r#"{"entries":[{"tools":[],"text":"x"}]}"#, "1 to 100 names"),
            (
                r#"{"entries":[{"tools":[""],"text":"x"}]}"#,
                "1 to 100 names",
            ),
            (
                r#"{"entries":[{"tools":["x"],"text":" "}]}"#,
                "1 to 4000 characters",
            ),
            (r#"{"weight":11}"#, "from 0 to 10"),
            (r#"{"entry":[]}"#, "unknown field"),
        ] {
            assert!(error_text::<NotesConfig>(json).contains(reason), "{json}");
        }
        for (json, reason) in [
            (r#"{"n_variants":4}"#, "from 0 to 3"),
            (r#"{"timeout":"0s"}"#, "from 1ms to 1m"),
            (r#"{"timeout":"61s"}"#, "from 1ms to 1m"),
            (r#"{"max_requests_per_minute":0}"#, "from 1 to 6000"),
            (r#"{"max_requests_per_minute":6001}"#, "from 1 to 6000"),
            (r#"{"endpoint":{"url":"http://h/v1"}}"#, "model"),
        ] {
            assert!(
                error_text::<ExpansionConfig>(json).contains(reason),
                "{json}"
            );
        }
        for (json, reason) in [
            (r#"{"by":"endpoint"}"#, "search.rerank.endpoint is missing"),
            (r#"{"by":"somebody"}"#, "unknown variant"),
            (r#"{"max_tools":1}"#, "from 2 to 30"),
            (r#"{"max_tools":31}"#, "from 2 to 30"),
            (r#"{"timeout":"0s"}"#, "from 1ms to 1m"),
        ] {
            assert!(error_text::<RerankConfig>(json).contains(reason), "{json}");
        }
        for json in ["{}", r#"{"timeout":"1m"}"#] {
            assert_eq!(error_text::<RerankConfig>(json), "");
            assert_eq!(error_text::<ExpansionConfig>(json), "");
        }
        let text = "x".repeat(4_000);
        let note = |text: &str| format!(r#"{{"entries":[{{"tools":["a*"],"text":"{text}"}}]}}"#);
        assert_eq!(error_text::<NotesConfig>(&note(&text)), "");
        assert!(error_text::<NotesConfig>(&note(&format!("{text}x"))).contains("4000"));
    }

    #[test]
    fn expansion_needs_a_source_and_can_be_disabled() {
        let rules = |json: &str| {
            serde_json::from_str::<ExpansionConfig>(json)
                .unwrap()
                .rules()
        };
        assert_eq!(rules("{}"), Some(ExpansionRules::default()));
        assert_eq!(rules(r#"{"enabled":false}"#), None);
        assert_eq!(rules(r#"{"n_variants":0}"#), None);
        assert_eq!(rules(r#"{"synonyms":false,"history":false}"#), None);
    }
}
