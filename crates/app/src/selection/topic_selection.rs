//! Selection by the declared context of a client: the tools on its topic come first, even if other
//! tools are more frequent.

use riglm_domain::selection::{
    ListChoice, ReadOnlyHint, RequestedTools, TopicTool, choose_by_intent, is_write, topic,
};

use super::tool_selector::{OfferCandidates, SelectionInputs, default_pool};
use riglm_discovery::search::CatalogTool;

/// Selects the tools on the topic of the declared context, within the bounds. `None` if the context
/// names no topic, or if the operator has a pool for it. `forecast` has the most likely tools and the
/// size of a list, if predictions use texts.
pub(super) fn choose_by_topic(
    inputs: &SelectionInputs<'_>,
    candidates: &OfferCandidates<'_>,
    forecast: Option<(&[(usize, f64)], usize)>,
) -> Option<ListChoice> {
    let (request, options) = (inputs.request, inputs.options());
    let context = request.context()?;
    let tools = inputs.catalog.tools();
    // The operator's pool decides before the topic does.
    if default_pool(options, request, tools).len() < tools.len() {
        return None;
    }
    let described: Vec<TopicTool<'_>> = tools.iter().map(topic_tool).collect();
    let topic = topic(context, &described, inputs.words)?;
    let fits = request.intent.map_or(&[][..], |intent| &intent.fits);
    let asked = RequestedTools::of(&topic, fits);
    let may_write = |at: usize| is_write(described[at].name, described[at].read_only);
    let bounds = options.bounds();
    let choice = choose_by_intent(candidates, &asked, forecast, &bounds, may_write);
    Some(choice)
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
