//! The `work_sessions` section of the configuration.

use std::time::Duration;

use riglm_domain::usage::work_session::IdleGap;
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// Options for the detection of work sessions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "gaps_are_ordered"))]
pub struct WorkSessionsConfig {
    /// Whether work sessions are detected. If not, each connection counts as one.
    pub enabled: bool,
    /// The pause that even a very short work session survives.
    #[serde(with = "humantime_serde")]
    pub idle_gap_min: Duration,
    /// The pause that ends even a very long work session.
    #[serde(with = "humantime_serde")]
    pub idle_gap_max: Duration,
}

impl WorkSessionsConfig {
    /// Returns the limits of the pause in a work session.
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
