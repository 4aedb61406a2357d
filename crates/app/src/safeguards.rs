//! Safeguards that keep agents from wasting tokens. Calls are refused, answered from a cache, or
//! get a notice at the end of their result, as the operator configures it.
//!
//! Nothing is blocked by default: a safeguard detects a pattern and adds a line at the end of a
//! result, where it costs no prompt cache. The model decides. Only limits of the operator refuse
//! calls.
//!
//! Each safeguard has its own module; [`Safeguards`] runs them in order.

mod budget;
mod call;
mod config;
mod diminishing_returns;
mod guard;
mod limits;
mod names;
mod notice;
mod result_cache;
#[cfg(test)]
mod testing;
mod tool_traits;
mod truncation;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ProfileName, ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::search::ScoredTool;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;

use riglm_discovery::search::Catalog;

pub(crate) use budget::ListText;
pub use budget::{BudgetConfig, OnExhausted, ProfileBudgetConfig};
use budget::{BudgetPlans, Budgets};
pub(crate) use call::{GuardedCall, OwnKind, Requester};
use config::check_patterns;
pub use config::{ProfileSafeguardsConfig, SafeguardsConfig};
use diminishing_returns::DiminishingReturns;
pub use diminishing_returns::SearchesConfig;
pub(crate) use guard::{Guard, Permit};
use limits::UnmatchedPatterns;
pub use limits::{CallLimitsConfig, LimitRule, Limiter, LimiterParts};
pub(crate) use limits::{LimitPermit, LimitSubject};
use names::ToolNames;
pub use notice::NoticePlace;
pub(crate) use notice::{Notice, with_text};
pub use result_cache::ResultCacheConfig;
use result_cache::{CacheEffect, CacheLookup, ResultCache, ToolEffect};
use tool_traits::{ToolTraits, TraitsCache};
use truncation::LongResults;
pub use truncation::LongResultsConfig;
pub(crate) use truncation::Remainder;

/// A connection without a work session counts as a new one after this pause, as in learning. A work
/// session has its own end.
const CONNECTION_SILENCE: Duration = Duration::from_mins(10);

/// The parts that safeguards use, besides the configuration.
#[derive(Clone, Debug)]
pub struct SafeguardParts {
    /// Counts tokens.
    pub counter: Arc<dyn TokenCounter>,
    /// Receives the events of safeguards.
    pub observer: Arc<dyn Observer>,
}

/// The decision about a call before it goes to its tool.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The call is made.
    Goes(Permit),
    /// The call is not made: this is the JSON text of its result.
    Known(String),
}

/// The reason why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The text for the model.
    pub(crate) text: String,
}

/// The safeguards of a proxy.
#[derive(Debug)]
pub struct Safeguards {
    notices: NoticePlace,
    result_cache: Option<Arc<ResultCache>>,
    long_results: Option<Arc<LongResults>>,
    budgets: Option<Arc<Budgets>>,
    diminishing_returns: Option<Arc<DiminishingReturns>>,
    limiter: Option<Arc<Limiter>>,
    known_traits: TraitsCache,
    /// The tool patterns of all safeguards except the limits.
    unmatched: Vec<UnmatchedPatterns>,
}

impl Safeguards {
    /// Creates the safeguards, with the differing values of profiles; `None` if all are disabled.
    #[must_use]
    pub fn new(
        config: &SafeguardsConfig,
        profiles: &BTreeMap<ProfileName, ProfileSafeguardsConfig>,
        limiter: Option<Limiter>,
        parts: &SafeguardParts,
    ) -> Option<Self> {
        let observer = || Arc::clone(&parts.observer);
        let on = |is_on: bool| is_on.then_some(config);
        let result_cache = on(config.result_cache.enabled).map(|it| it.result_cache.clone());
        let long_results = on(config.long_results.is_on()).map(|it| it.long_results.clone());
        let searches = on(config.searches.enabled).map(|it| it.searches.clone());
        let budgets = Some(config.budgets(profiles)).filter(BudgetPlans::is_any);
        let is_any = result_cache.is_some()
            || long_results.is_some()
            || limiter.is_some()
            || budgets.is_some()
            || searches.is_some();
        is_any.then(|| Self {
            notices: config.notices,
            result_cache: result_cache.map(|it| Arc::new(ResultCache::new(it))),
            long_results: long_results.map(|it| Arc::new(LongResults::new(it))),
            limiter: limiter.map(Arc::new),
            budgets: budgets
                .map(|it| Arc::new(Budgets::new(it, Arc::clone(&parts.counter), observer()))),
            diminishing_returns: searches
                .map(|it| Arc::new(DiminishingReturns::new(it, observer()))),
            known_traits: TraitsCache::new(),
            unmatched: unmatched_patterns(config),
        })
    }

