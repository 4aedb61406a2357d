//! The rows of tool calls, and what a search learns from calls.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::id::{InvocationId, SessionId, ToolName, WorkSessionId};
use riglm_domain::invocation::{CallSession, Outcome, ToolSource};
use riglm_domain::message::Message;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::tool::ToolRef;
use riglm_ports::observer::{Event, EventOrigin, ToolCalled};
use riglm_ports::tracer::Operation;

use super::Relay;
use super::params::RequestParams;
use super::pending::{CallRow, Lesson};
use super::recorded_names::recorded_tool;
use super::rounds::{Continued, LogicalCall};
use crate::recommend::CallEnded;
use crate::search;
use crate::tracking::CallDetails;
use crate::work_sessions::RequestKind;

/// A call that came in.
#[derive(Debug)]
pub(super) struct CallReceived {
    /// The row of its session.
    pub(super) session: SessionId,
    /// The work session that it belongs to.
    work_session: Option<WorkSessionId>,
    /// What it belongs to.
    pub(super) together: CallSession,
    /// The tool, by the name that the upstream knows.
    pub(super) tool: ToolName,
    /// The call of which it is a further round.
    pub(super) continues: Option<Continued>,
    /// When it was received.
    pub(super) at: jiff::Timestamp,
    /// The operator forbids its tool: it is not made, and nothing is learned of it.
    pub(super) is_forbidden: bool,
}

impl Relay {
    /// Returns what is known of a call that comes in.
    pub(super) async fn call_received(
        &self,
        message: &Message,
        params: &RequestParams<'_>,
        at: jiff::Timestamp,
    ) -> CallReceived {
        let session = self.row().await;
        let work_session = (self.caller)
            .work_session(&self.shared, message.hints(), RequestKind::Call, at)
            .await;
        CallReceived {
            session,
            work_session,
            together: CallSession::of(work_session, session),
            tool: ToolName::from(params.name().unwrap_or_default().as_ref()),
            continues: self.continued(params),
            at,
            is_forbidden: false,
        }
    }

    /// Opens the row of a tool call.
    pub(super) async fn open_call(
        self: &Arc<Self>,
        message: &Message,
        params: &RequestParams<'_>,
        received: CallReceived,
    ) -> Result<CallRow, RpcError> {
        let CallReceived {
            session,
            work_session,
            together,
            tool,
            continues,
            at: started_at,
            is_forbidden,
        } = received;
        let continued = continues.map(|continued| continued.call);
        let is_hidden = is_forbidden || self.state().hidden.contains(&tool);
        let is_taught = !is_forbidden
            && (self.shared.search_tool.is_some() || self.shared.recommender.is_some());
        let called = ToolRef {
            upstream: self.upstream().clone(),
            tool: tool.clone(),
        };
        let searched = is_taught.then(|| called.clone());
        let was_found = || {
            let searched = searched.as_ref();
            searched.is_some_and(|tool| self.caller.search.has_found(together, tool))
        };
        let is_modern = params.protocol_meta().is_some();
        let listed = (!is_forbidden)
            .then(|| self.note_for_list(&called, together, is_modern))
            .flatten();
        let is_hidden = is_hidden || listed.as_ref().is_some_and(|(_, is_hidden)| *is_hidden);
        let source = match is_hidden {
            true if was_found() => ToolSource::Found,
            true => ToolSource::Hidden,
            false if self.is_unlisted(&called) => ToolSource::Unlisted,
            false => ToolSource::Shown,
        };
        // What a client makes up tells nothing of lists.
        let is_known = (listed.as_ref())
            .is_none_or(|(listed, _)| listed.shown.offer().position_of(&called).is_some());
        if is_known && !is_forbidden && source != ToolSource::Unlisted {
            let called = ToolCalled {
                upstream: self.upstream(),
                tool: &tool,
                source,
                is_first_use: (listed.as_ref()).is_some_and(|(listed, _)| listed.is_first_use),
                predicted_mass: listed.as_ref().and_then(|(listed, _)| listed.shown.mass),
            };
            let origin = EventOrigin::of_session(&self.caller.principal, together).over(session);
            (self.shared).observe_from(&Event::ToolCalled(called), &origin);
        }
        let context = searched
            .as_ref()
            .and_then(|_| self.caller.search.context(together, Instant::now()));
        if continued.is_none() && !is_forbidden {
            self.note_call_intent(together, &tool, params.arguments());
        }
        if let (Some(next_tools), None, false) = (&self.shared.next_tools, &continued, is_forbidden)
        {
            let called = ToolRef {
                upstream: self.upstream().clone(),
                tool: recorded_tool(tool.clone()),
            };
            next_tools.called(together, &called, started_at);
        }
        let sequence = continued.map_or_else(|| self.caller.next_sequence(), |call| call.sequence);
        let details = CallDetails {
            session,
            principal: &self.caller.principal,
            upstream: self.upstream(),
            tool: recorded_tool(tool),
            arguments: params.arguments(),
            started_at,
            sequence,
            continues: continued.map(|call| call.first),
            source,
            context,
            work_session,
            list_epoch: listed.as_ref().map(|(listed, _)| listed.shown.epoch),
            request_bytes: message.raw().len(),
        };
        self.review_list(together, is_modern);
        let storing = self.shared.span(&Operation::Store, message.trace());
        let opened = self.shared.recorder.call_opened(details).await;
        drop(storing);
        let id = opened.map_err(|refused| {
            RpcError::new(RpcErrorCode::RecordingUnavailable, refused.to_string())
        })?;
        let first = continued.map_or(id, |call| call.first);
        Ok(CallRow {
            id,
            call: LogicalCall { first, sequence },
            is_hidden,
            lesson: searched.map(|tool| {
                Box::new(Lesson {
                    tool,
                    together,
                    began_at: started_at,
                })
            }),
        })
    }

    /// Returns whether no list has a tool, as far as the lists of its upstream are known.
    fn is_unlisted(&self, tool: &ToolRef) -> bool {
        let offer = self.caller.search.whole_offer();
        let is_offered = offer.is_some_and(|offer| offer.position_of(tool).is_some());
        !is_offered && self.entry.tool_sets.lacks(&tool.tool)
    }

    /// Tells the search and the recommender how a call ended. A call that was taken back says nothing
    /// of its tool.
    pub(super) async fn teach(&self, lesson: Lesson, call: InvocationId, outcome: Outcome) {
        if !outcome.tells_of_tool() {
            return;
        }
        if let Some(recommender) = &self.shared.recommender {
            let ended = CallEnded {
                session: self.row().await,
                together: lesson.together,
                principal: self.caller.principal.clone(),
                tool: lesson.tool.clone(),
                invocation: call,
                outcome,
                began_at: lesson.began_at,
            };
            recommender.called(ended).await;
        }
        let Some(tool) = &self.shared.search_tool else {
            return;
        };
        tool.service.called(&search::ToolCalled {
            session: self.row().await,
            principal: self.caller.principal.clone(),
            tool: lesson.tool,
            is_ok: outcome.is_success(),
            began_at: lesson.began_at,
        });
    }
}
