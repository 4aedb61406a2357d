//! Tools that can be called in place of one that is held back.

use std::collections::HashSet;

use riglm_domain::listing::ReadOnly;
use riglm_domain::tool::ToolRef;

use super::Limiter;
use crate::filtering::ListAsk;
use crate::safeguards::{Asker, GuardedCall};
use crate::search::{Offer, OfferedTool, nearest_tools};

/// The most that are named.
const MAX_SIMILAR: usize = 2;
/// How many names are looked at where nothing was made ready to be searched.
const N_NAMES: usize = 20;

impl Limiter {
    /// Returns the names of the tools that are most like that of a call, that no limit holds back and
    /// that the operator does not hide, at most two. In place of a tool that only reads others that do
    /// are named.
    pub(super) fn similar(&self, call: &GuardedCall<'_>) -> Vec<String> {
        let (Some(offer), Some(wanted)) = (call.offer, call.offered()) else {
            return Vec::new();
        };
        let closed = self.closed(call.whose(), call.at);
        let hidden = self.hidden(call, offer);
        let reads = |tool: &OfferedTool| ReadOnly::of_definition(&tool.definition) == ReadOnly::Yes;
        let is_read = reads(wanted);
        let is_usable = |tool: &OfferedTool| {
            let is_other = tool.tool != wanted.tool && !hidden.contains(&tool.tool);
            is_other && (!is_read || reads(tool)) && closed.is_free(tool)
        };
        let ranked = self.search.as_ref();
        let ranked = ranked.and_then(|search| search.similar(offer, &wanted.tool));
        let ranked = ranked.unwrap_or_else(|| {
            let name = wanted.tool.tool.as_str();
            nearest_tools(name, offer, N_NAMES)
        });
        let tools = ranked.into_iter().filter_map(|at| offer.tools().get(at));
        let usable = tools.filter(|tool| is_usable(tool));
        usable
            .map(|tool| tool.name.clone())
            .take(MAX_SIMILAR)
            .collect()
    }

    /// Returns the tools that the operator hides from who calls. Where lists are not chosen as a whole
    /// these are those that they leave out.
    fn hidden(&self, call: &GuardedCall<'_>, offer: &Offer) -> HashSet<ToolRef> {
        let Some(lists) = &self.lists else {
            let hidden = offer.tools().iter().filter(|tool| tool.is_hidden);
            return hidden.map(|tool| tool.tool.clone()).collect();
        };
        let stated = call.asker.and_then(Asker::stated);
        let ask = ListAsk {
            principal: call.principal,
            client: "",
            client_hash: call.asker.map(Asker::client_hash),
            profile: call.profile,
            is_modern: false,
            relists: false,
            session: call.together,
            connection: call.asker.map(Asker::connection),
            intent: None,
            stated: stated.as_ref(),
            now: call.now,
        };
        lists.excluded_of(&ask, offer)
    }
}
