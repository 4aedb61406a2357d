//! The tools of the proxy itself: the one for searching, the one that calls any other, and the one by
//! which a client says what it does. The proxy lists them and answers their calls itself.
//!
//! Where they stand in lists and how a call of one is taken is up to `relay::search` for one upstream
//! and to `united::search` for several; what is here is the same for both.

mod answer;
mod argument_check;
mod arguments;
mod call_tool;
mod definition;
pub(super) mod help;
mod offers;
mod own;
mod rating;
mod reading_on;
mod recommending;
mod schema_cost;
mod session_search;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::id::UpstreamName;
use riglm_domain::protocol::Revision;

use self::argument_check::ArgumentChecks;
use self::definition::Definitions;
use crate::search::{Offer, ToolSearch};

pub(super) use answer::{Asking, failure};
pub(super) use call_tool::{CallMaker, Unwrapped};
pub(super) use offers::{Offers, server_text};
pub use own::MetaTools;
pub(super) use own::{OwnTool, Taken};
pub(super) use session_search::SessionSearch;

/// The tools of the proxy itself, of which the one for searching is always there.
#[derive(Debug)]
pub(super) struct SearchTool {
    pub(super) service: Arc<ToolSearch>,
    names: MetaTools,
    definitions: Vec<(OwnTool, Definitions)>,
    checks: Arc<ArgumentChecks>,
    warned_of: [AtomicBool; OwnTool::ALL.len()],
    was_warned_of_limit: AtomicBool,
}

impl SearchTool {
    /// Returns the tools under these names; `None` where there is none for searching.
    pub(super) fn new(service: Arc<ToolSearch>, names: MetaTools) -> Option<Self> {
        names.search.as_ref()?;
        let all = OwnTool::ALL.into_iter();
        let definitions = all.filter_map(|tool| {
            let name = names.name(tool)?;
            Some((tool, Definitions::new(tool, name)))
        });
        Some(Self {
            service,
            definitions: definitions.collect(),
            names,
            checks: Arc::default(),
            warned_of: Default::default(),
            was_warned_of_limit: AtomicBool::new(false),
        })
    }

    /// Lets one principal have as much of the work done at once as `of_one` says of what may be.
    pub(super) fn share(&self, of_one: impl Fn(usize) -> usize) {
        self.service.share(&of_one);
        self.checks.share(&of_one);
    }

    /// Returns the name of one of them; `None` where it is switched off.
    pub(super) fn name(&self, tool: OwnTool) -> Option<&str> {
        self.names.name(tool)
    }

    /// Returns the one that has this name.
    pub(super) fn named(&self, name: &str) -> Option<OwnTool> {
        let mut all = OwnTool::ALL.into_iter();
        all.find(|tool| self.name(*tool) == Some(name))
    }

    /// Returns those whose names are among these.
    pub(super) fn taken_by(&self, is_name: impl Fn(&str) -> bool) -> Taken {
        let mut taken = Taken::default();
        for tool in OwnTool::ALL {
            if self.name(tool).is_some_and(&is_name) {
                taken.add(tool);
            }
        }
        taken
    }

    /// Returns the JSON texts of their definitions, in the order in which they are listed, with what
    /// that revision knows; of none in particular, with what all of them know. Those whose names
    /// are taken are left out.
    pub(super) fn definitions(
        &self,
        revision: Option<&Revision>,
        taken: Taken,
    ) -> Vec<(OwnTool, &str)> {
        let left = self
            .definitions
            .iter()
            .filter(|(tool, _)| !taken.has(*tool));
        left.map(|(tool, definitions)| (*tool, definitions.of(revision)))
            .collect()
    }

    /// Says, once for each, that an upstream has tools of these names, which are those that are
    /// listed.
    pub(super) fn warn_of_clash(&self, upstream: &UpstreamName, taken: Taken) {
        for (tool, was_warned) in OwnTool::ALL.into_iter().zip(&self.warned_of) {
            let Some(name) = self.name(tool).filter(|_| taken.has(tool)) else {
                continue;
            };
            if !was_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    upstream = %upstream,
                    "upstream {upstream} has a tool named {name} itself, so that the one of the \
                     proxy is left out; set {} to another name",
                    tool.name_key()
                );
            }
        }
    }

    /// Says, once, that an upstream lists more tools than are searched.
    pub(super) fn warn_of_limit(&self, upstream: &UpstreamName, n_tools: usize) {
        if !self.was_warned_of_limit.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                upstream = %upstream,
                "upstream {upstream} lists more tools than are searched: searches find the first \
                 {n_tools} only"
            );
        }
    }

    /// Returns the own tools whose names stand in an offer.
    pub(super) fn taken_in(&self, offer: &Offer) -> Taken {
        self.taken_by(|name| offer.tools().iter().any(|tool| tool.name == name))
    }
}
