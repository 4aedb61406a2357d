//! Lists of tools as they were approved, in the place of what the upstream says.

use std::ops::Range;

use riglm_domain::edit::spliced;
use riglm_domain::id::ToolName;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::tool::ToolPage;

use super::Relay;
use super::list_tools::cursor;
use super::offered::is_own;
use super::pending::Purpose;
use crate::approvals::Approvals;

/// The cursor of a page that nobody waits for: no first list goes on with it.
const UNASKED: &str = "\0";

/// A request for a page of a list of tools.
struct Asked {
    cursor: Option<String>,
}

impl Relay {
    /// Returns a message of the upstream with each list of tools in it as it was approved, whoever
    /// asked for the list: the client, the session of several upstreams, or the proxy itself.
    /// Everything else reads and passes on what is returned here.
    pub(super) async fn approved(
        &self,
        approvals: &Approvals,
        message: Message,
        related: Option<&RequestId>,
    ) -> Message {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for envelope in message.envelopes() {
            let id = envelope.id().or(related);
            let answer = message.result(envelope).zip(id);
            let Some((result, id)) = answer.filter(|_| envelope.kind() == Kind::Success) else {
                continue;
            };
            let Some(asked) = self.list_asked(id) else {
                continue;
            };
            let shown = approvals.shown(self.upstream(), result, asked.cursor.as_deref());
            if let Some(shown) = shown.await {
                edits.push((place_of(&message, result), shown));
            }
        }
        with_results(message, &edits)
    }

    /// Returns a message with each list of tools in it as the client may see it: without the tools
    /// that are forbidden to it. It is for lists that come another way than [`Self::list`]: late, in a
    /// batch, or unasked. `is_list` says of which parts the results are lists.
    pub(super) fn without_forbidden(
        &self,
        message: Message,
        is_list: impl Fn(&Envelope) -> bool,
    ) -> Message {
        if self.shared.filter.forbidden().is_none() {
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
            let forbidden = (self.shared).forbidden_of(&self.caller, self.upstream(), &names);
            if !forbidden.is_empty() {
                edits.push((place_of(&message, result), page.without(result, &forbidden)));
            }
        }
        with_results(message, &edits)
    }

    /// Returns what a request for a list of tools asked for; `None` if the request is another one.
    /// Of an answer that nobody waits for it is not known that it is none.
    fn list_asked(&self, id: &RequestId) -> Option<Asked> {
        let mut state = self.state();
        let unasked = || Some(UNASKED.into());
        let Some(pending) = state.pending.get_mut(id) else {
            // What is answered twice goes to the client, too.
            return Some(Asked { cursor: unasked() });
        };
        let cursor = match &pending.purpose {
            Purpose::ListTools => cursor(pending, Some(id)),
            Purpose::Own(_) if is_own(id) => cursor(pending, Some(id)),
            Purpose::Here(_) => unasked(),
            // Of what was taken back it is forgotten what it was, and its late answer is passed on.
            _ if pending.is_cancelled => unasked(),
            _ => return None,
        };
        Some(Asked { cursor })
    }
}

/// Returns where in a message a part of its text stands.
fn place_of(message: &Message, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - message.raw().as_ptr() as usize;
    start..start + part.len()
}

/// Returns a message with other texts in the places of results.
fn with_results(message: Message, edits: &[(Range<usize>, String)]) -> Message {
    match edits {
        [] => message,
        [(_, result)] if !message.is_batch() => message.with_result(result),
        edits => {
            let trace = message.trace().cloned();
            let edits: Vec<_> = (edits.iter())
                .map(|(at, result)| (at.clone(), result.as_str()))
                .collect();
            let edited = spliced(&String::from_utf8_lossy(message.raw()), &edits);
            // What is put together of valid texts can be read.
            Message::from_text(edited).map_or(message, |edited| edited.with_trace(trace))
        }
    }
}
