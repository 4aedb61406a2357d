//! Lists of a fixed length.

use super::super::Forecast;
use super::simulation::ListRule;
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
    fn list(
        &mut self,
        forecast: &Forecast,
        begins: bool,
        _used: &ToolSet,
        listed: &mut ToolSet,
    ) -> bool {
        if begins {
            listed.extend(forecast.ranking().iter().take(self.max_tools).copied());
        }
        begins
    }

    fn answer_search(
        &mut self,
        forecast: &Forecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        let n_inline = self.n_inline?;
        let before = listed.len();
        listed.insert(found);
        for tool in forecast.ranking() {
            if listed.len() > before + n_inline {
                break;
            }
            listed.insert(*tool);
        }
        Some(listed.len() - before)
    }
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
    fn list(
        &mut self,
        forecast: &Forecast,
        _begins: bool,
        _used: &ToolSet,
        listed: &mut ToolSet,
    ) -> bool {
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
