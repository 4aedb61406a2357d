//! One policy, shown one call after the other.

use super::super::Forecast;
use super::super::prediction::{as_f64, ratio};
use super::conformal::ConformalRule;
use super::epoch::EpochRule;
use super::fixed::{RerankRule, StaticRule};
use super::policy::SimulatedPolicy;
use super::sticky::StickyRule;
use super::tool_set::ToolSet;
use crate::economics::CostModel;

/// What a policy decides.
pub(super) trait ListRule: std::fmt::Debug + Send {
    /// Makes `listed` what the client sees before a call, and returns whether that is a list that
    /// the client has to be given: tools that a search found are known to it without one.
    /// `listed` is what it saw before, and empty when `begins` says that a session begins; `used`
    /// are the tools that the session called before.
    fn list(
        &mut self,
        forecast: &Forecast,
        begins: bool,
        used: &ToolSet,
        listed: &mut ToolSet,
    ) -> bool;

    /// Adds to `listed` what the answer of a search carries into the conversation, and returns how
    /// many definitions that are; `None` when answers carry none.
    fn answer_search(
        &mut self,
        _forecast: &Forecast,
        _found: usize,
        _listed: &mut ToolSet,
    ) -> Option<usize> {
        None
    }

    /// Follows what happened: the list had the tool that was called, or not.
    fn learn(&mut self, _was_listed: bool) {}
}

/// What a policy would have done, as means over the calls or the sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListMetrics {
    /// The share of calls whose tool the client saw before.
    pub coverage: f64,
    /// The same for the first call of each tool in a session.
    pub first_use_coverage: f64,
    /// How many tools the client saw before a call.
    pub mean_size: f64,
    /// The share of the catalog that it did not see.
    pub reduction: f64,
    /// How often a session had to search: first uses that were not covered.
    pub searches_per_session: f64,
    /// The same for each fifth of the sessions, the earliest first: what is learned makes them
    /// fewer. 0 for a fifth without a session.
    pub searches_by_fifth: [f64; 5],
    /// How often the list changed within a session.
    pub changes_per_session: f64,
    /// The price of all prompts in terms of that of showing everything; 1 is as expensive.
    pub cost_vs_all: f64,
    /// The share of sessions whose prompts cost more than with everything shown.
    pub dearer_sessions: f64,
}

/// A policy at work on calls that were made.
///
/// The price is that of [`CostModel`]: the first list of a session is written to the cache, every
/// call reads list and context from it, a change of the list writes all that again, and a search
/// is a prompt of its own.
#[derive(Debug)]
pub struct ListSimulation {
    rule: Box<dyn ListRule>,
    costs: CostModel,
    n_tools: usize,
    listed: ToolSet,
    used: ToolSet,
    /// The number of searches of each session.
    searches: Vec<u32>,
    n_calls: u64,
    n_first_uses: u64,
    n_covered: u64,
    n_changes: u64,
    n_listed: u64,
    /// The price of the sessions before the running one.
    cost: f64,
    running: Running,
    n_dearer: u64,
}

/// What the running session costs.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    n_calls: u64,
    cost: f64,
}

impl ListSimulation {
    /// Returns the policy before any call, for a catalog of `n_tools` tools. Lists of a fixed
    /// length have `max_tools` tools; answers of searches carry `n_inline` tools besides the found
    /// one.
    #[must_use]
    pub fn new(
        policy: SimulatedPolicy,
        n_tools: usize,
        max_tools: usize,
        n_inline: usize,
        costs: CostModel,
    ) -> Self {
        let rule: Box<dyn ListRule> = match policy {
            SimulatedPolicy::Epoch => Box::new(EpochRule::new(max_tools, n_inline, costs)),
            SimulatedPolicy::Static => Box::new(StaticRule::new(max_tools, None)),
            SimulatedPolicy::StaticInline => Box::new(StaticRule::new(max_tools, Some(n_inline))),
            SimulatedPolicy::Rerank => Box::new(RerankRule::new(max_tools)),
            SimulatedPolicy::Sticky => Box::new(StickyRule::default()),
            SimulatedPolicy::Conformal(percent) => Box::new(ConformalRule::new(percent, n_tools)),
        };
        Self {
            rule,
            costs,
            n_tools,
            listed: ToolSet::new(n_tools),
            used: ToolSet::new(n_tools),
            searches: Vec::new(),
            n_calls: 0,
            n_first_uses: 0,
            n_covered: 0,
            n_changes: 0,
            n_listed: 0,
            cost: 0.0,
            running: Running::default(),
            n_dearer: 0,
        }
    }

