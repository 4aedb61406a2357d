//! The template of the list requests that are sent to upstreams.

use std::sync::Arc;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_ports::upstream::UpstreamError;

use super::client_context::ClientContext;
use super::list_kind::ListKind;

/// The reason why the list of an upstream is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::proxy) enum ListFetchError {
    /// A request cannot be sent, or is not answered. The text has the reason.
    #[error("{0}")]
    Request(String),
    /// The answer is a batch.
    #[error("invalid answer to the list request: a batch")]
    Batch,
    /// The upstream answers with an error.
    #[error("list request failed with error code {0}")]
    Code(String),
    /// The answer is not a list of tools.
    #[error("invalid tool list")]
    InvalidList,
    /// The upstream is slow to list its tools.
    #[error("timeout while listing its tools")]
    Timeout,
    /// The list is too long to be read now.
    #[error("failed to read its list")]
    Unread,
    /// No upstream has a list.
    #[error("no tool list is available")]
    NoList,
}

impl From<UpstreamError> for ListFetchError {
    fn from(error: UpstreamError) -> Self {
        Self::Request(error.to_string())
    }
}

/// The common part of the requests for a list.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct ListTemplate {
    pub(super) kind: ListKind,
    pub(super) era: Era,
    /// The parameters without a cursor.
    params: String,
    /// The trace context of the parent span.
    trace: Option<Arc<TraceContext>>,
}

impl ListTemplate {
    /// Returns the template of requests on behalf of `message`, with its metadata. The progress
    /// token is removed, because several requests must not report progress under one token.
    pub(in crate::proxy) fn new(kind: ListKind, message: &Message, era: Era) -> Self {
        let params = message.single().and_then(|part| message.params(part));
        let meta = params.and_then(|params| edit::member(params, "_meta"));
        let params = meta.map_or_else(
            || "{}".to_owned(),
            |meta| {
                let params = edit::with_member("{}", "_meta", meta);
                edit::without_meta(&params, riglm_domain::mcp::meta::PROGRESS_TOKEN)
            },
        );
        Self {
            kind,
            era,
            params,
            trace: message.trace().cloned(),
        }
    }

    /// Returns the template without a trace, for requests outside the original request.
    pub(super) fn without_trace(&self) -> Self {
        Self {
            trace: None,
            ..self.clone()
        }
    }

    /// Returns the request for the page at a cursor, which is JSON text. The caller must replace
    /// the id.
    pub(in crate::proxy) fn request(&self, cursor: Option<&str>) -> Message {
        let params = match cursor {
            Some(cursor) => edit::with_member(&self.params, "cursor", cursor),
            None => self.params.clone(),
        };
        let method = self.kind.method();
        let message = Message::request(&RequestId::Number("0".into()), method, Some(&params));
        message.with_trace(self.trace.clone())
    }

    /// Returns the capabilities of the client, as JSON text.
    pub(super) fn capabilities(&self, client: &ClientContext) -> Option<String> {
        if self.era == Era::Modern {
            let key = riglm_domain::mcp::meta::CLIENT_CAPABILITIES;
            return edit::meta(&self.params, key).map(str::to_owned);
        }
        let initialize = client.handshake().initialize?;
        let params = initialize.params(initialize.single()?)?;
        edit::member(params, "capabilities").map(str::to_owned)
    }
}
