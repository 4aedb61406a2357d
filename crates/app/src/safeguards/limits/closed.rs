//! What is over a limit at a moment.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;

use super::state::State;
use super::{LimitOptions, Whose};
use crate::safeguards::names::Names;
use crate::search::OfferedTool;

/// What is over a limit at a moment, for somebody.
pub(super) struct Closed<'a> {
    options: &'a LimitOptions,
    /// The rules whose rate is used up, and for how long, by position.
    rates: Vec<(usize, Duration)>,
    /// The rules of which as many calls run as may.
    full: Vec<usize>,
    /// The upstreams likewise.
    upstreams: HashSet<UpstreamName>,
}

impl<'a> Closed<'a> {
    pub(super) fn new(
        options: &'a LimitOptions,
        state: &mut State,
        whose: Whose<'_>,
        at: Instant,
    ) -> Self {
        let (mut rates, mut full) = (Vec::new(), Vec::new());
        for (place, rule) in options.rules.iter().enumerate() {
            let key = whose.key(rule.scope);
            let bucket = state.bucket(place, &key);
            if let Some(wait) = bucket.and_then(|bucket| bucket.peek(at)) {
                rates.push((place, wait));
            }
            let n_running = state.n_running(place, key);
            if rule.max_concurrent.is_some_and(|max| n_running >= max) {
                full.push(place);
            }
        }
        Self {
            upstreams: options
                .max_concurrent
                .map_or_else(HashSet::new, |max| state.busy_upstreams(max)),
            options,
            rates,
            full,
        }
    }

    /// Returns whether any rate is used up.
    pub(super) fn has_rates(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Returns how long the rates hold a tool back; `None` of one that they do not.
    pub(super) fn wait_of(&self, names: &Names) -> Option<Duration> {
        let is_of = |place: usize| {
            let rule = self.options.rules.get(place);
            rule.is_some_and(|rule| rule.is_of(names))
        };
        let waits = self.rates.iter().filter(|(place, _)| is_of(*place));
        waits.map(|(_, wait)| *wait).max()
    }

    /// Returns whether a tool could be called.
    pub(super) fn is_free(&self, tool: &OfferedTool) -> bool {
        let names = Names::of_offered(tool);
        let is_of = |place: &usize| {
            let rule = self.options.rules.get(*place);
            rule.is_some_and(|rule| rule.is_of(&names))
        };
        !self.upstreams.contains(&tool.tool.upstream)
            && self.wait_of(&names).is_none()
            && !self.full.iter().any(is_of)
    }
}
