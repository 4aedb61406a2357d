//! Selection by the declared context of a client: the tools on its topic come first, even if other
//! tools are more frequent.

use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use riglm_domain::selection::{
    ReadOnlyHint, RequestedTools, TopicTool, choose_by_intent, is_write, topic,
};

use super::list_request::ListRequest;
use super::lists::Lists;
use super::selection::{OfferCandidates, SelectedTools};
use riglm_discovery::search::{Catalog, CatalogTool};

impl Lists {
    /// Returns the tools on the topic of the declared context, within the bounds. `None` if the
    /// context names no topic, or if the operator has a pool for it. `forecast` has the most likely
    /// tools and the size of a list, if predictions use texts; otherwise `reason` has the reason
    /// why not.
    pub(super) fn topical(
        &self,
        ask: &ListRequest<'_>,
        offer: &Catalog,
        candidates: &OfferCandidates<'_>,
        forecast: Option<(&[(usize, f64)], usize)>,
        reason: Option<SelectionReason>,
    ) -> Option<SelectedTools> {
        let context = ask.context()?;
        let tools = offer.tools();
        // The operator's pool decides before the topic does.
        if self.default_pool(ask, tools).len() < tools.len() {
            return None;
        }
        let described: Vec<TopicTool<'_>> = tools.iter().map(topic_tool).collect();
        let topic = topic(context, &described, &self.words)?;
        let fits = ask.intent.map_or(&[][..], |intent| &intent.fits);
        let asked = RequestedTools::of(&topic, fits);
        let may_write = |at: usize| is_write(described[at].name, described[at].read_only);
        let bounds = self.options(ask).bounds;
        let choice = choose_by_intent(candidates, &asked, forecast, &bounds, may_write);
        self.warn_of_budget(ask, &choice);
        Some(SelectedTools {
            tools: choice.shown,
            mode: SelectionMode::Context,
            reason,
            search_first: true,
            mass: None,
        })
    }
}

fn topic_tool(tool: &CatalogTool) -> TopicTool<'_> {
    let line = tool.first_line();
    let sentence = line.split_inclusive(['.', '!', '?']).next();
    TopicTool {
        server: tool.tool.upstream.as_str(),
        name: tool.tool.tool.as_str(),
        summary: sentence.unwrap_or_default().to_owned(),
        read_only: ReadOnlyHint::of_definition(&tool.definition),
    }
}
