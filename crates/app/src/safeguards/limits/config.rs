//! The configuration subsection `safeguards.limits`: rate limits of tools.

use std::time::Duration;

use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguards::limiter::{LimitScope, Rate, RateError};
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The largest number of rules. Each call is compared with each rule.
const MAX_RULES: usize = 100;
/// The largest number of patterns of one rule.
const MAX_PATTERNS: usize = 100;
/// The longest pattern, in characters.
const MAX_PATTERN_CHARS: usize = 128;

/// The subsection `safeguards.limits`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_section"))]
pub struct CallLimitsConfig {
    /// The largest number of concurrent calls to one upstream.
    #[validate(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<usize>,
    /// The largest number of calls of a work session until it declares a new context.
    #[validate(range(min = 1, max = 1_000))]
    pub max_calls_per_context: Option<usize>,
    /// Limits of certain tools.
    #[validate(nested)]
    pub rules: Vec<LimitRule>,
}

/// A limit that some tools share.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_rule"))]
pub struct LimitRule {
    /// The patterns of the tools. They are compared with the name at the upstream, with this name
    /// after the namespace of the upstream, and with the name that the client sees.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<NamePattern>,
    /// The largest number of calls within `per`.
    #[validate(range(min = 1, max = 1_000))]
    pub calls: Option<u32>,
    /// The length of the window in which calls are counted.
    #[serde(default, with = "humantime_serde")]
    #[validate(custom(function = "check_per"))]
    pub per: Option<Duration>,
    /// The scope of the limit: the calls that are counted together.
    #[serde(default)]
    pub scope: LimitScope,
    /// The largest number of concurrent calls of these tools.
    #[validate(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<usize>,
}

impl CallLimitsConfig {
    /// Returns whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rules.is_empty()
            && self.max_concurrent.is_none()
            && self.max_calls_per_context.is_none()
    }
}

impl LimitRule {
    /// Returns the rate limit, if the rule has one.
    pub(super) fn rate(&self) -> Option<Rate> {
        let rate = self.calls.zip(self.per);
        // An invalid rate was refused when the section was read.
        rate.and_then(|(calls, per)| Rate::new(calls, per).ok())
    }
}

fn validation_error(message: String) -> ValidationError {
    ValidationError::new("limits").with_message(message.into())
}

fn check_section(config: &CallLimitsConfig) -> Result<(), ValidationError> {
    if config.rules.len() <= MAX_RULES {
        return Ok(());
    }
    let message = format!("expected at most {MAX_RULES} rules");
    Err(validation_error(message))
}

fn check_rule(rule: &LimitRule) -> Result<(), ValidationError> {
    let message = match (rule.calls, rule.per, rule.max_concurrent) {
        (Some(_), None, _) => "calls needs per, such as per = \"1m\"",
        (None, Some(_), _) => "per needs calls",
        (None, None, None) => "expected calls and per, or max_concurrent, or all of them",
        _ => return Ok(()),
    };
    Err(validation_error(message.into()))
}

fn check_patterns(patterns: &[NamePattern]) -> Result<(), ValidationError> {
    let is_fine = |pattern: &NamePattern| {
        let text = pattern.as_str();
        !text.trim().is_empty() && text.chars().count() <= MAX_PATTERN_CHARS
    };
    let is_few = (1..=MAX_PATTERNS).contains(&patterns.len());
    if is_few && patterns.iter().all(is_fine) {
        return Ok(());
    }
    Err(validation_error(format!(
        "expected 1 to {MAX_PATTERNS} patterns of 1 to {MAX_PATTERN_CHARS} characters"
    )))
}

fn check_per(per: &Duration) -> Result<(), ValidationError> {
    match Rate::new(1, *per) {
        Err(error @ RateError::Period) => Err(validation_error(error.to_string())),
        Ok(_) | Err(RateError::Calls) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CallLimitsConfig, String> {
        let config: CallLimitsConfig =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let validated = config.validate().map_err(|errors| errors.to_string());
        validated.map(|()| config)
    }

    #[test]
    fn limits_at_their_bounds_are_taken() {
        let config = read(
            r#"{"max_concurrent":10000,"max_calls_per_context":1000,"rules":[
                {"tools":["*search*"],"calls":1000,"per":"1s"},
                {"tools":["x"],"calls":1,"per":"1day","scope":"global","max_concurrent":1}]}"#,
        );
        let config = config.unwrap();
        assert_eq!(config.max_concurrent, Some(10_000));
        assert_eq!(config.max_calls_per_context, Some(1_000));
        let second = Duration::from_secs(1);
        assert_eq!(config.rules[0].rate(), Rate::new(1_000, second).ok());
        assert_eq!(config.rules[0].scope, LimitScope::Session);
        assert_eq!(config.rules[1].max_concurrent, Some(1));
        assert_eq!(config.rules[1].scope, LimitScope::Global);
        assert!(!config.is_none());
        assert!(CallLimitsConfig::default().is_none());
    }
}
