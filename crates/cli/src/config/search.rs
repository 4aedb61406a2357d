//! The configuration section `search`.

mod escalation;

use std::path::PathBuf;

use riglm_adapters_prediction::encoder::EncoderConfig;
use riglm_discovery::search::{
    AnswerRules, FusionMethod, NotesConfig, RankFusionConfig, SearchRules,
};
use riglm_domain::id::check_own_tool_name;
use riglm_domain::num::check_share;
use riglm_domain::retrieval::{QualityRules, RankingRules, SearchWeights, Synonyms};
use serde::Deserialize;
use validator::{Validate, ValidationError};

pub use self::escalation::{ExpansionConfig, RerankBy, RerankConfig};
use super::ConfigError;

/// The configuration section `search`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_tool_names"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent keys of a file"
)]
pub struct SearchConfig {
    /// Whether filtered lists contain the search tool. Without it, riglm has no other tools of its
    /// own either.
    pub enabled: bool,
    /// The name of the search tool.
    #[validate(custom(function = "check_own_tool_name"))]
    pub tool_name: String,
    /// Whether there is a tool that calls other tools.
    pub call_tool: bool,
    /// The name of the tool that calls other tools.
    #[validate(custom(function = "check_own_tool_name"))]
    pub call_tool_name: String,
    /// Whether there is a tool with which clients declare a context.
    pub set_context: bool,
    /// The name of the tool for contexts.
    #[validate(custom(function = "check_own_tool_name"))]
    pub set_context_name: String,
    /// Whether clients that show apps get a tool that shows the session in one.
    pub show_session: bool,
    /// The name of the tool that shows the session.
    #[validate(custom(function = "check_own_tool_name"))]
    pub show_session_name: String,
    /// The token budget of an answer.
    #[validate(range(
        min = 100,
        max = 100_000,
        message = "expected a number from 100 to 100000"
    ))]
    pub token_budget: u64,
    /// The number of predicted next tools in an answer, in addition to the found ones.
    #[validate(range(max = 50, message = "expected a number from 0 to 50"))]
    pub n_predicted: usize,
    /// The fusion of the parts of a score.
    pub fusion: FusionMethod,
    /// A file of synonyms, in addition to those that come with riglm: one group of words per line.
    pub synonyms: Option<PathBuf>,
    /// The half-life of a remembered text, in days.
    #[validate(range(min = 1, max = 3_650, message = "expected a number from 1 to 3650"))]
    pub half_life_days: u32,
    /// The threshold of probability: if no tool is right with at least this probability, the answer
    /// says that no tool matches.
    #[validate(custom(function = "check_share"))]
    pub min_fit: f64,
    /// The encoder, which turns texts into vectors.
    #[validate(nested)]
    pub encoder: EncoderConfig,
    /// The weights of the parts of a score.
    #[validate(nested)]
    pub weights: SearchWeights,
    /// The weights of `fusion = "rrf"`.
    #[validate(nested)]
    pub rrf: RankFusionConfig,
    /// The grading of answers.
    #[validate(nested)]
    pub quality: QualityRules,
    /// The notes of operators about tools.
    #[validate(nested)]
    pub notes: NotesConfig,
    /// The expansion of queries.
    #[validate(nested)]
    pub expansion: ExpansionConfig,
    /// The reranking of results.
    #[validate(nested)]
    pub rerank: RerankConfig,
}

impl Default for SearchConfig {
    fn default() -> Self {
        let rules = SearchRules::default();
        Self {
            enabled: true,
            tool_name: "search_available_tools".into(),
            call_tool: true,
            call_tool_name: "call_tool".into(),
            set_context: true,
            set_context_name: "set_context".into(),
            show_session: false,
            show_session_name: "show_session".into(),
            token_budget: rules.answer.token_budget,
            n_predicted: 9,
            fusion: FusionMethod::default(),
            synonyms: None,
            half_life_days: 30,
            min_fit: rules.min_fit,
            encoder: EncoderConfig::default(),
            weights: SearchWeights::default(),
            rrf: RankFusionConfig::default(),
            quality: QualityRules::default(),
            notes: NotesConfig::default(),
            expansion: ExpansionConfig::default(),
            rerank: RerankConfig::default(),
        }
    }
}

