//! Limits that are reached at one time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;

use super::state::LimitState;
use super::{CallLimitsConfig, LimitSubject};
use crate::safeguards::names::ToolNames;
use riglm_discovery::search::CatalogTool;

/// The limits that are reached for one client at one time.
pub(super) struct ReachedLimits<'a> {
    config: &'a CallLimitsConfig,
    /// The rules whose rate limit is reached, by position, with the remaining wait.
    rates: Vec<(usize, Duration)>,
    /// The rules whose limit of parallel calls is reached.
    full: Vec<usize>,
    /// The upstreams whose limit of parallel calls is reached.
    upstreams: HashSet<UpstreamName>,
}

impl<'a> ReachedLimits<'a> {
    pub(super) fn new(
        config: &'a CallLimitsConfig,
        state: &mut LimitState,
        whose: LimitSubject<'_>,
        at: Instant,
    ) -> Self {
        let (mut rates, mut full) = (Vec::new(), Vec::new());
        for (place, rule) in config.rules.iter().enumerate() {
            let key = whose.key(rule.scope);
            let bucket = state.bucket(place, &key);
            if let Some(wait) = bucket.and_then(|bucket| bucket.wait_time(at)) {
                rates.push((place, wait));
            }
            let n_running = state.n_running(place, key);
            if rule.max_concurrent.is_some_and(|max| n_running >= max) {
                full.push(place);
            }
        }
        let upstreams = config.max_concurrent.map(|max| state.busy_upstreams(max));
        Self {
            upstreams: upstreams.unwrap_or_default(),
            config,
            rates,
            full,
        }
    }

    /// Returns whether any rate limit is reached.
    pub(super) fn has_rates(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Returns the wait until the rate limits permit a tool; `None` if they permit it now.
    pub(super) fn wait_of(&self, names: &ToolNames) -> Option<Duration> {
        let waits = (self.rates.iter()).filter(|(place, _)| self.is_of_rule(*place, names));
        waits.map(|(_, wait)| *wait).max()
    }

    /// Returns whether a tool can be called now.
    pub(super) fn is_free(&self, tool: &CatalogTool) -> bool {
        let names = ToolNames::of_offered(tool);
        let mut full = self.full.iter();
        !self.upstreams.contains(&tool.tool.upstream)
            && self.wait_of(&names).is_none()
            && !full.any(|place| self.is_of_rule(*place, &names))
    }

    fn is_of_rule(&self, place: usize, names: &ToolNames) -> bool {
        let rule = self.config.rules.get(place);
        rule.is_some_and(|rule| rule.is_of(names))
    }
}
