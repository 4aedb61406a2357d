//! Escalation of a search beyond its ranking: the subsections `search.notes`, `search.expansion`
//! and `search.rerank`.

use std::time::Duration;

use riglm_adapters_prediction::chat::ChatConfig;
use riglm_discovery::search::{ModelLimits, Note, NoteRules};
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::{BriefCatalog, CURATED_WEIGHT, ExpansionRules};
use serde::Deserialize;
use validator::{Validate, ValidationError};

const MAX_NOTES: usize = 1_000;
/// The longest text of a note, in characters.
const MAX_NOTE_CHARS: usize = 4_000;
/// The largest number of patterns of a note.
const MAX_PATTERNS: usize = 100;
/// The longest timeout for a language model.
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

/// An entry of `search.notes.entries`: a note of an operator about tools.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct NoteConfig {
    /// The tools, by patterns of their names.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<String>,
    /// The purpose of the tools, in words that a query for them would use.
    #[validate(custom(function = "check_text"))]
    pub text: String,
}

/// The subsection `search.notes`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_number"))]
pub struct NotesConfig {
    /// The weight of a match with a note; a match with the text of a tool has weight 1.
    #[validate(custom(function = "super::check_weight"))]
    pub weight: f64,
    /// Whether pinned tools count like tools with a note.
    pub pins: bool,
    /// The notes.
    #[validate(nested)]
    pub entries: Vec<NoteConfig>,
}

impl Default for NotesConfig {
    fn default() -> Self {
        Self {
            weight: CURATED_WEIGHT,
            pins: true,
            entries: Vec::new(),
        }
    }
}

impl NotesConfig {
    /// Returns the configured rules.
    #[must_use]
    pub fn rules(&self) -> NoteRules {
        let note = |note: &NoteConfig| Note {
            tools: note.tools.iter().map(|it| NamePattern::new(it)).collect(),
            text: note.text.trim().to_owned(),
        };
        NoteRules {
            weight: self.weight,
            pins: self.pins,
            notes: self.entries.iter().map(note).collect(),
        }
    }
}

/// The subsection `search.expansion`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ExpansionConfig {
    /// Whether the query of a search with an answer of low quality is expanded.
    pub enabled: bool,
    /// The number of alternative queries.
    #[validate(range(max = 3, message = "expected a number from 0 to 3"))]
    pub n_variants: u32,
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
            n_variants: u32::try_from(rules.n_variants).unwrap_or(0),
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
        (self.enabled && self.n_variants > 0 && has_source).then(|| ExpansionRules {
            n_variants: usize::try_from(self.n_variants).unwrap_or(0),
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
    pub max_tools: u32,
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
            max_tools: u32::try_from(BriefCatalog::MAX_TOOLS).unwrap_or(0),
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

fn check_number(config: &NotesConfig) -> Result<(), ValidationError> {
    if config.entries.len() > MAX_NOTES {
        let message = format!("expected at most {MAX_NOTES} notes");
        return Err(ValidationError::new("length").with_message(message.into()));
    }
    Ok(())
}

fn check_patterns(patterns: &[String]) -> Result<(), ValidationError> {
    let is_empty = patterns.iter().any(String::is_empty);
    if is_empty || !(1..=MAX_PATTERNS).contains(&patterns.len()) {
        let message = format!("expected 1 to {MAX_PATTERNS} names or patterns of tools");
        return Err(ValidationError::new("length").with_message(message.into()));
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), ValidationError> {
    if text.trim().is_empty() || text.chars().count() > MAX_NOTE_CHARS {
        let message = format!("expected a text of 1 to {MAX_NOTE_CHARS} characters");
        return Err(ValidationError::new("length").with_message(message.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn what_cannot_work_is_refused_and_named() {
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
        let text = "x".repeat(MAX_NOTE_CHARS);
        let note = |text: &str| format!(r#"{{"entries":[{{"tools":["a*"],"text":"{text}"}}]}}"#);
        assert_eq!(error_text::<NotesConfig>(&note(&text)), "");
        assert!(error_text::<NotesConfig>(&note(&format!("{text}x"))).contains("4000"));
    }

    #[test]
    fn nothing_is_tried_where_that_is_switched_off_or_there_is_no_source() {
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
