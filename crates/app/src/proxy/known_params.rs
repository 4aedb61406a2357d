//! Which arguments of an upstream's tools are mirrored into HTTP headers (`x-mcp-header`), as its
//! lists say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use riglm_domain::id::ToolName;
use riglm_domain::mcp_header::{ParamAnnotation, annotations, check_params, param_headers};
use riglm_domain::message::{Message, ParamHeader};
use riglm_domain::tool::ToolPage;

/// The member of a schema that asks for a header.
const MARK: &[u8] = b"x-mcp-header";
/// The most tools with such arguments that are remembered of one upstream.
const MAX_TOOLS: usize = 5_000;

/// The annotated arguments of the tools of one upstream.
#[derive(Debug, Default)]
pub(super) struct KnownParams {
    /// Any tool has them: most upstreams know nothing of headers, and cost one look then.
    has_any: AtomicBool,
    by_tool: RwLock<HashMap<ToolName, Arc<[ParamAnnotation]>>>,
}

impl KnownParams {
    /// Learns from a page of tools that was split from `result`. Annotations that break the rules
    /// count as none: it is for the client to leave such a tool out.
    pub(super) fn learn(&self, page: &ToolPage, result: &str) {
        let is_marked = |text: &str| memchr::memmem::find(text.as_bytes(), MARK).is_some();
        if !self.has_any.load(Ordering::Acquire) && !is_marked(result) {
            return;
        }
        let mut by_tool = self.by_tool.write().unwrap_or_else(PoisonError::into_inner);
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

    /// Checks the headers that a call came with, or returns those that it has to be sent with when
    /// it came without any way to say so.
    ///
    /// # Errors
    ///
    /// Returns how headers and arguments disagree.
    pub(super) fn headers_of(
        &self,
        message: &Message,
        tool: Option<&str>,
        arguments: Option<&str>,
    ) -> Result<Option<Vec<ParamHeader>>, String> {
        if !self.has_any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let known = {
            let by_tool = self.by_tool.read().unwrap_or_else(PoisonError::into_inner);
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
