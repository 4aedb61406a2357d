//! The configuration section `recommend`: recommendations of tools for a task in words.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use riglm_domain::id::check_own_tool_name;
use riglm_domain::prediction::NamePattern;
use riglm_domain::recommendation::FactorWeights;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use crate::experiments::ExperimentConfig;
use crate::weight_tuning::WeightTuningConfig;

/// The section `recommend`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_section"))]
pub struct RecommendConfig {
    /// Whether recommendations are on.
    pub enabled: bool,
    /// Whether lists contain the tools for recommendations, if lists contain riglm's own tools.
    pub tools: bool,
    /// The name of the tool that recommends tools.
    #[validate(custom(function = "check_own_tool_name"))]
    pub tool_name: String,
    /// The name of the tool for ratings by clients.
    #[validate(custom(function = "check_own_tool_name"))]
    pub rate_tool_name: String,
    /// The default number of recommended tools.
    #[validate(range(min = 1, max = 50, message = "expected a number from 1 to 50"))]
    pub limit: usize,
    /// The number of ranked candidates.
    #[validate(range(min = 1, max = 200, message = "expected a number from 1 to 200"))]
    pub candidates: usize,
    /// The half-life of a use of a tool, in days.
    #[validate(range(min = 1, max = 3_650, message = "expected a number from 1 to 3650"))]
    pub half_life_days: u32,
    /// The lifetime of cached rankings; 0 switches the cache off.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_ttl"))]
    pub cache_ttl: Duration,
    /// A lexicon file, in addition to the words that come with riglm.
    pub lexicon: Option<PathBuf>,
    /// The tags of tools that are only for some projects, by patterns of tool names.
    pub tags: BTreeMap<NamePattern, Vec<String>>,
    /// The weights of the factors, which win over tuned ones.
    pub weights: Option<FactorWeights>,
    /// The tuning of the weights while riglm runs.
    #[validate(nested)]
    pub tuning: WeightTuningConfig,
    /// The A/B experiments, by name.
    pub experiments: BTreeMap<String, ExperimentConfig>,
}

impl Default for RecommendConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            tools: false,
            tool_name: "recommend_tools".into(),
            rate_tool_name: "rate_tool".into(),
            limit: 10,
            candidates: 20,
            half_life_days: 30,
            cache_ttl: Duration::from_hours(1),
            lexicon: None,
            tags: BTreeMap::new(),
            weights: None,
            tuning: WeightTuningConfig::default(),
            experiments: BTreeMap::new(),
        }
    }
}

fn check_ttl(ttl: &Duration) -> Result<(), ValidationError> {
    if *ttl <= Duration::from_hours(24) {
        return Ok(());
    }
    let message = "expected at most 24h, because cached rankings ignore newer calls";
    Err(ValidationError::new("ttl").with_message(message.into()))
}

fn check_section(config: &RecommendConfig) -> Result<(), ValidationError> {
    let refused =
        |message: String| Err(ValidationError::new("recommend").with_message(message.into()));
    if config.tool_name == config.rate_tool_name {
        let name = &config.tool_name;
        return refused(format!(
            "tool_name and rate_tool_name must not both be {name}"
        ));
    }
    if config.candidates < config.limit {
        return refused(format!(
            "candidates ({}) must not be less than limit ({})",
            config.candidates, config.limit
        ));
    }
    for (tools, tags) in &config.tags {
        let is_tag = |tag: &String| !tag.trim().is_empty() && tag.chars().count() <= 64;
        if tags.is_empty() || !tags.iter().all(is_tag) {
            return refused(format!(
                "tags.{:?} must be a list of tags of 1 to 64 characters",
                tools.as_str()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_configuration_is_refused() {
        for (wrong, said) in [
            (r#"{"tool_name":"rate_tool"}"#, "both be rate_tool"),
            (r#"{"rate_tool_name":"a b"}"#, "letters"),
            (r#"{"limit":0}"#, "from 1 to 50"),
            (r#"{"limit":30}"#, "must not be less than limit"),
            (r#"{"candidates":201}"#, "from 1 to 200"),
            (r#"{"half_life_days":0}"#, "from 1 to 3650"),
            (r#"{"cache_ttl":"25h"}"#, "at most 24h"),
            (r#"{"tags":{"py*":[]}}"#, "py*"),
            (r#"{"tags":{"py*":[" "]}}"#, "py*"),
        ] {
            let config: RecommendConfig = serde_json::from_str(wrong).unwrap();
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        assert!(RecommendConfig::default().validate().is_ok());
    }
}
