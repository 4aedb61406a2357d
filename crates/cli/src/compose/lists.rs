//! The selection of tools for lists.

use std::sync::Arc;

use riglm_adapters_prediction::{
    FilteringConfig, O200kTokenCounter, ProfileConfig, ProfileFilteringConfig, list_policy_from,
};
use riglm_adapters_storage::Storage;
use riglm_app::selection::{
    ClientRule, Forbidden, ForbiddenNames, ListFilter, ListOptions, ListStores, Lists, ListsParts,
    OverrideStores, Pool,
};
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::NextTools;
use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::{ListBounds, ListPrices, TopicWords};
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;

use crate::config::{Config, SearchConfig};

pub(super) fn filter_from(
    config: &Config,
    storage: Option<&Arc<Storage>>,
    (next_tools, experiments): (Option<&Arc<NextTools>>, Option<&Arc<Experiments>>),
    (clock, observer): (Arc<dyn Clock>, Arc<dyn Observer>),
) -> ListFilter {
    if !config.filtering.uses_predictions() {
        warn_of_profiles(config);
        return ListFilter::new(list_policy_from(&config.filtering));
    }
    let stores = storage.map(|storage| {
        let store = Arc::new(storage.store.clone());
        ListStores {
            epochs: Arc::clone(&store) as _,
            overrides: Arc::clone(&store) as _,
            usage: Arc::clone(&store) as _,
            activities: Arc::clone(&store) as _,
            changes: store,
        }
    });
    let lists = Lists::new(ListsParts {
        observer,
        options: options(&config.filtering, &config.search),
        profiles: profile_options(config).collect(),
        next_tools: next_tools.cloned(),
        stores,
        counter: Arc::new(O200kTokenCounter),
        clock,
    })
    .with_words(words(config));
    ListFilter::from_lists(Arc::new(lists.with_experiments(experiments.cloned())))
}

/// Returns the set of forbidden tools, from the configuration and from stored overrides. The
/// overrides are read before the first client is served.
pub(super) async fn forbidden_from(
    config: &Config,
    storage: Option<&Arc<Storage>>,
    clock: Arc<dyn Clock>,
) -> Arc<Forbidden> {
    let stores = storage.map(|storage| {
        let store = Arc::new(storage.store.clone());
        OverrideStores {
            overrides: Arc::clone(&store) as _,
            changes: store,
        }
    });
    let forbidden = Forbidden::new(forbidden_names(config), stores, clock);
    // Not fatal: the watch on overrides reads them later.
    if let Err(error) = forbidden.read_again().await {
        let error = &error as &(dyn std::error::Error + 'static);
        tracing::warn!(
            error,
            "overrides: failed to read the forbidden tools from the database; retrying"
        );
    }
    Arc::new(forbidden)
}

/// Returns the patterns of forbidden tools, in general and for each profile.
pub(super) fn forbidden_names(config: &Config) -> ForbiddenNames {
    let profiles = config.profiles.iter().map(|(name, profile)| {
        let filtering = config.filtering.with_profile(&profile.filtering);
        (name.to_string(), patterns(&filtering.forbid))
    });
    ForbiddenNames {
        general: patterns(&config.filtering.forbid),
        profiles: profiles.collect(),
    }
}

/// Returns the lexicon and synonyms for the analysis of declared contexts. An unreadable file falls
/// back to the built-in words here; the search and the recommender report the error.
pub(crate) fn words(config: &Config) -> TopicWords {
    let shipped = TopicWords::built_in();
    TopicWords {
        lexicon: (config.recommend.options()).map_or(shipped.lexicon, |options| options.lexicon),
        synonyms: (config.search.rules()).map_or(shipped.synonyms, |rules| rules.synonyms),
    }
}

/// Warns of profiles with list options that have no effect, because lists are not selected by
/// prediction.
fn warn_of_profiles(config: &Config) {
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

/// Returns the list options of each profile.
pub(super) fn profile_options(config: &Config) -> impl Iterator<Item = (String, ListOptions)> {
    config.profiles.iter().map(|(name, profile)| {
        let filtering = config.filtering.with_profile(&profile.filtering);
        (name.to_string(), options(&filtering, &config.search))
    })
}

pub(crate) fn options(config: &FilteringConfig, search: &SearchConfig) -> ListOptions {
    let at_most = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let clients = config.clients.iter().map(|client| ClientRule {
        name: NamePattern::new(&client.name),
        policy: client.policy,
        prompt_cache: client.prompt_cache,
        loads_on_demand: client.loads_on_demand,
    });
    let pools = config.pools.iter().map(|pool| Pool {
        name: pool.name.clone(),
        tools: patterns(&pool.tools),
        profile: pool.profile.as_ref().map(ToString::to_string),
        words: pool.words.clone(),
    });
    ListOptions {
        policy: config.policy,
        bounds: ListBounds {
            min_tools: at_most(config.min_tools),
            max_tools: at_most(config.max_tools),
            token_budget: config.token_budget,
        },
        prices: ListPrices {
            n_inline: search.n_predicted.saturating_add(1),
            answer_tokens: u32::try_from(search.token_budget).map_or(f64::MAX, f64::from),
            ..config.costs.prices()
        },
        coverage: config.coverage,
        epoch: config.epoch,
        pins: patterns(&config.pins),
        bans: patterns(&config.bans),
        allow: patterns(&config.allow),
        deny: patterns(&config.deny),
        gate_writes: config.gate_writes,
        enforce: config.enforce,
        context_shift: config.context_shift,
        clients: clients.collect(),
        pools: pools.collect(),
    }
}

fn patterns(texts: &[String]) -> Vec<NamePattern> {
    texts.iter().map(|text| NamePattern::new(text)).collect()
}
