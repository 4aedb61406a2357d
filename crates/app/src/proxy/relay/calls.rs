//! The rows of tool calls, and the lessons of calls for search and recommendation.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, SessionId, ToolName, WorkSessionId};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::{Outcome, SessionKey, ToolSource};
use riglm_ports::observer::{Event, EventOrigin, ToolCalledEvent};
use riglm_ports::tracer::SpanOperation;

use super::Relay;
use super::multi_round_calls::{ContinuedCall, LogicalCall};
use super::params::RequestParams;
use super::pending::{CallLesson, CallRow};
use super::recorded_names::recorded_tool;
use crate::filtering::ListedCall;
use crate::tracking::CallDetails;
use crate::work_sessions::RequestKind;
use riglm_discovery::recommend::CallEnded;
use riglm_discovery::search;

#[derive(Debug)]
pub(super) struct CallReceived {
    /// The row of its session.
    pub(super) session: SessionId,
    work_session: Option<WorkSessionId>,
    /// Its session key.
    pub(super) session_key: SessionKey,
    /// The tool, under the name that the upstream knows.
    pub(super) tool: ToolName,
    /// The earlier call that this multi-round call continues.
    pub(super) continues: Option<ContinuedCall>,
    /// The time of receipt.
    pub(super) at: jiff::Timestamp,
    /// Whether the operator forbids its tool. Such a call is not sent, and nothing is learned from
    /// it.
    pub(super) is_forbidden: bool,
}

impl Relay {
    /// Returns the details of a received call.
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
            session_key: SessionKey::of(work_session, session),
            tool: ToolName::from(params.name().unwrap_or_default().as_ref()),
            continues: self.continued_call(params),
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
            session_key,
            tool,
            continues,
            at: started_at,
            is_forbidden,
        } = received;
        let continued = continues.map(|continued| continued.call);
        let is_hidden = is_forbidden || self.state.lock().hidden.contains(&tool);
        let is_taught = !is_forbidden
            && (self.shared.search_tool.is_some() || self.shared.recommender.is_some());
        let called = ToolRef {
            upstream: self.upstream().clone(),
            tool: tool.clone(),
        };
        let searched = is_taught.then(|| called.clone());
        let was_found = || {
            let searched = searched.as_ref();
            searched.is_some_and(|tool| self.caller.search.has_found(session_key, tool))
        };
        let era = params.era();
        let listed = (!is_forbidden)
            .then(|| self.note_for_list(&called, session_key, era))
            .flatten();
        let is_hidden = is_hidden || listed.as_ref().is_some_and(|(_, is_hidden)| *is_hidden);
        let source = match is_hidden {
            true if was_found() => ToolSource::Found,
            true => ToolSource::Hidden,
            false if self.is_unlisted(&called) => ToolSource::Unlisted,
            false => ToolSource::Shown,
        };
        // A tool name that the client invented says nothing about lists.
        let is_known = (listed.as_ref())
            .is_none_or(|(listed, _)| listed.shown.offer().position_of(&called).is_some());
        if is_known && !is_forbidden && source != ToolSource::Unlisted {
            let called = ToolCalledEvent {
                upstream: self.upstream(),
                tool: &tool,
                source,
                is_first_use: (listed.as_ref()).is_some_and(|(listed, _)| listed.is_first_use),
                predicted_mass: listed.as_ref().and_then(|(listed, _)| listed.shown.mass),
            };
            let origin = EventOrigin::of_session(&self.caller.principal, session_key)
                .with_connection(session);
            (self.shared).observe_from(&Event::ToolCalled(called), &origin);
        }
        let context = searched
            .as_ref()
            .and_then(|_| self.caller.search.context(session_key, Instant::now()));
        // A further round of a call is the same call, so its intent and its tool count once.
        if continued.is_none() && !is_forbidden {
            self.note_call_intent(session_key, &tool, params.arguments());
        }
        if let (Some(next_tools), None, false) = (&self.shared.next_tools, &continued, is_forbidden)
        {
            let called = ToolRef {
                upstream: self.upstream().clone(),
                tool: recorded_tool(tool.clone()),
            };
            next_tools.record_call(session_key, &called, started_at);
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
        self.client.review_list(session_key, era);
        let storing = self.shared.span(&SpanOperation::Store, message.trace());
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
                Box::new(CallLesson {
                    tool,
                    session_key,
                    began_at: started_at,
                })
            }),
        })
    }

    /// Registers a call for the selection of its session. Returns the list that the client sees,
    /// and whether the tool is hidden in it.
    fn note_for_list(
        &self,
        tool: &ToolRef,
        session: SessionKey,
        era: Era,
    ) -> Option<(ListedCall, bool)> {
        let lists = self.shared.filter.lists()?;
        let client = self.caller.client_name();
        let ask = self.caller.list_request(
            &client,
            session,
            era == Era::Modern,
            self.shared.recorder.now(),
        );
        let listed = lists.record_call(&ask, tool)?;
        let is_hidden = listed.shown.hides(tool);
        Some((listed, is_hidden))
    }

    /// Returns whether no list contains a tool, as far as the lists of its upstream are known.
    fn is_unlisted(&self, tool: &ToolRef) -> bool {
        let offer = self.caller.search.complete_catalog();
        let is_offered = offer.is_some_and(|offer| offer.position_of(tool).is_some());
        !is_offered && self.entry.tool_sets.is_unlisted(&tool.tool)
    }

    /// Reports the outcome of a call to the search and the recommender. A cancelled call says
    /// nothing about its tool.
    pub(super) async fn teach(&self, lesson: CallLesson, call: InvocationId, outcome: Outcome) {
        if !outcome.reflects_tool() {
            return;
        }
        if let Some(recommender) = &self.shared.recommender {
            let ended = CallEnded {
                session: self.row().await,
                session_key: lesson.session_key,
                principal: self.caller.principal.clone(),
                tool: lesson.tool.clone(),
                invocation: call,
                outcome,
                began_at: lesson.began_at,
            };
            recommender.record_call(ended).await;
        }
        let Some(tool) = &self.shared.search_tool else {
            return;
        };
        tool.service.record_call(&search::FinishedCall {
            session: self.row().await,
            principal: self.caller.principal.clone(),
            tool: lesson.tool,
            is_ok: outcome.is_success(),
            began_at: lesson.began_at,
        });
    }
}
