//! The configuration section `safeguards`: protection against agents that waste tokens.

mod budget;
mod limits;
mod long_results;
mod result_cache;
mod searches;

use std::collections::BTreeMap;

use riglm_app::safeguards::{BudgetOptions, NoticePlace, SafeguardOptions};
use riglm_domain::id::ProfileName;
use riglm_domain::prediction::NamePattern;
use serde::Deserialize;
use validator::{Validate, ValidationError};

pub use budget::{BudgetConfig, ProfileBudgetConfig};
pub use limits::{CallLimitsConfig, LimitRuleConfig};
pub use long_results::LongResultsConfig;
pub use result_cache::ResultCacheConfig;
pub use searches::SearchesConfig;

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
    /// Returns the configured options, including those of profiles.
    #[must_use]
    pub fn options(
        &self,
        profiles: &BTreeMap<ProfileName, ProfileSafeguardsConfig>,
    ) -> SafeguardOptions {
        let of_profiles = profiles.iter().map(|(name, profile)| {
            let budget = self.budget.under(&profile.budget);
            (name.as_str().to_owned(), budget.plan())
        });
        SafeguardOptions {
            notices: self.notices,
            repeated: self.result_cache.options(),
            long_results: self.long_results.options(),
            budgets: Some(BudgetOptions {
                plan: self.budget.plan(),
                profiles: of_profiles.collect(),
            }),
            circles: self.searches.options(),
        }
    }
}

fn patterns(names: &[String]) -> Vec<NamePattern> {
    names.iter().map(|name| NamePattern::new(name)).collect()
}

fn check_patterns(names: &[String]) -> Result<(), ValidationError> {
    if names.iter().all(|name| !name.trim().is_empty()) {
        return Ok(());
    }
    let message = "expected names of tools, in which * stands for any characters";
    Err(ValidationError::new("pattern").with_message(message.into()))
}
