//! The subsections `safeguards.budget` and `profiles.NAME.safeguards.budget`.

use std::num::NonZeroU64;

use riglm_domain::safeguards::budget::{BudgetThresholds, ThresholdsError};
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::{BudgetPlan, OnExhausted};

/// The subsection `safeguards.budget`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_thresholds"))]
pub struct BudgetConfig {
    /// Whether work sessions have a budget: of `tokens`, or as the client declares.
    pub enabled: bool,
    /// The token budget for tools in a work session.
    #[validate(range(min = 100, max = 1_000_000_000_000_u64))]
    pub tokens: Option<u64>,
    /// The share of the budget from which the model gets a notice of its use.
    pub status: f64,
    /// The share from which the notice asks the model to answer or to ask the user.
    pub suggest: f64,
    /// The share from which the notice asks the model to stop.
    pub stop: f64,
    /// The handling of calls from then on.
    pub on_exhausted: OnExhausted,
    /// Whether a client may declare a budget higher than `tokens`.
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
    /// Returns the section with the values of a profile applied.
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

    /// Returns the plan of work sessions. Invalid thresholds count as the default ones; they are
    /// refused when the section is read.
    pub(in crate::safeguards) fn plan(&self) -> BudgetPlan {
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

/// The subsection `profiles.NAME.safeguards.budget`. Unset keys have the values of
/// `safeguards.budget`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileBudgetConfig {
    /// Whether work sessions have a budget.
    pub enabled: Option<bool>,
    /// The token budget of a work session.
    pub tokens: Option<u64>,
    /// The share of the budget from which the model gets a notice of its use.
    pub status: Option<f64>,
    /// The share from which the notice asks the model to answer or to ask the user.
    pub suggest: Option<f64>,
    /// The share from which the notice asks the model to stop.
    pub stop: Option<f64>,
    /// The handling of calls from then on.
    pub on_exhausted: Option<OnExhausted>,
    /// Whether a client may declare a higher budget.
    pub client_may_raise: Option<bool>,
}

fn check_thresholds(config: &BudgetConfig) -> Result<(), ValidationError> {
    let checked = config.thresholds();
    checked
        .map(drop)
        .map_err(|error| ValidationError::new("thresholds").with_message(error.to_string().into()))
}
