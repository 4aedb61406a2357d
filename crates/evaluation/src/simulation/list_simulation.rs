//! Simulation of one policy on recorded calls, one call at a time.

use super::super::CatalogForecast;
use super::conformal::ConformalRule;
use super::fixed_size::{RerankRule, StaticRule};
use super::live::LiveRule;
use super::policy::SimulatedPolicy;
use super::sticky::StickyRule;
use super::tool_set::ToolSet;
use riglm_domain::num::{ratio, to_f64};
use riglm_domain::prediction::ClientKey;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::selection::{LIST_SIZES, ListBounds, ListPrices, RequestedTools};

/// The catalog of tools, as far as lists depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedCatalog {
    /// Number of tools.
    pub n_tools: usize,
    /// Number of tokens in the definition of each tool.
    pub tokens_per_tool: u64,
    /// Positions of the tools in the order of lists before anything is learned.
    pub first_order: Vec<usize>,
    /// For each tool, whether it may change data.
    pub may_write: Vec<bool>,
}

impl SimulatedCatalog {
    /// Returns a catalog of tools without known properties, in catalog order.
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
    /// Number of tools that the answer of a search carries in addition to the found one.
    pub n_inline: usize,
    /// The prices of lists and searches.
    pub prices: ListPrices,
}

/// A session, as far as it is known at its first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedSession {
    /// The client of the session.
    pub party: ClientKey,
    /// The tools that match the context declared by the session; `None` without a context, or if
    /// the matching tools are not known.
    pub asked: Option<RequestedTools>,
    /// Whether the session declares a context, even if the matching tools are not known.
    pub has_context: bool,
}

/// The forecasts for a call.
#[derive(Clone, Copy, Debug)]
pub struct CallForecasts<'a> {
    /// The forecast of the call itself.
    pub next: &'a CatalogForecast,
    /// For the first call of a session, the shares of the tools in those that the session uses.
    pub at_start: &'a CatalogForecast,
    /// For the first call of a tool, the shares of the other tools in those that the session uses
    /// later, if a search has found the tool.
    pub after_search: &'a CatalogForecast,
}

impl<'a> CallForecasts<'a> {
    /// Returns the forecasts of a predictor that predicts nothing but the next call.
    #[must_use]
    pub fn of_next(next: &'a CatalogForecast) -> Self {
        Self {
            next,
            at_start: next,
            after_search: next,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallMoment<'a> {
    /// The forecast of the call.
    pub(super) forecast: &'a CatalogForecast,
    /// The forecast for a list that stays.
    pub(super) at_start: &'a CatalogForecast,
    /// The session, if it begins with this call.
    pub(super) begins: Option<&'a SimulatedSession>,
    /// Tools that the session called before.
    pub(super) used: &'a ToolSet,
}

/// The decisions of a policy.
pub(super) trait ListRule: std::fmt::Debug + Send {
    /// Updates `listed` to the tools that the client sees before a call. Returns whether the client
    /// needs a new list for that: tools found by a search are known to it without one. On entry
    /// `listed` has the tools seen before; it is empty when a session begins.
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool;

    /// Adds the tools whose definitions a search answer carries to `listed`. `forecast` is that for
    /// the session after the search. Returns the number of definitions; `None` if answers carry
    /// none.
    fn answer_search(
        &mut self,
        _forecast: &CatalogForecast,
        _found: usize,
        _listed: &mut ToolSet,
    ) -> Option<usize> {
        None
    }

    /// Learns whether the called tool was in the list.
    fn learn(&mut self, _was_listed: bool) {}

    /// Learns the position of the called tool.
    fn on_call(&mut self, _forecasts: &CallForecasts<'_>, _tool: usize) {}
}

/// Results of a policy, as means over the calls or the sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListMetrics {
    /// Share of calls whose tool the client saw before.
    pub coverage: f64,
    /// Coverage of the first call of each tool in a session.
    pub first_use_coverage: f64,
    /// Mean number of tools that the client saw before a call.
    pub mean_size: f64,
    /// Mean share of the catalog that the client did not see.
    pub reduction: f64,
    /// Mean number of searches in a session: first uses that were not covered.
    pub searches_per_session: f64,
    /// Searches per session for each fifth of the sessions, the earliest first, to show the effect
    /// of learning. 0 for a fifth without a session.
    pub searches_by_fifth: [f64; 5],
    /// Mean number of list changes within a session.
    pub changes_per_session: f64,
    /// Price of all prompts, divided by the price of showing all tools.
    pub cost_vs_all: f64,
    /// Like `cost_vs_all`, with each search counted [`ListPrices::search_weight`] times.
    pub weighed_cost: f64,
    /// Share of sessions whose prompts cost more than with all tools shown.
    pub dearer_sessions: f64,
    /// Price of the most expensive session, divided by the price of showing it all tools.
    pub dearest_session: f64,
}

/// The list of a fixed length with the lowest cost in hindsight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestFixed {
    /// Length of the list.
    pub max_tools: usize,
    /// [`ListMetrics::weighed_cost`] of the list.
    pub weighed_cost: f64,
}

/// Returns the lengths of fixed lists to compare in hindsight: the sizes of [`LIST_SIZES`] within
/// `max_tools` and the catalog, `max_tools`, and the length of the catalog.
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

/// A simulation of a policy on recorded calls.
///
/// Prices follow [`CostModel`]: the first list of a session is written to the prompt cache, and
/// every call reads list and context from it. A change of the list writes both again. A search is a
/// prompt of its own.
#[derive(Debug)]
pub struct ListSimulation {
    rule: Box<dyn ListRule>,
    costs: CostModel,
    search_weight: f64,
    n_tools: usize,
    listed: ToolSet,
    used: ToolSet,
    /// Number of searches in each session.
    searches: Vec<u32>,
    n_calls: u64,
    n_first_uses: u64,
    n_covered: u64,
    n_changes: u64,
    n_listed: u64,
    /// Price of the sessions before the running one.
    cost: f64,
    /// Part of all prices that is paid for searches.
    searching: f64,
    running: RunningSession,
    n_dearer: u64,
    dearest: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RunningSession {
    n_calls: u64,
    cost: f64,
}

impl ListSimulation {
    /// Returns the simulation before any call.
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
            running: RunningSession::default(),
            n_dearer: 0,
            dearest: 0.0,
        }
    }

