//! The configuration section `safeguards`. Each safeguard has its subsection in its own module.

use std::collections::BTreeMap;

use riglm_domain::id::ProfileName;
use riglm_domain::prediction::NamePattern;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::budget::{BudgetConfig, BudgetPlans, ProfileBudgetConfig};
use super::{CallLimitsConfig, LongResultsConfig, NoticePlace, ResultCacheConfig, SearchesConfig};

/// The section `safeguards`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SafeguardsConfig {
    /// The place of notices to models.
    pub notices: NoticePlace,
    /// The cache of results of repeated calls.
    #[validate(nested)]
    pub result_cache: ResultCacheConfig,
    /// The truncation of long results.
    #[validate(nested)]
    pub long_results: LongResultsConfig,
    /// The token budgets of work sessions.
    #[validate(nested)]
    pub budget: BudgetConfig,
    /// The warnings about searches with diminishing returns.
    #[validate(nested)]
    pub searches: SearchesConfig,
    /// The rate limits of tools.
    #[validate(nested)]
    pub limits: CallLimitsConfig,
}

/// The subsection `profiles.NAME.safeguards`: different values for a profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSafeguardsConfig {
    /// The token budgets of work sessions.
    pub budget: ProfileBudgetConfig,
}

impl SafeguardsConfig {
    /// Returns the budgets in general and under each profile.
    pub(super) fn budgets(
        &self,
        profiles: &BTreeMap<ProfileName, ProfileSafeguardsConfig>,
    ) -> BudgetPlans {
        let profiles = profiles.iter().map(|(name, profile)| {
            let budget = self.budget.under(&profile.budget);
            (name.as_str().to_owned(), budget.plan())
        });
        BudgetPlans {
            plan: self.budget.plan(),
            profiles: profiles.collect(),
        }
    }
}

/// Checks configured patterns of tool names.
pub(super) fn check_patterns(patterns: &[NamePattern]) -> Result<(), ValidationError> {
    let is_named = |pattern: &NamePattern| !pattern.as_str().trim().is_empty();
    if patterns.iter().all(is_named) {
        return Ok(());
    }
    let message = "expected names of tools, in which * stands for any characters";
    Err(ValidationError::new("pattern").with_message(message.into()))
}
