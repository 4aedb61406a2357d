//! The subsection `safeguards.result_cache`.

use std::time::Duration;

use riglm_app::safeguards::RepeatedOptions;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::{check_patterns, patterns};

/// The longest lifetime of a cached result.
const MAX_TTL: Duration = Duration::from_hours(24);

/// The subsection `safeguards.result_cache`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ResultCacheConfig {
    /// Whether a call that repeats an earlier one of its work session gets the cached result.
    pub enabled: bool,
    /// The lifetime of a cached result.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_ttl"))]
    pub ttl: Duration,
    /// Read-only tools with repeatable results, in addition to those that are annotated as such.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<String>,
}

impl Default for ResultCacheConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            ttl: Duration::from_mins(5),
            tools: Vec::new(),
        }
    }
}

impl ResultCacheConfig {
    pub(super) fn options(&self) -> Option<RepeatedOptions> {
        self.enabled.then(|| RepeatedOptions {
            keep: self.ttl,
            tools: patterns(&self.tools),
        })
    }
}

fn check_ttl(ttl: &Duration) -> Result<(), ValidationError> {
    if (Duration::from_secs(1)..=MAX_TTL).contains(ttl) {
        return Ok(());
    }
    Err(ValidationError::new("range").with_message("expected a time from 1s to 24h".into()))
}