    /// Adds a call whose predictor predicts nothing but the next call, see [`Self::add_call`].
    pub fn add(
        &mut self,
        forecast: &CatalogForecast,
        called: usize,
        begins: Option<&SimulatedSession>,
    ) {
        self.add_call(&CallForecasts::of_next(forecast), called, begins);
    }

    /// Adds a call: its forecasts, the position of the called tool, and the session if one begins
    /// with this call. The first call of all must begin a session.
    ///
    /// A tool outside the catalog is never covered.
    pub fn add_call(
        &mut self,
        forecasts: &CallForecasts<'_>,
        called: usize,
        begins: Option<&SimulatedSession>,
    ) {
        if begins.is_some() {
            self.n_dearer += u64::from(self.exceeds_show_all_cost());
            self.dearest = self.dearest.max(self.running_cost_ratio());
            self.cost += std::mem::take(&mut self.running).cost;
            self.searches.push(0);
            self.used.clear();
            // The rules expect an empty list when a session begins.
            self.listed.clear();
        }
        let moment = CallMoment {
            forecast: forecasts.next,
            at_start: forecasts.at_start,
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
            let after = forecasts.after_search;
            let carried = (self.rule).answer_search(after, called, &mut self.listed);
            let search = match carried {
                None => self.costs.search(n_listed),
                Some(n_inline) => self.costs.search_with_inline(n_listed, n_inline),
            };
            self.running.cost += search;
            self.searching += search;
        }
        self.used.insert(called);
        self.rule.on_call(forecasts, called);
        self.rule.learn(was_listed);
    }

    /// Returns whether the running session costs more than with all tools shown. Differences below
    /// a millionth are rounding errors and do not count.
    fn exceeds_show_all_cost(&self) -> bool {
        self.running_cost_ratio() > 1.0 + 1e-6
    }

    /// Returns the price of the running session, divided by the price of showing it all tools.
    fn running_cost_ratio(&self) -> f64 {
        let showing_all = (self.costs).showing_all(self.n_tools, self.running.n_calls, 1);
        if self.running.n_calls > 0 && showing_all > 0.0 {
            self.running.cost / showing_all
        } else {
            0.0
        }
    }

    /// Returns the mean number of searches of a session in one fifth of the sessions so far.
    fn searches_of_fifth(&self, fifth: usize) -> f64 {
        let n_sessions = self.searches.len();
        let part = &self.searches[fifth * n_sessions / 5..(fifth + 1) * n_sessions / 5];
        ratio(sum(part), part.len())
    }

    /// Returns the metrics so far; all 0 before the first call.
    #[must_use]
    pub fn metrics(&self) -> ListMetrics {
        let mean_size = ratio(self.n_listed, self.n_calls);
        let n_sessions = self.searches.len() as u64;
        let n_searches = sum(&self.searches);
        let showing_all = (self.costs).showing_all(self.n_tools, self.n_calls, n_sessions);
        // Each search is for a first use that was not covered.
        let n_first_uses_covered = self.n_first_uses - n_searches;
        ListMetrics {
            coverage: ratio(self.n_covered, self.n_calls),
            first_use_coverage: ratio(n_first_uses_covered, self.n_first_uses),
            mean_size,
            reduction: if self.n_calls == 0 {
                0.0
            } else {
                1.0 - mean_size / to_f64(self.n_tools.max(1))
            },
            searches_per_session: ratio(n_searches, n_sessions),
            searches_by_fifth: [0, 1, 2, 3, 4].map(|fifth| self.searches_of_fifth(fifth)),
            changes_per_session: ratio(self.n_changes, n_sessions),
            cost_vs_all: price_ratio(showing_all, self.cost + self.running.cost),
            weighed_cost: price_ratio(
                showing_all,
                self.cost + self.running.cost + (self.search_weight - 1.0) * self.searching,
            ),
            dearest_session: self.dearest.max(self.running_cost_ratio()),
            dearer_sessions: ratio(
                self.n_dearer + u64::from(self.exceeds_show_all_cost()),
                n_sessions,
            ),
        }
    }
}

/// Returns a price divided by another; 0 if the divisor is 0.
fn price_ratio(all: f64, price: f64) -> f64 {
    if all > 0.0 { price / all } else { 0.0 }
}

fn sum(searches: &[u32]) -> u64 {
    searches.iter().map(|n| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests;