    /// Shows the policy a call: what was forecast, which tool was called, and whether a session
    /// begins with it. The first call of all begins one in any case.
    ///
    /// A tool that the catalog does not have is never covered.
    pub fn add(&mut self, forecast: &Forecast, called: usize, begins: bool) {
        let begins = begins || self.searches.is_empty();
        if begins {
            self.n_dearer += u64::from(self.is_dearer());
            self.cost += std::mem::take(&mut self.running).cost;
            self.searches.push(0);
            self.used.clear();
            self.listed.clear();
        }
        let is_new_list = (self.rule).list(forecast, begins, &self.used, &mut self.listed);
        let n_listed = self.listed.len();
        if begins {
            self.running.cost += self.costs.first_list(n_listed);
        } else if is_new_list {
            self.n_changes += 1;
            self.running.cost += self.costs.list_change(n_listed);
        }
        self.n_calls += 1;
        self.running.n_calls += 1;
        self.n_listed += n_listed as u64;
        self.running.cost += self.costs.call(n_listed);
        let was_listed = self.listed.contains(called);
        self.n_covered += u64::from(was_listed);
        let is_first_use = !self.used.contains(called);
        self.n_first_uses += u64::from(is_first_use);
        if is_first_use && !was_listed {
            if let Some(searches) = self.searches.last_mut() {
                *searches += 1;
            }
            let carried = (self.rule).answer_search(forecast, called, &mut self.listed);
            self.running.cost += match carried {
                None => self.costs.search(n_listed),
                Some(n_inline) => self.costs.search_with_inline(n_listed, n_inline),
            };
        }
        self.used.insert(called);
        self.rule.learn(was_listed);
    }

    /// Returns whether the running session costs more than with everything shown. What differs by
    /// less than a millionth is the same.
    fn is_dearer(&self) -> bool {
        let showing_all = (self.costs).showing_all(self.n_tools, self.running.n_calls, 1);
        self.running.n_calls > 0 && self.running.cost > showing_all * (1.0 + 1e-6)
    }

    /// Returns the searches of a session in one of the fifths of all sessions so far.
    fn searches_of_fifth(&self, fifth: usize) -> f64 {
        let n_sessions = self.searches.len();
        let part = &self.searches[fifth * n_sessions / 5..(fifth + 1) * n_sessions / 5];
        ratio(sum(part), part.len() as u64)
    }

    /// Returns what the policy did so far; all 0 before the first call.
    #[must_use]
    pub fn metrics(&self) -> ListMetrics {
        let mean_size = ratio(self.n_listed, self.n_calls);
        let n_sessions = self.searches.len() as u64;
        let n_searches = sum(&self.searches);
        let showing_all = (self.costs).showing_all(self.n_tools, self.n_calls, n_sessions);
        // Every search is a first use that was not covered.
        let n_first_uses_covered = self.n_first_uses - n_searches;
        ListMetrics {
            coverage: ratio(self.n_covered, self.n_calls),
            first_use_coverage: ratio(n_first_uses_covered, self.n_first_uses),
            mean_size,
            reduction: if self.n_calls == 0 {
                0.0
            } else {
                1.0 - mean_size / as_f64(self.n_tools.max(1) as u64)
            },
            searches_per_session: ratio(n_searches, n_sessions),
            searches_by_fifth: [0, 1, 2, 3, 4].map(|fifth| self.searches_of_fifth(fifth)),
            changes_per_session: ratio(self.n_changes, n_sessions),
            cost_vs_all: if showing_all > 0.0 {
                (self.cost + self.running.cost) / showing_all
            } else {
                0.0
            },
            dearer_sessions: ratio(self.n_dearer + u64::from(self.is_dearer()), n_sessions),
        }
    }
}

fn sum(searches: &[u32]) -> u64 {
    searches.iter().map(|n| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests;
