//! Error hints for failed calls of tools that the model could not see: hidden tools and unknown
//! names. The hint is appended to the error of the server.
//!
//! Answers of listed tools stay unchanged, byte for byte.

use std::sync::Arc;

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::{Envelope, Message};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::mcp::tool_result::has_error_result;
use serde_json::Value;

use super::scope::UpstreamScope;
use super::upstream_requests::{Pending, RequestPurpose};
use crate::proxy::own_tools::OwnTool;
use crate::proxy::own_tools::call_hints::{Length, schema_hint, unknown, with_sentence};
use crate::proxy::request_params::RequestParams;
use crate::safeguards::with_text;
use riglm_discovery::search::{Catalog, CatalogTool};

/// A call that was answered with an error.
#[derive(Debug)]
pub(super) struct FailedCall {
    pub(super) request: Message,
    name: String,
    /// Whether its tool was hidden in the client's list, as far as the list was known.
    is_hidden: bool,
    pub(super) era: Era,
}

/// Adds hints to the errors of failed calls.
#[derive(Debug)]
pub(super) struct ErrorHints(Arc<UpstreamScope>);

impl ErrorHints {
    pub(super) fn new(scope: &Arc<UpstreamScope>) -> Self {
        Self(Arc::clone(scope))
    }

    /// Returns the failed call that a message answers, if a hint may be added.
    pub(super) fn failed_call(
        &self,
        message: &Message,
        answer: &Envelope,
        pending: &Pending,
    ) -> Option<FailedCall> {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.0;
        // A single server without own tools lists everything, so its errors are forwarded
        // unchanged.
        if shared.own_tools().is_none() && !self.0.is_merged() {
            return None;
        }
        let RequestPurpose::Call(Some(row)) = &pending.purpose else {
            return None;
        };
        if pending.is_cancelled {
            return None;
        }
        let is_error = match (message.result(answer), message.error(answer)) {
            (Some(_), _) => has_error_result(message, answer),
            (None, Some(error)) => !is_of_proxy(error),
            (None, None) => false,
        };
        let request = pending.message.as_ref().filter(|_| is_error)?;
        let mut parts = request.envelopes().iter();
        let part = parts.find(|part| request.single().is_some() || part.id() == answer.id())?;
        let params = RequestParams::of(request, part);
        let name = params.name()?;
        let is_listed = || {
            let known = shared.last_catalog_of(client_context);
            known.is_some_and(|catalog| self.own_in(&catalog, &name).is_some())
        };
        (row.is_hidden || !is_listed()).then(|| FailedCall {
            request: request.clone(),
            name: name.into_owned(),
            is_hidden: row.is_hidden,
            era: params.era(),
        })
    }

    /// Returns the answer to a call with a hint if there is one. `catalog` is the catalog of the
    /// client, if it is known.
    pub(super) async fn with_hint(
        &self,
        call: &FailedCall,
        answer: Message,
        catalog: Option<Arc<Catalog>>,
    ) -> Message {
        let help = match catalog {
            Some(catalog) => self.help(call, &answer, catalog).await,
            None => None,
        };
        match help {
            Some(help) => with_help(&answer, &help),
            None => answer,
        }
    }

    async fn help(
        &self,
        call: &FailedCall,
        answer: &Message,
        catalog: Arc<Catalog>,
    ) -> Option<String> {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.0;
        let tools = shared.own_tools().map(|tools| &**tools);
        let memory = &client_context.search;
        let session = client_context.session_key(self.0.session_id().await);
        if let Some(tool) = self.own_in(&catalog, &call.name) {
            let is_hidden = call.is_hidden || tool.is_hidden;
            if !is_hidden || !is_about_arguments(answer) {
                return None;
            }
            let hint = schema_hint(tool)?;
            let length = memory.length_for(&("schema", session, &tool.name));
            return (length == Length::Full).then_some(hint);
        }
        if catalog.is_truncated() {
            return None; // It may be one of those that were not read.
        }
        // With several upstreams the client knows the tool under another name than the upstream.
        let name = self.0.shown_name(&call.name.as_str().into());
        let search = tools.and_then(|tools| tools.name(OwnTool::Search));
        let length = memory.length_for(&("name", session, &name));
        let (work, principal) = (&shared.long_work, &client_context.principal);
        unknown(work, principal, &name, catalog, search, length).await
    }

