//! The `work_sessions` section of the configuration.

use std::time::Duration;

use riglm_domain::work_session::IdleGap;
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// How work sessions are told apart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "gaps_are_ordered"))]
pub struct WorkSessionsConfig {
    /// Whether they are: otherwise what comes over one connection belongs together.
    pub enabled: bool,
    /// The silence that a work session survives however short it was.
    #[serde(with = "humantime_serde")]
    pub idle_gap_min: Duration,
    /// The silence that no work session survives however long it was.
    #[serde(with = "humantime_serde")]
    pub idle_gap_max: Duration,
}

impl WorkSessionsConfig {
    /// Returns how long a work session may be silent.
    #[must_use]
    pub fn idle_gap(&self) -> IdleGap {
        IdleGap::new(self.idle_gap_min, self.idle_gap_max)
    }
}

impl Default for WorkSessionsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            idle_gap_min: IdleGap::LEAST,
            idle_gap_max: IdleGap::MOST,
        }
    }
}

fn gaps_are_ordered(config: &WorkSessionsConfig) -> Result<(), ValidationError> {
    if config.idle_gap_min <= config.idle_gap_max {
        return Ok(());
    }
    Err(ValidationError::new("order")
        .with_message("idle_gap_min must not be longer than idle_gap_max".into()))
}
