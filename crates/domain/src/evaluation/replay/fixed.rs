//! Lists of a fixed length.

use super::super::Forecast;
use super::simulation::{ListRule, Moment};
use super::tool_set::ToolSet;

/// The list that a session begins with, for the whole session.
#[derive(Debug)]
pub(super) struct StaticRule {
    max_tools: usize,
    n_inline: Option<usize>,
}

impl StaticRule {
    /// `n_inline` is how many tools the answer of a search carries besides the found one; with
    /// `None` it carries none, and the found tool does not become listed either.
    pub(super) fn new(max_tools: usize, n_inline: Option<usize>) -> Self {
        Self {
            max_tools,
            n_inline,
        }
    }
}

impl ListRule for StaticRule {
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool {
        let begins = moment.begins.is_some();
        if begins {
            let ranking = moment.forecast.ranking().iter();
            listed.extend(ranking.take(self.max_tools).copied());
        }
        begins
    }

    fn answer_search(
        &mut self,
        forecast: &Forecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        Some(carry(forecast, found, self.n_inline?, listed))
    }
}

/// Has the client know what the answer of a search carries: the found tool, and `n_inline` likely
/// ones that it does not know yet. Returns how many tools that are.
pub(super) fn carry(
    forecast: &Forecast,
    found: usize,
    n_inline: usize,
    listed: &mut ToolSet,
) -> usize {
    let before = listed.len();
    listed.insert(found);
    for tool in forecast.ranking() {
        if listed.len() > before + n_inline {
            break;
        }
        listed.insert(*tool);
    }
    listed.len() - before
}

/// The most likely tools before each call.
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
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool {
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