    /// Returns the tool of this upstream with its own name `name`.
    fn own_in<'a>(&self, catalog: &'a Catalog, name: &str) -> Option<&'a CatalogTool> {
        let mut tools = catalog.tools().iter();
        tools.find(|tool| {
            tool.tool.tool.as_str() == name && tool.tool.upstream == *self.0.upstream()
        })
    }
}

/// Returns whether an error comes from another riglm in front of the server.
fn is_of_proxy(error: &str) -> bool {
    let code = member(error, "code").and_then(|code| code.parse::<i32>().ok());
    let own = RpcErrorCode::RecordingUnavailable.code()..=RpcErrorCode::UpstreamUnavailable.code();
    code.is_some_and(|code| own.contains(&code))
}

/// Returns whether an answer may be the effect of invalid arguments: a result that is an error, or
/// the error code for invalid parameters.
fn is_about_arguments(answer: &Message) -> bool {
    let error = answer.single().and_then(|part| answer.error(part));
    let invalid = RpcErrorCode::InvalidParams.code().to_string();
    error.is_none_or(|error| member(error, "code") == Some(&*invalid))
}

/// Appends a hint to an answer: to the message of an error, which keeps its code, or as another
/// text content of a result. An answer of unknown form stays unchanged.
fn with_help(answer: &Message, help: &str) -> Message {
    let Some(part) = answer.single() else {
        return answer.clone();
    };
    if let Some(error) = answer.error(part) {
        let Some(said) = member(error, "message").and_then(unescape) else {
            return answer.clone();
        };
        let text = Value::from(with_sentence(&said, help)).to_string();
        return answer.with_error(&with_member(error, "message", &text));
    }
    let result = answer.result(part).unwrap_or_default();
    match with_text(result, help) {
        Some(result) => answer.with_result(&result),
        None => answer.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_with_help(text: &str) -> String {
        let answer = Message::from_text(text.into()).unwrap();
        let helped = with_help(&answer, "Do \"this\".");
        String::from_utf8(helped.raw().to_vec()).unwrap()
    }

    #[test]
    fn an_error_keeps_its_code_its_data_and_its_words() {
        let error = r#"{"id":1,"error":{"code":-32602.0,"message":"No \u0041","data":{"n":1e3}}}"#;
        let expected = error.replace(r"No \u0041", r#"No A. Do \"this\"."#);
        assert_eq!(answer_with_help(error), expected);
        for odd in [
            r#"{"id":1,"error":{"code":1}}"#,
            r#"{"id":1,"error":{"code":1,"message":7}}"#,
            r#"{"id":1,"result":{"isError":true}}"#,
            r#"{"id":1,"result":{"content":"x"}}"#,
        ] {
            assert_eq!(answer_with_help(odd), odd);
        }
    }

    #[test]
    fn hints_are_appended_without_other_changes() {
        let result = r#"{"id":1,"result":{"isError":true,"content":[{"a":1.0}],"structuredContent":{"content":[]}}}"#;
        let expected = result.replace(
            r#"{"a":1.0}"#,
            r#"{"a":1.0},{"type":"text","text":"Do \"this\"."}"#,
        );
        assert_eq!(answer_with_help(result), expected);
    }

    #[test]
    fn errors_of_the_proxy_are_known_by_their_codes() {
        for (code, is_own) in [
            (-31_001, true),
            (-31_007, true),
            (-32_602, false),
            (1, false),
        ] {
            assert_eq!(is_of_proxy(&format!(r#"{{"code":{code}}}"#)), is_own);
        }
        assert!(!is_of_proxy("{}"));
    }
}
