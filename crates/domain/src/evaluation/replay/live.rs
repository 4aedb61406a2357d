//! The list of a work session as the proxy chooses it by default.

use super::super::Forecast;
use super::fixed::carry;
use super::simulation::{ListRule, Moment, SimulatedCatalog, SimulatedOptions, SimulatedSession};
use super::tool_set::ToolSet;
use crate::listing::{
    Candidates, Evidence, Finding, ListBounds, ListPrices, SessionTrial, SizeHistory, Standing,
    choose, contextual, size_of,
};

/// The rule of the policy `epoch` before revision 2026-07-28: chosen at the first call of a session
/// and left as it is. How long lists are is learned from one session to the next, as in the proxy.
/// The answer of a search carries the found tool and likely ones that the client does not know yet.
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

    fn standing(&self, _position: usize) -> Standing {
        Standing::Free
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

    /// Returns the positions of the tools that a session begins with.
    fn chosen(&self, session: &SimulatedSession, ranked: &[(usize, f64)]) -> Vec<usize> {
        let outlook = (self.history).outlook(session.party, false, &self.prices.shape);
        let evidence = Evidence {
            outlook: &outlook,
            finding: Finding::ProxySearch,
            all_tokens: self
                .catalog
                .tokens_per_tool
                .saturating_mul(self.catalog.n_tools as u64),
        };
        let size = size_of(&self.catalog, &evidence, &self.bounds, &self.prices);
        if let Some(asked) = &session.asked {
            let size = size.unwrap_or(self.bounds.max_tools);
            let forecast = (self.history.knows_texts()).then_some((ranked, size));
            let may_write = |at: usize| self.catalog.may_write.get(at).copied().unwrap_or(true);
            return contextual(&self.catalog, asked, forecast, &self.bounds, may_write).shown;
        }
        let Ok(max_tools) = size else {
            return (0..self.catalog.n_tools).collect();
        };
        let bounds = ListBounds {
            max_tools,
            ..self.bounds
        };
        choose(&self.catalog, ranked, &bounds).shown
    }

    /// Learns from the session that is over.
    fn end_session(&mut self) {
        if let Some((session, trial)) = self.running.take() {
            self.history.add(session.party, &trial.outcome());
            self.history.add_context(session.has_context);
        }
    }
}

impl ListRule for LiveRule {
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool {
        let Some(session) = moment.begins else {
            return false;
        };
        self.end_session();
        let forecast = moment.forecast;
        let ranked: Vec<(usize, f64)> = if self.history == SizeHistory::default() {
            // Nothing was learned: no tool is likelier than another.
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
        listed.extend(self.chosen(session, &ranked));
        let ranked = ranked.into_iter().map(|(tool, _)| tool);
        self.running = Some((session.clone(), SessionTrial::new(ranked)));
        true
    }

    fn answer_search(
        &mut self,
        forecast: &Forecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        Some(carry(forecast, found, self.n_inline, listed))
    }

    fn called(&mut self, forecast: &Forecast, tool: usize) {
        if let Some((_, trial)) = &mut self.running {
            let likely = || {
                let ranking = forecast.ranking().iter();
                ranking.map(|tool| (*tool, forecast.probability(*tool)))
            };
            trial.call(tool, likely);
        }
    }
}
