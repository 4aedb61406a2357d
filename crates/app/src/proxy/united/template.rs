//! The requests by which members are asked for their lists.

use std::sync::Arc;

use riglm_domain::edit;
use riglm_domain::message::Message;
use riglm_domain::trace_context::TraceContext;

use super::catalog::digest_of;
use super::list_kind::ListKind;
use crate::proxy::session::ClientSession;

/// What the requests for a list have in common.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Template {
    pub(super) kind: ListKind,
    pub(super) is_modern: bool,
    /// The parameters without a cursor.
    params: String,
    /// The place of the span that they are a part of.
    trace: Option<Arc<TraceContext>>,
}

impl Template {
    /// Returns the template of requests on behalf of `message`, whose metadata they carry. Progress
    /// of several requests makes no sense under one token.
    pub(in crate::proxy) fn new(kind: ListKind, message: &Message, is_modern: bool) -> Self {
        let params = message.single().and_then(|part| message.params(part));
        let meta = params.and_then(|params| edit::member(params, "_meta"));
        let params = meta.map_or_else(
            || "{}".to_owned(),
            |meta| {
                let params = edit::with_member("{}", "_meta", meta);
                edit::without_meta(&params, riglm_domain::meta::PROGRESS_TOKEN)
            },
        );
        Self {
            kind,
            is_modern,
            params,
            trace: message.trace().cloned(),
        }
    }

    /// Returns the same template for requests that are no part of what it was made for.
    pub(super) fn untraced(&self) -> Self {
        Self {
            trace: None,
            ..self.clone()
        }
    }

    /// Returns the request for the page at a cursor, given as JSON text, under an id that has to be
    /// replaced.
    pub(in crate::proxy) fn request(&self, cursor: Option<&str>) -> Result<Message, String> {
        let params = match cursor {
            Some(cursor) => edit::with_member(&self.params, "cursor", cursor),
            None => self.params.clone(),
        };
        let method = self.kind.method();
        let text = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#);
        let message = Message::from_text(text).map_err(|error| error.to_string())?;
        Ok(message.with_trace(self.trace.clone()))
    }

    /// Returns a digest of what the client says that it can do.
    pub(super) fn capabilities(&self, session: &ClientSession) -> [u8; 8] {
        if self.is_modern {
            let key = riglm_domain::meta::CLIENT_CAPABILITIES;
            return digest_of(edit::meta(&self.params, key));
        }
        let initialize = session.caller.handshake().initialize;
        let params = initialize.as_ref().and_then(|message| {
            let part = message.single()?;
            message.params(part)
        });
        digest_of(params.and_then(|params| edit::member(params, "capabilities")))
    }
}
