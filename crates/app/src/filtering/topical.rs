//! The choice by what a client said that it does: the tools that are about it come first, whatever was
//! learned.

use riglm_domain::list_shown::{SelectionMode, SelectionReason};
use riglm_domain::listing::{AskedFor, ReadOnly, TopicTool, contextual, is_write, topic};

use super::ask::ListAsk;
use super::choosing::{Chosen, OfferCandidates};
use super::lists::Lists;
use crate::search::{Offer, OfferedTool};

impl Lists {
    /// Returns the tools that are about what the client said that it does, within the bounds; `None`
    /// where that cannot be told, or a pool of the operator is for it. `forecast` are the most likely
    /// tools with how many a list has of them, where predictions know what texts mean; `reason` says
    /// why they do not.
    pub(super) fn topical(
        &self,
        ask: &ListAsk<'_>,
        offer: &Offer,
        candidates: &OfferCandidates<'_>,
        forecast: Option<(&[(usize, f64)], usize)>,
        reason: Option<SelectionReason>,
    ) -> Option<Chosen> {
        let context = ask.context()?;
        let tools = offer.tools();
        if self.default_pool(ask, tools).len() < tools.len() {
            return None;
        }
        let described: Vec<TopicTool<'_>> = tools.iter().map(described).collect();
        let topic = topic(context, &described, &self.words)?;
        let fits = ask.intent.map_or(&[][..], |intent| &intent.fits);
        let asked = AskedFor::of(&topic, fits);
        let may_write = |at: usize| is_write(described[at].name, described[at].read_only);
        let bounds = self.options(ask).bounds;
        let choice = contextual(candidates, &asked, forecast, &bounds, may_write);
        self.warn_of_budget(ask, &choice);
        Some(Chosen {
            tools: choice.shown,
            mode: SelectionMode::Context,
            reason,
            search_first: true,
            mass: None,
        })
    }
}

fn described(tool: &OfferedTool) -> TopicTool<'_> {
    let line = tool.first_line();
    let sentence = line.split_inclusive(['.', '!', '?']).next();
    TopicTool {
        server: tool.tool.upstream.as_str(),
        name: tool.tool.tool.as_str(),
        summary: sentence.unwrap_or_default().to_owned(),
        read_only: ReadOnly::of_definition(&tool.definition),
    }
}
