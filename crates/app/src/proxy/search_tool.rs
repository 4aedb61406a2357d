//! The tool by which clients search for tools: the proxy lists it and answers its calls itself.
//!
//! Where it stands in lists and how a call of it is taken is up to `relay::search` for one upstream
//! and to `united::search` for several; what is here is the same for both.

mod answer;
mod arguments;
mod definition;
mod offers;
mod session_search;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::protocol::Revision;

use self::definition::Definitions;
use crate::search::ToolSearch;

pub(super) use answer::Asking;
pub(super) use offers::{Offers, server_text};
pub(super) use session_search::SessionSearch;

/// The tools of the proxy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaTools {
    /// The name of the tool for searching; `None` where there is none.
    pub search: Option<ToolName>,
}

/// The tool for searching.
#[derive(Debug)]
pub(super) struct SearchTool {
    pub(super) service: Arc<ToolSearch>,
    pub(super) offers: Offers,
    name: ToolName,
    definitions: Definitions,
    was_warned: AtomicBool,
    was_warned_of_limit: AtomicBool,
}

impl SearchTool {
    /// Returns the tool under this name.
    pub(super) fn new(service: Arc<ToolSearch>, name: ToolName) -> Self {
        Self {
            service,
            offers: Offers::default(),
            definitions: Definitions::new(name.as_str()),
            name,
            was_warned: AtomicBool::new(false),
            was_warned_of_limit: AtomicBool::new(false),
        }
    }

    /// Returns the name under which it is listed.
    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the JSON text of its definition with what that revision knows; of none in
    /// particular, with what all of them know.
    pub(super) fn definition(&self, revision: Option<&Revision>) -> &str {
        self.definitions.of(revision)
    }

    /// Says, once, that an upstream has a tool of the same name, which is the one that is listed.
    pub(super) fn warn_of_clash(&self, upstream: &UpstreamName) {
        if !self.was_warned.swap(true, Ordering::Relaxed) {
            let name = self.name();
            tracing::warn!(
                upstream = %upstream,
                "upstream {upstream} has a tool named {name} itself, so that the one for searching \
                 is left out; set search.tool_name to another name"
            );
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
}
