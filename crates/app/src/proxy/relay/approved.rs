//! Lists of tools as they were approved, in the place of what the upstream says.

use std::ops::Range;

use riglm_domain::edit::spliced;
use riglm_domain::message::{Kind, Message, RequestId};

use super::Relay;
use super::list_tools::cursor;
use super::offered::is_own;
use super::pending::Purpose;
use crate::approvals::Approvals;

/// The cursor of a page that was never asked for: no first list goes on with it.
const UNASKED: &str = "\0";

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
            let Some(cursor) = self.cursor_of_list(id) else {
                continue;
            };
            let shown = approvals.shown(self.upstream(), result, cursor.as_deref());
            if let Some(shown) = shown.await {
                let start = result.as_ptr() as usize - message.raw().as_ptr() as usize;
                edits.push((start..start + result.len(), shown));
            }
        }
        match edits.as_slice() {
            [] => message,
            [(_, shown)] if !message.is_batch() => message.with_result(shown),
            edits => {
                let trace = message.trace().cloned();
                let edits: Vec<_> = (edits.iter())
                    .map(|(at, shown)| (at.clone(), shown.as_str()))
                    .collect();
                let edited = spliced(&String::from_utf8_lossy(message.raw()), &edits);
                // What is put together of valid texts can be read.
                Message::from_text(edited).map_or(message, |edited| edited.with_trace(trace))
            }
        }
    }

    /// Returns the cursor of a request for a list of tools; `None` if the request is another one.
    fn cursor_of_list(&self, id: &RequestId) -> Option<Option<String>> {
        let mut state = self.state();
        let pending = state.pending.get_mut(id)?;
        match &pending.purpose {
            Purpose::ListTools => Some(cursor(pending, Some(id))),
            Purpose::Own(_) if is_own(id) => Some(cursor(pending, Some(id))),
            // Answered by the upstream, which was never asked.
            Purpose::Here(_) => Some(Some(UNASKED.into())),
            _ => None,
        }
    }
}
