//! Lists of a fixed length.

use super::super::CatalogForecast;
use super::list_simulation::{CallMoment, ListRule};
use super::tool_set::ToolSet;

/// Keeps the list from the first call of a session for the whole session.
#[derive(Debug)]
pub(super) struct StaticRule {
    max_tools: usize,
    n_inline: Option<usize>,
}

impl StaticRule {
    /// `n_inline` is the number of tools that the answer of a search carries in addition to the
    /// found one. With `None` it carries no definitions, and the found tool is not added to the
    /// list either.
    pub(super) fn new(max_tools: usize, n_inline: Option<usize>) -> Self {
        Self {
            max_tools,
            n_inline,
        }
    }
}

impl ListRule for StaticRule {
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool {
        let begins = moment.begins.is_some();
        if begins {
            let ranking = moment.at_start.ranking().iter();
            listed.extend(ranking.take(self.max_tools).copied());
        }
        begins
    }

    fn answer_search(
        &mut self,
        forecast: &CatalogForecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        Some(add_search_answer(forecast, found, self.n_inline?, listed))
    }
}

/// Adds the tools of a search answer to the tools the client knows: the found tool, and up to
/// `n_inline` likely ones that it does not know yet. Tools below the mean probability are not
/// likely. Returns the number of added tools.
pub(super) fn add_search_answer(
    forecast: &CatalogForecast,
    found: usize,
    n_inline: usize,
    listed: &mut ToolSet,
) -> usize {
    let before = listed.len();
    listed.insert(found);
    for tool in forecast.above_mean() {
        if listed.len() > before + n_inline {
            break;
        }
        listed.insert(*tool);
    }
    listed.len() - before
}

/// Lists the most likely tools before each call.
#[derive(Debug)]
pub(super) struct RerankRule {
    max_tools: usize,
}

impl RerankRule {
    pub(super) fn new(max_tools: usize) -> Self {
        Self { max_tools }
    }
}

impl ListRule for RerankRule {
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool {
        let forecast = moment.forecast;
        let most_likely = &forecast.ranking()[..self.max_tools.min(forecast.n_tools())];
        let stays = listed.len() == most_likely.len()
            && most_likely.iter().all(|tool| listed.contains(*tool));
        if !stays {
            listed.clear();
            listed.extend(most_likely.iter().copied());
        }
        !stays
    }
}