    /// Continues with the state of earlier safeguards. Each part with the same configuration keeps
    /// its counts, its cached results and the rest of truncated results. Budgets keep what sessions
    /// have used, even if they changed.
    #[must_use]
    pub fn with_state_of(self, before: &Self) -> Self {
        Self {
            result_cache: earlier_or_new(
                self.result_cache,
                before.result_cache.as_ref(),
                ResultCache::has_config_of,
            ),
            long_results: earlier_or_new(
                self.long_results,
                before.long_results.as_ref(),
                LongResults::has_config_of,
            ),
            budgets: self.budgets.map(|budgets| match &before.budgets {
                Some(before) => Arc::new(budgets.with_use_of(before)),
                None => budgets,
            }),
            diminishing_returns: earlier_or_new(
                self.diminishing_returns,
                before.diminishing_returns.as_ref(),
                DiminishingReturns::has_config_of,
            ),
            limiter: earlier_or_new(
                self.limiter,
                before.limiter.as_ref(),
                Limiter::has_config_of,
            ),
            ..self
        }
    }

    /// Decides whether a call goes to its tool.
    ///
    /// # Errors
    ///
    /// Returns the refusal, with the text for the model.
    pub(crate) fn admit(&self, call: &GuardedCall<'_>) -> Result<Admission, Refusal> {
        let traits = self.traits(call);
        if let Some(budgets) = &self.budgets {
            budgets.admit(call)?;
        }
        let lookup = match &self.result_cache {
            Some(result_cache) => result_cache.begin(call, traits.effect),
            None => CacheLookup::Goes(CacheEffect::None),
        };
        let limiter = (self.limiter.as_ref()).filter(|_| matches!(lookup, CacheLookup::Goes(_)));
        // The limits come last: a call that is refused or cached must not count.
        let limits = limiter.map(|limiter| limiter.admit(call, &traits.limits));
        let limits = limits.transpose()?;
        // From here on the call counts, even if the cache answers it.
        if let Some(diminishing_returns) = &self.diminishing_returns {
            diminishing_returns.record_call(call, traits.is_search);
        }
        Ok(match lookup {
            CacheLookup::Known(known, notice) => {
                let given = self.result_for_client(call, &traits, &known, Some(notice));
                Admission::Known(given.unwrap_or_else(|| known.to_string()))
            }
            CacheLookup::Goes(trace) => Admission::Goes(Permit::new(limits, trace, traits)),
        })
    }

    /// Returns the permit of a continued call, which was admitted before.
    pub(crate) fn admit_again(&self, call: &GuardedCall<'_>) -> Permit {
        let traits = self.traits(call);
        let limiter = self.limiter.as_deref();
        let result_cache = self.result_cache.as_deref();
        let trace = result_cache.map(|result_cache| result_cache.begin_again(call, traits.effect));
        let limits = limiter.map(|limiter| limiter.admit_again(call, &traits.limits));
        Permit::new(limits, trace.unwrap_or_default(), traits)
    }

    fn traits(&self, call: &GuardedCall<'_>) -> Arc<ToolTraits> {
        self.known_traits.of(call, || {
            let names = ToolNames::of_call(call);
            let limiter = self.limiter.as_deref();
            let result_cache = self.result_cache.as_deref();
            let diminishing_returns = self.diminishing_returns.as_deref();
            let long = self.long_results.as_deref();
            ToolTraits {
                limits: limiter.map_or_else(Box::default, |it| it.rules_of(&names)),
                effect: result_cache.map_or_else(ToolEffect::default, |it| it.effect(call, &names)),
                is_search: diminishing_returns.is_some_and(|it| it.is_search(call, &names)),
                is_never_cut: long.is_some_and(|it| it.is_never_truncated(&names)),
            }
        })
    }

    /// Records the tools in a list of an upstream; `is_last` marks the last page.
    pub(crate) fn tools_listed(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        is_last: bool,
        n_upstreams: usize,
    ) {
        if let Some(limiter) = &self.limiter {
            limiter.record_list(upstream, tools, is_last, n_upstreams);
        }
        for patterns in &self.unmatched {
            patterns.record_list(upstream, tools, is_last, n_upstreams);
        }
    }

    /// Returns the tools of a catalog whose rate limit is reached, each with the remaining wait.
    pub(crate) fn rate_limited_tools(
        &self,
        catalog: &Catalog,
        whose: LimitSubject<'_>,
        at: Instant,
    ) -> HashMap<ToolRef, Duration> {
        let limiter = self.limiter.as_deref();
        let found = limiter.map(|limiter| limiter.rate_limited_tools(catalog, whose, at));
        found.unwrap_or_default()
    }

