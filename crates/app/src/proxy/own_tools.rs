//! The own tools of the proxy, among them tool search, `call_tool` and the tool for setting the
//! context. The proxy lists them and answers their calls.
//!
//! `local_tools` receives their calls. `list_composer` and `upstream_session::tool_list_answers` place
//! them in lists.

mod answer;
mod arguments;
pub(super) mod call_hints;
mod call_tool;
mod catalog_cache;
mod definition;
mod own_tool;
mod paging;
mod rating;
mod recommending;
mod session_search;
mod session_view;
mod skill_search;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::protocol::Revision;

use self::definition::Definitions;
use riglm_discovery::search::{Catalog, ToolSearch};

pub(super) use answer::{ToolCaller, failure};
pub(super) use catalog_cache::{CatalogCache, server_text};
pub(super) use definition::with_servers;
use own_tool::ListedOwnTools;
pub(super) use own_tool::TakenNames;
pub use own_tool::{OwnTool, OwnToolNames, OwnToolSet};
pub(super) use session_search::SessionSearch;
pub(super) use skill_search::skills_of;

/// The own tools of the proxy. The search tool is always among them.
#[derive(Debug)]
pub(super) struct OwnTools {
    pub(super) service: Arc<ToolSearch>,
    names: OwnToolNames,
    listed: ListedOwnTools,
    definitions: Vec<(OwnTool, Definitions)>,
    warned_of: [AtomicBool; OwnTool::ALL.len()],
    was_warned_of_limit: AtomicBool,
}

impl OwnTools {
    /// Returns the own tools under these names, except for those in `unlisted`. Returns `None` if
    /// the search tool has no name.
    pub(super) fn new(
        service: Arc<ToolSearch>,
        names: OwnToolNames,
        unlisted: OwnToolSet,
    ) -> Option<Self> {
        names.search.as_ref()?;
        let all = OwnTool::ALL.into_iter();
        let definitions = all.filter_map(|tool| {
            let name = names.name(tool)?;
            Some((tool, Definitions::new(tool, name)))
        });
        Some(Self {
            service,
            listed: ListedOwnTools::new(unlisted.others()),
            definitions: definitions.collect(),
            names,
            warned_of: Default::default(),
            was_warned_of_limit: AtomicBool::new(false),
        })
    }

    /// Limits the concurrent work of one principal. `of_one` maps a total limit to the limit of one
    /// principal.
    pub(super) fn share(&self, of_one: impl Fn(usize) -> usize) {
        self.service.limit_per_principal(of_one);
    }

    /// Replaces the set of tools that no list has; returns whether it changed.
    pub(super) fn set_unlisted(&self, tools: OwnToolSet) -> bool {
        self.listed.set(tools.others())
    }

    /// Returns the tools that lists have.
    pub(super) fn listed_tools(&self) -> OwnToolSet {
        self.listed.now()
    }

    /// Returns whether lists have any of the tools.
    pub(super) fn are_listed(&self) -> bool {
        self.listed.are_any()
    }

    /// Returns the name of an own tool. Returns `None` if lists do not have it.
    pub(super) fn name(&self, tool: OwnTool) -> Option<&str> {
        let name = self.names.name(tool);
        name.filter(|_| self.listed.now().has(tool))
    }

    /// Returns the names of the own tools that lists have, without those that a catalog has.
    pub(super) fn free_names(&self, catalog: Option<&Catalog>) -> OwnToolNames {
        let taken = catalog.map_or_else(TakenNames::default, |catalog| self.taken_in(catalog));
        self.names.without(taken.and(self.listed.now().others()))
    }

    /// Returns the own tool with this name, if lists have it or had it before.
    pub(super) fn tool_named(&self, name: &str) -> Option<OwnTool> {
        let mut all = OwnTool::ALL.into_iter();
        let tool = all.find(|tool| self.names.name(*tool) == Some(name));
        tool.filter(|tool| self.listed.ever().has(*tool))
    }

    /// Returns the own tools whose names satisfy `is_name`, which means that an upstream uses them.
    pub(super) fn taken_by(&self, is_name: impl Fn(&str) -> bool) -> TakenNames {
        let mut taken = TakenNames::default();
        for tool in OwnTool::ALL {
            if self.names.name(tool).is_some_and(&is_name) {
                taken.add(tool);
            }
        }
        taken
    }

    /// Returns the name of an own tool that lists have now or had before.
    pub(super) fn known_name(&self, tool: OwnTool) -> Option<&str> {
        let name = self.names.name(tool);
        name.filter(|_| self.listed.ever().has(tool))
    }

    /// Returns the JSON definitions of the own tools in list order, without the tools in
    /// `left_out`. The definitions suit the given revision; without a revision they suit all
    /// revisions.
    pub(super) fn definitions(
        &self,
        revision: Option<&Revision>,
        left_out: OwnToolSet,
    ) -> Vec<(OwnTool, &str)> {
        let listed = self.listed.now();
        let left = self
            .definitions
            .iter()
            .filter(|(tool, _)| listed.has(*tool) && !left_out.has(*tool));
        left.map(|(tool, definitions)| (*tool, definitions.of(revision)))
            .collect()
    }

    /// Warns once for each own tool whose name an upstream uses for a listed tool.
    pub(super) fn warn_of_clash(&self, upstream: &UpstreamName, taken: TakenNames) {
        for (tool, was_warned) in OwnTool::ALL.into_iter().zip(&self.warned_of) {
            let Some(name) = self.name(tool).filter(|_| taken.has(tool)) else {
                continue;
            };
            if !was_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    upstream = %upstream,
                    "upstream {upstream} has a tool named {name}, so riglm does not list its own \
                     tool of this name; set {} to another name",
                    tool.name_key()
                );
            }
        }
    }

    /// Warns once that an upstream lists more tools than the search covers.
    pub(super) fn warn_of_limit(&self, upstream: &UpstreamName, n_tools: usize) {
        if !self.was_warned_of_limit.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                upstream = %upstream,
                "upstream {upstream} lists more tools than the search limit: only the first \
                 {n_tools} are searched"
            );
        }
    }

    /// Returns the own tools whose names occur in a catalog.
    pub(super) fn taken_in(&self, catalog: &Catalog) -> TakenNames {
        self.taken_by(|name| catalog.tools().iter().any(|tool| tool.name == name))
    }
}
