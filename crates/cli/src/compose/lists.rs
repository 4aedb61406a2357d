//! The selection of tools for lists.

use std::sync::Arc;

use riglm_adapters_prediction::{AllowList, DenyList, O200kTokenCounter};
use riglm_app::selection::{
    FilteringConfig, Forbidden, ForbiddenNames, ListChoice, ListFilter, ListStores, Lists,
    ListsParts, OperatorOverrides, OverrideStores, ProfileConfig, ProfileFilteringConfig,
    SearchAnswerSize, SearchTerms, Strategy,
};
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::LivePredictions;
use riglm_domain::num::to_f64;
use riglm_domain::selection::TopicWords;
use riglm_ports::list_policy::ListPolicy;

use super::foundation::Foundation;
use super::learning::isolation;
use crate::config::{Config, SearchConfig};

/// Returns the selection of tools for lists, in the configured way, without the forbidden ones.
pub(super) fn filter_from(
    base: &Foundation<'_>,
    predictions: &LivePredictions,
    experiments: Option<&Arc<Experiments>>,
    overrides: &Arc<OperatorOverrides>,
    forbidden: &Arc<Forbidden>,
) -> ListFilter {
    let config = base.config;
    let stores = base.store().map(|store| ListStores {
        epochs: Arc::clone(&store) as _,
        usage: Arc::clone(&store) as _,
        activities: Arc::clone(&store) as _,
        changes: store,
    });
    let lists = Lists::new(ListsParts {
        observer: base.observer(),
        options: config.filtering.clone(),
        profiles: profile_options(config).collect(),
        experiments: experiments.cloned(),
        search: search_terms(config),
        predictions: predictions.clone(),
        stores,
        overrides: Arc::clone(overrides),
        counter: Arc::new(O200kTokenCounter),
        clock: Arc::clone(&base.clock),
    });
    let lists = lists.with_isolation(isolation(&config.prediction));
    let filter = ListFilter::from_lists(Arc::new(lists));
    filter.set_choice(choice_from(&config.filtering));
    warn_of_profiles(config);
    filter.with_forbidden(Arc::clone(forbidden))
}

/// Returns the configured way in which lists are selected.
pub(super) fn choice_from(config: &FilteringConfig) -> ListChoice {
    if config.uses_predictions() {
        ListChoice::Learned
    } else {
        list_policy_from(config).map_or(ListChoice::Whole, ListChoice::Names)
    }
}

/// Returns the parts of the search configuration that lists depend on.
pub(super) fn search_terms(config: &Config) -> SearchTerms {
    SearchTerms {
        answer: answer_size(&config.search),
        words: words(config),
    }
}

/// Returns the overrides of operators. They are read before the first client is served.
pub(super) async fn overrides_from(base: &Foundation<'_>) -> Arc<OperatorOverrides> {
    let Some(store) = base.store() else {
        return Arc::default();
    };
    let stores = OverrideStores {
        overrides: Arc::clone(&store) as _,
        changes: store,
    };
    let overrides = OperatorOverrides::of_store(stores, Arc::clone(&base.clock));
    // Not fatal: the polling reads them later.
    if let Err(error) = overrides.read_again().await {
        let error = &error as &(dyn std::error::Error + 'static);
        tracing::warn!(
            error,
            "overrides: failed to read them from the database; retrying"
        );
    }
    Arc::new(overrides)
}

/// Returns the set of forbidden tools, by the configuration and by overrides.
pub(super) fn forbidden_from(
    config: &Config,
    overrides: &Arc<OperatorOverrides>,
) -> Arc<Forbidden> {
    let names = forbidden_names(config);
    Arc::new(Forbidden::new(names, Arc::clone(overrides)))
}

/// Returns the patterns of forbidden tools, in general and for each profile.
pub(super) fn forbidden_names(config: &Config) -> ForbiddenNames {
    let profiles = config.profiles.iter().map(|(name, profile)| {
        let filtering = config.filtering.with_profile(&profile.filtering);
        (name.to_string(), filtering.forbid)
    });
    ForbiddenNames {
        general: config.filtering.forbid.clone(),
        profiles: profiles.collect(),
    }
}

/// Returns the lexicon and synonyms for the analysis of declared contexts. An unreadable file falls
/// back to the built-in words here; the search and the recommender report the error.
pub(crate) fn words(config: &Config) -> TopicWords {
    let shipped = TopicWords::built_in();
    TopicWords {
        lexicon: config.lexicon().unwrap_or(shipped.lexicon),
        synonyms: (config.search.rules()).map_or(shipped.synonyms, |rules| rules.synonyms),
    }
}

/// Warns of profiles with list options that have no effect, because lists are not selected by
/// prediction.
pub(super) fn warn_of_profiles(config: &Config) {
    if config.filtering.uses_predictions() {
        return;
    }
    let choose = |profile: &ProfileConfig| {
        // Forbidden tools do not depend on the strategy.
        let of_lists = ProfileFilteringConfig {
            forbid: None,
            ..profile.filtering.clone()
        };
        of_lists != ProfileFilteringConfig::default()
    };
    let names = config.profiles.iter().filter(|(_, one)| choose(one));
    for (name, _) in names {
        tracing::warn!(
            "profiles.{name}.filtering has no effect: it needs filtering.strategy = \"prediction\""
        );
    }
}

/// Returns the section `filtering` under each profile.
pub(super) fn profile_options(config: &Config) -> impl Iterator<Item = (String, FilteringConfig)> {
    config.profiles.iter().map(|(name, profile)| {
        let filtering = config.filtering.with_profile(&profile.filtering);
        (name.to_string(), filtering)
    })
}

pub(crate) fn answer_size(search: &SearchConfig) -> SearchAnswerSize {
    SearchAnswerSize {
        // The found tool, and the predicted ones.
        n_tools: u32::try_from(search.n_predicted).map_or(u32::MAX, |n| n.saturating_add(1)),
        tokens: to_f64(search.token_budget),
    }
}

/// Returns the policy by name patterns that the section configures. Returns `None` with the
/// strategies `none` and `prediction`, and with `enabled = false`.
fn list_policy_from(config: &FilteringConfig) -> Option<Arc<dyn ListPolicy>> {
    if !config.enabled {
        return None;
    }
    match config.strategy {
        Strategy::None | Strategy::Prediction => None,
        Strategy::Allowlist => Some(Arc::new(AllowList::new(config.allow.clone()))),
        Strategy::Denylist => Some(Arc::new(DenyList::new(config.deny.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::prediction::NamePattern;

    use super::*;

    fn policy_of(json: &str) -> String {
        let config: FilteringConfig = serde_json::from_str(json).unwrap();
        list_policy_from(&config).map_or("none".into(), |policy| format!("{policy:?}"))
    }

    #[test]
    fn each_strategy_has_its_policy() {
        assert_eq!(policy_of("{}"), "none");
        assert_eq!(policy_of(r#"{"strategy":"prediction"}"#), "none");
        assert_eq!(
            policy_of(r#"{"strategy":"allowlist","allow":["get_*"]}"#),
            format!("{:?}", AllowList::new(vec![NamePattern::new("get_*")]))
        );
        assert_eq!(
            policy_of(r#"{"strategy":"denylist","deny":["rm"]}"#),
            format!("{:?}", DenyList::new(vec![NamePattern::new("rm")]))
        );
        assert_eq!(
            policy_of(r#"{"strategy":"prediction","enabled":false}"#),
            "none"
        );
    }
}
