//! Tool lists in their approved form, in place of the form that the upstream sends.

use std::ops::Range;

use riglm_domain::catalog::tool::ToolPage;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::edit::splice;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};

use super::scope::UpstreamScope;
use super::tool_list_answers::cursor;
use super::upstream_requests::{RequestPurpose, UpstreamRequests};
use crate::control::approvals::Approvals;

/// The cursor for a page without a known request. No first list continues at this cursor.
const UNASKED: &str = "\0";

/// A list that was requested from the upstream.
pub(super) struct RequestedList {
    cursor: Option<String>,
}

impl UpstreamScope {
    /// Replaces each tool list in a message of the upstream by its approved form, whether the
    /// client, the aggregator or the proxy requested the list, as `requested` says. All other code
    /// reads and forwards the returned message.
    pub(super) async fn with_approved_lists(
        &self,
        approvals: &Approvals,
        message: Message,
        related: Option<&RequestId>,
        requested: impl Fn(&RequestId) -> Option<RequestedList>,
    ) -> Message {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for envelope in message.envelopes() {
            let id = envelope.id().or(related);
            let answer = message.result(envelope).zip(id);
            let Some((result, id)) = answer.filter(|_| envelope.kind() == MessageKind::Success)
            else {
                continue;
            };
            let Some(asked) = requested(id) else {
                continue;
            };
            let shown = approvals.shown_page(self.upstream(), result, asked.cursor.as_deref());
            if let Some(shown) = shown.await {
                edits.push((place_of(&message, result), shown));
            }
        }
        with_results(message, &edits)
    }

    /// Removes the forbidden tools from each tool list in a message. It covers lists that do not
    /// pass [`UpstreamTools::record_list`](super::upstream_tools::UpstreamTools): late, in a batch, or without a request. `is_list` selects the parts
    /// whose results are lists.
    pub(super) fn without_forbidden(
        &self,
        message: Message,
        is_list: impl Fn(&Envelope) -> bool,
    ) -> Message {
        if self.shared.selection.forbidden().is_none() {
            return message;
        }
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for envelope in message.envelopes().iter().filter(|part| is_list(part)) {
            let Some(result) = message.result(envelope) else {
                continue;
            };
            let Ok(page) = ToolPage::split(result) else {
                continue;
            };
            let names: Vec<ToolName> = page.tools().iter().map(|tool| tool.name.clone()).collect();
            let forbidden =
                (self.shared).forbidden_of(&self.client_context, self.upstream(), &names);
            if !forbidden.is_empty() {
                edits.push((place_of(&message, result), page.without(result, &forbidden)));
            }
        }
        with_results(message, &edits)
    }
}

impl UpstreamRequests {
    /// Returns the list request with this id. Returns `None` for other requests. An answer without
    /// a pending request may be a list, so it counts as one.
    pub(super) fn requested_list(&mut self, id: &RequestId) -> Option<RequestedList> {
        let unasked = || Some(UNASKED.into());
        let Some(pending) = self.get_mut(id) else {
            // A second answer to the same request is also forwarded to the client.
            return Some(RequestedList { cursor: unasked() });
        };
        let cursor = match &pending.purpose {
            RequestPurpose::ListTools => cursor(pending, Some(id)),
            RequestPurpose::Own(_) if InternalRequest::ToolList.has(id) => {
                cursor(pending, Some(id))
            }
            // The purpose of a cancelled request is not stored, and its late answer is forwarded.
            _ if pending.is_cancelled => unasked(),
            _ => return None,
        };
        Some(RequestedList { cursor })
    }
}

/// Returns the byte range of a part in the text of a message.
fn place_of(message: &Message, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - message.raw().as_ptr() as usize;
    start..start + part.len()
}

fn with_results(message: Message, edits: &[(Range<usize>, String)]) -> Message {
    match edits {
        [] => message,
        [(_, result)] if !message.is_batch() => message.with_result(result),
        edits => {
            let trace = message.trace().cloned();
            let edits: Vec<_> = (edits.iter())
                .map(|(at, result)| (at.clone(), result.as_str()))
                .collect();
            let edited = splice(&String::from_utf8_lossy(message.raw()), &edits);
            // A splice of valid JSON texts is valid, so parsing cannot fail.
            Message::from_text(edited).map_or(message, |edited| edited.with_trace(trace))
        }
    }
}
