//! The configuration section `safeguards`: what keeps agents from burning tokens without noticing.

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
    /// Where models are told something.
    pub notices: NoticePlace,
    /// Whether calls that repeat another are answered with its result.
    #[validate(nested)]
    pub result_cache: ResultCacheConfig,
    /// Whether long results are cut.
    #[validate(nested)]
    pub long_results: LongResultsConfig,
    /// The budgets of tokens of work sessions.
    #[validate(nested)]
    pub budget: BudgetConfig,
    /// Whether it is told who searches in circles.
    #[validate(nested)]
    pub searches: SearchesConfig,
    /// How often tools may be called.
    #[validate(nested)]
    pub limits: CallLimitsConfig,
}

/// The subsection `profiles.NAME.safeguards`: what is different under a profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSafeguardsConfig {
    /// The budgets of tokens of work sessions.
    pub budget: ProfileBudgetConfig,
}

impl SafeguardsConfig {
    /// Returns the options that the section asks for, with what profiles have in its place.
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