impl SearchConfig {
    /// Returns the configured rules; reads the file of synonyms.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] with the file name if the file of synonyms cannot be read.
    pub fn rules(&self) -> Result<SearchRules, ConfigError> {
        Ok(SearchRules {
            ranking: RankingRules {
                rank_fusion: (self.fusion == FusionMethod::Rrf).then(|| self.rrf.fusion()),
                weights: self.weights.clone(),
                half_life_days: self.half_life_days.into(),
            },
            quality: self.quality.clone(),
            answer: AnswerRules {
                token_budget: self.token_budget,
                n_predicted: self.n_predicted,
                call_tool: self.call_tool.then(|| self.call_tool_name.clone()),
                ..AnswerRules::default()
            },
            synonyms: self.all_synonyms()?,
            encoder_deadline: self.encoder.timeout,
            min_fit: self.min_fit,
        })
    }

    fn all_synonyms(&self) -> Result<Synonyms, ConfigError> {
        let shipped = Synonyms::built_in();
        let Some(path) = &self.synonyms else {
            return Ok(shipped);
        };
        let refused = |reason: String| ConfigError::Synonyms {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        shipped
            .with(&text)
            .map_err(|error| refused(error.to_string()))
    }
}

fn check_tool_names(config: &SearchConfig) -> Result<(), ValidationError> {
    let names = [
        ("tool_name", true, &config.tool_name),
        ("call_tool_name", config.call_tool, &config.call_tool_name),
        (
            "set_context_name",
            config.set_context,
            &config.set_context_name,
        ),
        (
            "show_session_name",
            config.show_session,
            &config.show_session_name,
        ),
    ];
    for (at, (key, is_there, name)) in names.iter().enumerate() {
        let mut before = names[..at].iter();
        let same = before.find(|(_, is_other_there, other)| *is_other_there && other == name);
        if let (true, Some((other, ..))) = (*is_there, same) {
            let message = format!("{other} and {key} must not both be {name}");
            return Err(ValidationError::new("tool_names").with_message(message.into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> SearchConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn configured_fusion_and_weights_reach_the_ranking() {
        let rules = |json: &str| config(json).rules().unwrap().ranking;
        assert_eq!(rules("{}"), RankingRules::default());
        let fused = rules(r#"{"fusion":"rrf","rrf":{"k":10},"half_life_days":7}"#);
        assert_eq!(fused.rank_fusion.map(|fusion| fusion.k), Some(10.0));
        assert!((fused.half_life_days - 7.0).abs() < f64::EPSILON);
        let weighted = rules(r#"{"weights":{"memory":0.0}}"#);
        assert!(weighted.weights.memory.abs() < f64::EPSILON);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (wrong, said) in [
            (r#"{"weights":{"meaning":-1}}"#, "from 0 to 10"),
            (r#"{"quality":{"top":0.9}}"#, "add up to 1"),
            (r#"{"quality":{"low":0.9}}"#, "must not be greater"),
            (r#"{"min_fit":1.5}"#, "from 0 to 1"),
            (r#"{"tool_name":"a b"}"#, "letters"),
            (r#"{"call_tool_name":""}"#, "letters"),
            (
                r#"{"tool_name":"x","set_context_name":"x"}"#,
                "tool_name and set_context_name must not both be x",
            ),
            (
                r#"{"show_session":true,"show_session_name":"call_tool"}"#,
                "call_tool_name and show_session_name must not both be call_tool",
            ),
            (r#"{"show_session_name":"a b"}"#, "letters"),
            (r#"{"token_budget":5}"#, "from 100"),
            (r#"{"n_predicted":51}"#, "from 0 to 50"),
        ] {
            let error = config(wrong).validate().unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        let unused = r#"{"tool_name":"x","call_tool":false,"call_tool_name":"x"}"#;
        assert!(config(unused).validate().is_ok());
        assert!(config("{}").validate().is_ok());
    }

    #[test]
    fn a_bad_file_of_synonyms_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one two\nalone\n").unwrap();
        let mut section = SearchConfig {
            synonyms: Some(file.path().to_owned()),
            ..SearchConfig::default()
        };
        let error = section.rules().unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        section.synonyms = Some("/nowhere/s.txt".into());
        let error = section.rules().unwrap_err().to_string();
        assert!(error.contains("/nowhere/s.txt"), "{error}");
    }
}
