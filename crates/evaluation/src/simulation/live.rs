//! The default list policy of the proxy, for simulation.

use super::super::CatalogForecast;
use super::fixed_size::add_search_answer;
use super::list_simulation::{
    CallForecasts, CallMoment, ListRule, SimulatedCatalog, SimulatedOptions, SimulatedSession,
};
use super::tool_set::ToolSet;
use riglm_domain::selection::{
    Candidates, HiddenToolSearch, ListBounds, ListPrices, SessionTrial, SizeEvidence, SizeHistory,
    ToolDecision, choose_by_intent, choose_tools, list_size,
};

/// The rule of the policy `epoch` before revision 2026-07-28: the list is chosen at the first call
/// of a session and does not change. The list length is learned from one session to the next, as in
/// the proxy. The answer of a search carries the found tool and likely ones that the client does
/// not know yet.
#[derive(Debug)]
pub(super) struct LiveRule {
    bounds: ListBounds,
    prices: ListPrices,
    n_inline: usize,
    catalog: SimulatedCatalog,
    history: SizeHistory,
    running: Option<(SimulatedSession, SessionTrial<usize>)>,
}

impl Candidates for SimulatedCatalog {
    fn len(&self) -> usize {
        self.n_tools
    }

    fn decision(&self, _position: usize) -> ToolDecision {
        ToolDecision::Free
    }

    fn tokens(&self, _position: usize) -> u64 {
        self.tokens_per_tool
    }
}

impl LiveRule {
    pub(super) fn new(catalog: &SimulatedCatalog, options: &SimulatedOptions) -> Self {
        Self {
            bounds: options.bounds,
            prices: ListPrices {
                n_inline: u32::try_from(options.n_inline + 1).unwrap_or(u32::MAX),
                ..options.prices
            },
            n_inline: options.n_inline,
            catalog: catalog.clone(),
            history: SizeHistory::default(),
            running: None,
        }
    }

    /// Returns the positions of the tools in the first list of a session.
    fn choose_list(&self, session: &SimulatedSession, ranked: &[(usize, f64)]) -> Vec<usize> {
        let outlook = (self.history).outlook(session.party, false, &self.prices.shape);
        let evidence = SizeEvidence {
            outlook: &outlook,
            finding: HiddenToolSearch::ProxySearch,
            all_tokens: self
                .catalog
                .tokens_per_tool
                .saturating_mul(self.catalog.n_tools as u64),
        };
        let size = list_size(&self.catalog, &evidence, &self.bounds, &self.prices);
        if let Some(asked) = &session.asked {
            let size = size.unwrap_or(self.bounds.max_tools);
            let forecast = (self.history.knows_texts()).then_some((ranked, size));
            let may_write = |at: usize| self.catalog.may_write.get(at).copied().unwrap_or(true);
            return choose_by_intent(&self.catalog, asked, forecast, &self.bounds, may_write).shown;
        }
        let Ok(max_tools) = size else {
            return (0..self.catalog.n_tools).collect();
        };
        let bounds = ListBounds {
            max_tools,
            ..self.bounds
        };
        choose_tools(&self.catalog, ranked, &bounds).shown
    }

    /// Adds the ended session to the history of list sizes.
    fn end_session(&mut self) {
        if let Some((session, trial)) = self.running.take() {
            self.history.add(session.party, &trial.outcome());
            self.history.add_context(session.has_context);
        }
    }
}

impl ListRule for LiveRule {
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool {
        let Some(session) = moment.begins else {
            return false;
        };
        self.end_session();
        let forecast = moment.at_start;
        let ranked: Vec<(usize, f64)> = if self.history == SizeHistory::default() {
            // Without history no tool is likelier than another.
            self.catalog
                .first_order
                .iter()
                .map(|tool| (*tool, 0.0))
                .collect()
        } else {
            let ranking = forecast.ranking().iter();
            ranking
                .map(|tool| (*tool, forecast.probability(*tool)))
                .collect()
        };
        listed.extend(self.choose_list(session, &ranked));
        let ranked = ranked.into_iter().map(|(tool, _)| tool);
        self.running = Some((session.clone(), SessionTrial::new(ranked)));
        true
    }

    fn answer_search(
        &mut self,
        forecast: &CatalogForecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        Some(add_search_answer(forecast, found, self.n_inline, listed))
    }

    fn on_call(&mut self, forecasts: &CallForecasts<'_>, tool: usize) {
        if let Some((_, trial)) = &mut self.running {
            let next = forecasts.next;
            let likely = || {
                let ranking = next.ranking().iter();
                ranking.map(|tool| (*tool, next.probability(*tool)))
            };
            let answer = || forecasts.after_search.above_mean().to_vec();
            trial.call(tool, likely, answer);
        }
    }
}
