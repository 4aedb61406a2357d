//! The subsections `safeguards.budget` and `profiles.NAME.safeguards.budget`.

use std::num::NonZeroU64;

use riglm_app::safeguards::{BudgetPlan, OnExhausted};
use riglm_domain::safeguard::budget::{BudgetThresholds, ThresholdsError};
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The subsection `safeguards.budget`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_thresholds"))]
pub struct BudgetConfig {
    /// Whether work sessions have a budget: of `tokens`, or as the client says.
    pub enabled: bool,
    /// The tokens that tools may take in a work session.
    #[validate(range(min = 100, max = 1_000_000_000_000_u64))]
    pub tokens: Option<u64>,
    /// The share of the budget from which on the model is told how much is used.
    pub status: f64,
    /// The share from which on it is told to answer or to ask.
    pub suggest: f64,
    /// The share from which on it is told to stop.
    pub stop: f64,
    /// What becomes of calls from then on.
    pub on_exhausted: OnExhausted,
    /// Whether a client may say a higher budget than `tokens`.
    pub client_may_raise: bool,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            tokens: None,
            status: 0.5,
            suggest: 0.7,
            stop: 0.9,
            on_exhausted: OnExhausted::Warn,
            client_may_raise: false,
        }
    }
}

impl BudgetConfig {
    /// Returns the section with what a profile sets in its place.
    #[must_use]
    pub fn under(&self, profile: &ProfileBudgetConfig) -> Self {
        Self {
            enabled: profile.enabled.unwrap_or(self.enabled),
            tokens: profile.tokens.or(self.tokens),
            status: profile.status.unwrap_or(self.status),
            suggest: profile.suggest.unwrap_or(self.suggest),
            stop: profile.stop.unwrap_or(self.stop),
            on_exhausted: profile.on_exhausted.unwrap_or(self.on_exhausted),
            client_may_raise: profile.client_may_raise.unwrap_or(self.client_may_raise),
        }
    }

    /// Returns the plan that the section asks for.
    pub(super) fn plan(&self) -> BudgetPlan {
        BudgetPlan {
            is_enabled: self.enabled,
            tokens: self.tokens.and_then(NonZeroU64::new),
            thresholds: self.thresholds().unwrap_or_default(),
            on_exhausted: self.on_exhausted,
            client_may_raise: self.client_may_raise,
        }
    }

    fn thresholds(&self) -> Result<BudgetThresholds, ThresholdsError> {
        BudgetThresholds::new(self.status, self.suggest, self.stop)
    }
}

/// The subsection `profiles.NAME.safeguards.budget`. What is not set is as in `safeguards.budget`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileBudgetConfig {
    /// Whether work sessions have a budget.
    pub enabled: Option<bool>,
    /// The tokens of a work session.
    pub tokens: Option<u64>,
    /// From which share on it is said how much is used.
    pub status: Option<f64>,
    /// From which on the model is told to answer or to ask.
    pub suggest: Option<f64>,
    /// From which on it is told to stop.
    pub stop: Option<f64>,
    /// What becomes of calls from then on.
    pub on_exhausted: Option<OnExhausted>,
    /// Whether a client may say a higher budget.
    pub client_may_raise: Option<bool>,
}

fn check_thresholds(config: &BudgetConfig) -> Result<(), ValidationError> {
    let checked = config.thresholds();
    checked
        .map(drop)
        .map_err(|error| ValidationError::new("thresholds").with_message(error.to_string().into()))
}
