//! Similar tools to suggest instead of a refused one.

use std::collections::HashSet;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::selection::ReadOnlyHint;

use super::Limiter;
use crate::safeguards::{GuardedCall, Requester};
use crate::selection::ListRequest;
use riglm_discovery::search::{Catalog, CatalogTool, nearest_tools};

/// The most suggestions in a text.
const MAX_SIMILAR: usize = 2;
/// The number of nearest names to check if there is no search index.
const N_NAMES: usize = 20;

impl Limiter {
    /// Returns the names of at most two tools that are most similar to the tool of a call. They are
    /// not over a limit, and the operator does not hide them. For a read-only tool, only read-only
    /// tools are suggested.
    pub(super) fn similar_tools(&self, call: &GuardedCall<'_>) -> Vec<String> {
        let (Some(catalog), Some(wanted)) = (call.catalog, call.catalog_tool()) else {
            return Vec::new();
        };
        let closed = self.reached_limits(call.whose(), call.at);
        let hidden = self.hidden_tools(call, catalog);
        let reads =
            |tool: &CatalogTool| ReadOnlyHint::of_definition(&tool.definition) == ReadOnlyHint::Yes;
        let is_read = reads(wanted);
        let is_usable = |tool: &CatalogTool| {
            let is_other = tool.tool != wanted.tool && !hidden.contains(&tool.tool);
            is_other && (!is_read || reads(tool)) && closed.is_free(tool)
        };
        let ranked = self.search.as_ref();
        let ranked = ranked.and_then(|search| search.similar(catalog, &wanted.tool));
        let name = wanted.tool.tool.as_str();
        let ranked = ranked.unwrap_or_else(|| nearest_tools(name, catalog, N_NAMES));
        let tools = ranked.into_iter().filter_map(|at| catalog.tools().get(at));
        let usable = tools.filter(|tool| is_usable(tool)).take(MAX_SIMILAR);
        usable.map(|tool| tool.name.clone()).collect()
    }

    /// Returns the tools that the operator hides from this client. Without learned lists these are
    /// the hidden tools of the catalog.
    fn hidden_tools(&self, call: &GuardedCall<'_>, catalog: &Catalog) -> HashSet<ToolRef> {
        let Some(lists) = self.filter.lists() else {
            let hidden = catalog.tools().iter().filter(|tool| tool.is_hidden);
            return hidden.map(|tool| tool.tool.clone()).collect();
        };
        let stated = call.asker.and_then(Requester::stated_intent);
        let ask = ListRequest {
            principal: call.principal,
            client: "",
            client_hash: call.asker.map(Requester::client_hash),
            profile: call.profile,
            era: Era::Legacy,
            refetches_lists: false,
            loads_on_demand: false,
            session: call.session_key,
            connection: call.asker.map(Requester::connection),
            intent: None,
            stated: stated.as_ref(),
            now: call.now,
        };
        lists.excluded_tools(&ask, catalog)
    }
}
