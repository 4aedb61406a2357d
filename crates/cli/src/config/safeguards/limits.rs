//! The configuration subsection `safeguards.limits`: how often tools may be called.

use std::time::Duration;

use riglm_app::safeguards::{LimitOptions, LimitRule};
use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguard::limiter::{LimitScope, Rate, RateError};
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The most rules: each is compared with each call.
const MAX_RULES: usize = 100;
/// The most patterns of one rule.
const MAX_PATTERNS: usize = 100;
/// The longest pattern, in characters.
const MAX_PATTERN_CHARS: usize = 128;

/// The subsection `safeguards.limits`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_section"))]
pub struct CallLimitsConfig {
    /// How many calls of the tools of one upstream may run at the same time.
    #[validate(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<u32>,
    /// How many calls a work session may make before it says anew what is being done.
    #[validate(range(min = 1, max = 1_000))]
    pub max_calls_per_context: Option<u32>,
    /// The limits of some tools.
    #[validate(nested)]
    pub rules: Vec<LimitRuleConfig>,
}

/// A limit that some tools share.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_rule"))]
pub struct LimitRuleConfig {
    /// The tools, by patterns of their names.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<String>,
    /// How many calls of them may be made in `per`.
    #[validate(range(min = 1, max = 1_000))]
    pub calls: Option<u32>,
    /// The length of the window in which they are counted.
    #[serde(default, with = "humantime_serde")]
    #[validate(custom(function = "check_per"))]
    pub per: Option<Duration>,
    /// Who shares the limit.
    #[serde(default)]
    pub scope: LimitScope,
    /// How many calls of them may run at the same time.
    #[validate(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<u32>,
}

impl CallLimitsConfig {
    /// Returns the limits, of which the names of the proxy's own tools are left to be filled in but for
    /// `context_tools`, by which clients say what is being done.
    #[must_use]
    pub fn options(&self, context_tools: Vec<String>) -> LimitOptions {
        let at_most = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        LimitOptions {
            rules: self.rules.iter().map(LimitRuleConfig::rule).collect(),
            max_concurrent: self.max_concurrent.map(at_most),
            max_calls_per_context: self.max_calls_per_context.map(at_most),
            context_tools,
            own_tools: Vec::new(),
        }
    }
}

impl LimitRuleConfig {
    fn rule(&self) -> LimitRule {
        let tools = self.tools.iter().map(|text| NamePattern::new(text));
        let rate = self.calls.zip(self.per);
        LimitRule {
            tools: tools.collect(),
            // What is no rate was refused when the section was read.
            rate: rate.and_then(|(calls, per)| Rate::new(calls, per).ok()),
            max_concurrent: (self.max_concurrent).map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            scope: self.scope,
        }
    }
}

fn refused(message: String) -> ValidationError {
    ValidationError::new("limits").with_message(message.into())
}

fn check_section(config: &CallLimitsConfig) -> Result<(), ValidationError> {
    if config.rules.len() <= MAX_RULES {
        return Ok(());
    }
    Err(refused(format!("expected at most {MAX_RULES} rules")))
}

fn check_rule(rule: &LimitRuleConfig) -> Result<(), ValidationError> {
    match (rule.calls, rule.per, rule.max_concurrent) {
        (Some(_), None, _) => Err(refused("calls needs per, such as per = \"1m\"".into())),
        (None, Some(_), _) => Err(refused("per needs calls".into())),
        (None, None, None) => Err(refused(
            "expected calls and per, or max_concurrent, or all of them".into(),
        )),
        _ => Ok(()),
    }
}

fn check_patterns(patterns: &[String]) -> Result<(), ValidationError> {
    let is_fine = |pattern: &String| {
        !pattern.trim().is_empty() && pattern.chars().count() <= MAX_PATTERN_CHARS
    };
    let is_few = (1..=MAX_PATTERNS).contains(&patterns.len());
    if is_few && patterns.iter().all(is_fine) {
        return Ok(());
    }
    Err(refused(format!(
        "expected 1 to {MAX_PATTERNS} patterns of 1 to {MAX_PATTERN_CHARS} characters"
    )))
}

fn check_per(per: &Duration) -> Result<(), ValidationError> {
    match Rate::new(1, *per) {
        Err(error @ RateError::Period) => Err(refused(error.to_string())),
        Ok(_) | Err(RateError::Calls) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::validation::first_refusal;

    fn read(text: &str) -> Result<CallLimitsConfig, String> {
        let config: CallLimitsConfig =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        match config.validate() {
            Ok(()) => Ok(config),
            Err(errors) => {
                let refusal = first_refusal(&errors).unwrap();
                Err(format!("{}: {}", refusal.key, refusal.reason))
            }
        }
    }

    #[test]
    fn zero_negative_and_absurd_limits_are_refused_by_their_keys() {
        for (wrong, said) in [
            (
                r#"{"max_concurrent":0}"#,
                "max_concurrent: expected a value from 1 to 10000",
            ),
            (r#"{"max_concurrent":10001}"#, "max_concurrent: "),
            (r#"{"max_concurrent":-1}"#, "-1"),
            (r#"{"max_calls_per_context":0}"#, "max_calls_per_context: "),
            (
                r#"{"max_calls_per_context":1001}"#,
                "max_calls_per_context: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":0,"per":"1m"}]}"#,
                "rules[0].calls: expected a value from 1 to 1000",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1001,"per":"1m"}]}"#,
                "rules[0].calls: ",
            ),
            (r#"{"rules":[{"tools":["a"],"calls":-5,"per":"1m"}]}"#, "-5"),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"999ms"}]}"#,
                "rules[0].per: expected a period from 1s to 1day",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"25h"}]}"#,
                "rules[0].per: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1}]}"#,
                "rules[0]: calls needs per",
            ),
            (
                r#"{"rules":[{"tools":["a"],"per":"1m"}]}"#,
                "rules[0]: per needs calls",
            ),
            (
                r#"{"rules":[{"tools":["a"]}]}"#,
                "rules[0]: expected calls and per",
            ),
            (
                r#"{"rules":[{"tools":[],"max_concurrent":1}]}"#,
                "rules[0].tools: ",
            ),
            (
                r#"{"rules":[{"tools":[" "],"max_concurrent":1}]}"#,
                "rules[0].tools: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"max_concurrent":0}]}"#,
                "rules[0].max_concurrent: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"1m","scope":"all"}]}"#,
                "all",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn limits_at_their_bounds_are_taken() {
        let config = read(
            r#"{"max_concurrent":10000,"max_calls_per_context":1000,"rules":[
                {"tools":["*search*"],"calls":1000,"per":"1s"},
                {"tools":["x"],"calls":1,"per":"1day","scope":"global","max_concurrent":1}]}"#,
        );
        let options = config.unwrap().options(vec!["search_tools".into()]);
        assert_eq!(options.max_concurrent, Some(10_000));
        assert_eq!(options.max_calls_per_context, Some(1_000));
        let second = Duration::from_secs(1);
        assert_eq!(options.rules[0].rate, Rate::new(1_000, second).ok());
        assert_eq!(options.rules[0].scope, LimitScope::Session);
        assert_eq!(options.rules[1].max_concurrent, Some(1));
        assert_eq!(options.rules[1].scope, LimitScope::Global);
        assert!(!options.is_none());
        assert!(CallLimitsConfig::default().options(Vec::new()).is_none());
    }
}
