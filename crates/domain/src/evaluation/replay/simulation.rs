//! One policy, shown one call after the other.

use super::super::Forecast;
use super::super::prediction::{as_f64, ratio};
use super::conformal::ConformalRule;
use super::fixed::{RerankRule, StaticRule};
use super::live::LiveRule;
use super::policy::SimulatedPolicy;
use super::sticky::StickyRule;
use super::tool_set::ToolSet;
use crate::economics::CostModel;
use crate::listing::{AskedFor, LIST_SIZES, ListBounds, ListPrices};
use crate::prediction::Party;

/// The tools that could be called, as far as lists depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedCatalog {
    /// Number of tools.
    pub n_tools: usize,
    /// Number of tokens in the definition of each.
    pub tokens_per_tool: u64,
    /// Their positions in the order in which they are shown before anything was learned.
    pub first_order: Vec<usize>,
    /// For each whether it may change something.
    pub may_write: Vec<bool>,
}

impl SimulatedCatalog {
    /// Returns a catalog of tools of which nothing is known.
    #[must_use]
    pub fn of(n_tools: usize, tokens_per_tool: u64) -> Self {
        Self {
            n_tools,
            tokens_per_tool,
            first_order: (0..n_tools).collect(),
            may_write: vec![true; n_tools],
        }
    }
}

/// Options of simulated policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedOptions {
    /// The bounds of lists. Lists of a fixed length have `max_tools` tools.
    pub bounds: ListBounds,
    /// Number of tools that the answer of a search carries besides the found one.
    pub n_inline: usize,
    /// The prices of lists and searches.
    pub prices: ListPrices,
}

/// A session as far as it is known when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedSession {
    /// Whose it is.
    pub party: Party,
    /// The tools that are about what it says that it does; `None` where it does not say, or that
    /// cannot be told.
    pub asked: Option<AskedFor>,
    /// Whether it says what it does, be it told or not which tools that is about.
    pub has_context: bool,
}

/// The moment before a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    /// The forecast.
    pub(super) forecast: &'a Forecast,
    /// The session, where it begins with the call.
    pub(super) begins: Option<&'a SimulatedSession>,
    /// The tools that the session called before.
    pub(super) used: &'a ToolSet,
}

/// What a policy decides.
pub(super) trait ListRule: std::fmt::Debug + Send {
    /// Makes `listed` what the client sees before a call, and returns whether that is a list that
    /// the client has to be given: tools that a search found are known to it without one.
    /// `listed` is what it saw before, and empty when a session begins.
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool;

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

    /// Follows which tool was called.
    fn called(&mut self, _forecast: &Forecast, _tool: usize) {}
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
    /// The same with each search counted [`ListPrices::search_weight`] times.
    pub weighed_cost: f64,
    /// The share of sessions whose prompts cost more than with everything shown.
    pub dearer_sessions: f64,
    /// The price of the session that cost most, in terms of showing it everything.
    pub dearest_session: f64,
}

/// The list of a fixed length that would have cost least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestFixed {
    /// Its length.
    pub max_tools: usize,
    /// Its [`ListMetrics::weighed_cost`].
    pub weighed_cost: f64,
}

/// Returns the lengths of lists that are compared in hindsight: the followed sizes, as far as the
/// bounds and the catalog go, and that of the whole catalog.
#[must_use]
pub fn fixed_sizes(n_tools: usize, max_tools: usize) -> Vec<usize> {
    let sizes = LIST_SIZES.iter().copied();
    let shorter = sizes.filter(|size| *size <= max_tools && *size < n_tools);
    let longest = (max_tools < n_tools).then_some(max_tools);
    let mut sizes: Vec<usize> = shorter.chain(longest).chain([n_tools]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
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
    search_weight: f64,
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
    /// The part of all prices that is paid for searches.
    searching: f64,
    running: Running,
    n_dearer: u64,
    dearest: f64,
}

/// What the running session costs.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    n_calls: u64,
    cost: f64,
}

impl ListSimulation {
    /// Returns the policy before any call.
    #[must_use]
    pub fn new(
        policy: SimulatedPolicy,
        catalog: &SimulatedCatalog,
        options: &SimulatedOptions,
    ) -> Self {
        let (max_tools, n_tools) = (options.bounds.max_tools, catalog.n_tools);
        let costs = options.prices.model;
        let rule: Box<dyn ListRule> = match policy {
            SimulatedPolicy::Live => Box::new(LiveRule::new(catalog, options)),
            SimulatedPolicy::Static => Box::new(StaticRule::new(max_tools, None)),
            SimulatedPolicy::StaticInline => {
                Box::new(StaticRule::new(max_tools, Some(options.n_inline)))
            }
            SimulatedPolicy::Rerank => Box::new(RerankRule::new(max_tools)),
            SimulatedPolicy::Sticky => Box::new(StickyRule::default()),
            SimulatedPolicy::Conformal(percent) => Box::new(ConformalRule::new(percent, n_tools)),
        };
        Self {
            rule,
            costs,
            search_weight: options.prices.search_weight,
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
            searching: 0.0,
            running: Running::default(),
            n_dearer: 0,
            dearest: 0.0,
        }
    }

    /// Shows the policy a call: what was forecast, which tool was called, and the session where one
    /// begins with it. The first call of all must begin one.
    ///
    /// A tool that the catalog does not have is never covered.
    pub fn add(&mut self, forecast: &Forecast, called: usize, begins: Option<&SimulatedSession>) {
        if begins.is_some() {
            self.n_dearer += u64::from(self.is_dearer());
            self.dearest = self.dearest.max(self.running_vs_all());
            self.cost += std::mem::take(&mut self.running).cost;
            self.searches.push(0);
            self.used.clear();
            self.listed.clear();
        }
        let moment = Moment {
            forecast,
            begins,
            used: &self.used,
        };
        let is_new_list = self.rule.list(&moment, &mut self.listed);
        let n_listed = self.listed.len();
        if begins.is_some() {
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
            let search = match carried {
                None => self.costs.search(n_listed),
                Some(n_inline) => self.costs.search_with_inline(n_listed, n_inline),
            };
            self.running.cost += search;
            self.searching += search;
        }
        self.used.insert(called);
        self.rule.called(forecast, called);
        self.rule.learn(was_listed);
    }

    /// Returns whether the running session costs more than with everything shown. What differs by
    /// less than a millionth is the same.
    fn is_dearer(&self) -> bool {
        self.running_vs_all() > 1.0 + 1e-6
    }

    /// Returns the price of the running session in terms of showing it everything.
    fn running_vs_all(&self) -> f64 {
        let showing_all = (self.costs).showing_all(self.n_tools, self.running.n_calls, 1);
        if self.running.n_calls > 0 && showing_all > 0.0 {
            self.running.cost / showing_all
        } else {
            0.0
        }
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
            cost_vs_all: share_of(showing_all, self.cost + self.running.cost),
            weighed_cost: share_of(
                showing_all,
                self.cost + self.running.cost + (self.search_weight - 1.0) * self.searching,
            ),
            dearest_session: self.dearest.max(self.running_vs_all()),
            dearer_sessions: ratio(self.n_dearer + u64::from(self.is_dearer()), n_sessions),
        }
    }
}

/// Returns a price in terms of another; 0 where that is nothing.
fn share_of(all: f64, price: f64) -> f64 {
    if all > 0.0 { price / all } else { 0.0 }
}

fn sum(searches: &[u32]) -> u64 {
    searches.iter().map(|n| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests;
