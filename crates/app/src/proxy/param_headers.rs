//! The tool arguments of an upstream that are mirrored into HTTP headers (`x-mcp-header`), from its
//! tool lists.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use riglm_domain::catalog::tool::ToolPage;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::header::{
    HeaderMismatch, ParamAnnotation, annotations, check_params, param_headers,
};
use riglm_domain::mcp::message::{Message, ParamHeader};

/// The schema member that requests a header.
const MARK: &[u8] = b"x-mcp-header";
/// The maximum number of tools with such arguments per upstream.
const MAX_TOOLS: usize = 5_000;

#[derive(Debug, Default)]
pub(super) struct ParamHeaders {
    // Whether any tool has annotated arguments. Most upstreams have none, and this flag avoids the
    // lock and the search for them.
    has_any: AtomicBool,
    by_tool: RwLock<HashMap<ToolName, Arc<[ParamAnnotation]>>>,
}

impl ParamHeaders {
    /// Learns the annotations of a tool page that was parsed from `result`. Invalid annotations are
    /// ignored, because the client has to leave such a tool out.
    pub(super) fn learn(&self, page: &ToolPage, result: &str) {
        let is_marked = |text: &str| memchr::memmem::find(text.as_bytes(), MARK).is_some();
        if !self.has_any.load(Ordering::Acquire) && !is_marked(result) {
            return;
        }
        let mut by_tool = self.by_tool.write();
        for tool in page.tools() {
            let definition = &result[tool.at.clone()];
            let found = if is_marked(definition) {
                annotations(definition).unwrap_or_default()
            } else {
                Vec::new()
            };
            if found.is_empty() {
                by_tool.remove(&tool.name);
            } else if by_tool.len() < MAX_TOOLS {
                by_tool.insert(tool.name.clone(), found.into());
            }
        }
        self.has_any.store(!by_tool.is_empty(), Ordering::Release);
    }

    /// Checks the headers of a call. Returns the headers to send if the call came over a transport
    /// without headers.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderMismatch`] if the headers contradict the arguments.
    pub(super) fn headers_of(
        &self,
        message: &Message,
        tool: Option<&str>,
        arguments: Option<&str>,
    ) -> Result<Option<Vec<ParamHeader>>, HeaderMismatch> {
        if !self.has_any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let known = {
            let by_tool = self.by_tool.read();
            tool.and_then(|tool| by_tool.get(&ToolName::from(tool)).cloned())
        };
        let Some(known) = known else {
            return Ok(None);
        };
        match message.param_headers() {
            Some(headers) => check_params(&known, arguments, headers).map(|()| None),
            None => Ok(Some(param_headers(&known, arguments))),
        }
    }
}