    /// Records the result of a call, which is JSON text.
    fn record_result(&self, call: &GuardedCall<'_>, trace: &CacheEffect, result: &str) {
        if let Some(result_cache) = &self.result_cache {
            result_cache.record_result(trace, call.at, result);
        }
        if let Some(limiter) = &self.limiter {
            limiter.record_result(call, result);
        }
    }

    /// Records the end of a call, successful or not.
    fn record_end(&self, trace: &CacheEffect) {
        if let Some(result_cache) = &self.result_cache {
            result_cache.record_end(trace);
        }
    }

    /// Returns the result for the client if it differs from `result`, which is JSON text: truncated
    /// or with notices. `notice` comes first.
    fn result_for_client(
        &self,
        call: &GuardedCall<'_>,
        traits: &ToolTraits,
        result: &str,
        notice: Option<Notice>,
    ) -> Option<String> {
        let long = self.long_results.as_ref().filter(|_| !traits.is_never_cut);
        let cut = long.and_then(|long| long.cut(call, result));
        let given = cut.as_deref().unwrap_or(result);
        let diminishing_returns = self.diminishing_returns.as_deref();
        let searches = diminishing_returns.and_then(|diminishing_returns| {
            diminishing_returns.record_result(call, traits.is_search, result)
        });
        self.add_notices(call, given, [notice, searches]).or(cut)
    }

    /// Returns a result with its notices; `None` without any.
    fn add_notices(
        &self,
        call: &GuardedCall<'_>,
        given: &str,
        notices: [Option<Notice>; 2],
    ) -> Option<String> {
        let budgets = self.budgets.as_deref();
        let budget = budgets.and_then(|budgets| budgets.record_result(call, given));
        let notices: Vec<Notice> = notices.into_iter().chain([budget]).flatten().collect();
        notice::with_notices(given, &notices, self.notices)
    }

    /// Counts a result that cannot get notices.
    fn count_result(&self, call: &GuardedCall<'_>, result: &str) {
        if let Some(budgets) = &self.budgets {
            budgets.count_result(call, result);
        }
    }

    /// Records a search for tools with its time of receipt and its results, best first.
    pub(crate) fn record_search(
        &self,
        session_key: SessionKey,
        at: Instant,
        query: &str,
        results: &[ScoredTool],
    ) {
        if let Some(diminishing_returns) = &self.diminishing_returns {
            diminishing_returns.record_search(session_key, at, query, results);
        }
    }

    /// Records that a work session got a list of tools.
    pub(crate) fn record_list(
        &self,
        session_key: SessionKey,
        profile: Option<&str>,
        token_budget: Option<u64>,
        list: ListText<'_>,
    ) {
        if let Some(budgets) = &self.budgets {
            budgets.record_list(session_key, profile, token_budget, list, Instant::now());
        }
    }

    /// Returns a further part of a truncated result, with its notices.
    pub(crate) fn read_on(&self, call: &GuardedCall<'_>, part: String) -> String {
        self.add_notices(call, &part, [None, None]).unwrap_or(part)
    }

    /// Returns the part of a truncated result that begins at `offset`.
    pub(crate) fn rest(
        &self,
        call: &GuardedCall<'_>,
        handle: &str,
        offset: usize,
    ) -> Option<Remainder> {
        self.long_results.as_ref()?.rest(call, handle, offset)
    }

    /// Returns the guard of an admitted call, held until its answer.
    pub(crate) fn guard(self: &Arc<Self>, call: &GuardedCall<'_>, permit: Permit) -> Guard {
        Guard::new(Arc::clone(self), call, permit)
    }
}

/// Returns the earlier part if it has the same configuration as the new one.
fn earlier_or_new<T>(
    new: Option<Arc<T>>,
    before: Option<&Arc<T>>,
    is_same: impl Fn(&T, &T) -> bool,
) -> Option<Arc<T>> {
    let new = new?;
    let same = before.filter(|before| is_same(&new, before));
    Some(same.map_or(new, Arc::clone))
}

/// Returns the tool patterns of the enabled safeguards with their configuration keys.
fn unmatched_patterns(config: &SafeguardsConfig) -> Vec<UnmatchedPatterns> {
    let of = |is_on: bool, patterns: &[NamePattern], key: &str| {
        let all = (patterns.iter()).map(|pattern| (key.to_owned(), pattern.clone()));
        is_on.then(|| UnmatchedPatterns::of(all.collect()))
    };
    let (cache, long, searches) = (&config.result_cache, &config.long_results, &config.searches);
    let patterns = [
        of(cache.enabled, &cache.tools, "result_cache.tools"),
        of(long.is_on(), &long.except, "long_results.except"),
        of(searches.enabled, &searches.tools, "searches.tools"),
    ];
    patterns.into_iter().flatten().collect()
}
