//! The rows of tool calls, and the lessons of calls for search and recommendation.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, SessionId, ToolName, WorkSessionId};
use riglm_domain::mcp::message::{Envelope, Message};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::selection::ExpectedCoverage;
use riglm_domain::usage::invocation::{Outcome, SessionKey, ToolSource};
use riglm_ports::observer::{Event, EventOrigin, ToolCalledEvent};
use riglm_ports::tracer::SpanOperation;

use super::intents::IntentLayer;
use super::multi_round_calls::{ContinuedCall, LogicalCall, MultiRoundCalls};
use super::recorded_names::recorded_tool;
use super::scope::UpstreamScope;
use super::upstream_requests::{CallRow, LearningReport};
use super::upstream_tools::UpstreamTools;
use crate::proxy::request_params::RequestParams;
use crate::selection::ListedCall;
use crate::tracking::CallDetails;
use crate::work_sessions::RequestKind;
use riglm_discovery::recommend::CallEnded;
use riglm_discovery::search;

/// A tool call on its way through the layers.
#[derive(Debug)]
pub(super) struct CallContext<'a> {
    pub(super) message: &'a Message,
    pub(super) params: &'a RequestParams<'a>,
    pub(super) era: Era,
    /// The tool, under the name that the upstream knows.
    pub(super) tool: ToolName,
    /// The row of its session.
    pub(super) session: SessionId,
    work_session: Option<WorkSessionId>,
    pub(super) session_key: SessionKey,
    /// The earlier call that this multi-round call continues.
    pub(super) continues: Option<ContinuedCall>,
    pub(super) received: Instant,
    /// The time of receipt by the wall clock.
    pub(super) received_at: Timestamp,
}

impl CallContext<'_> {
    /// Returns whether it is the expected further round of a call that was admitted before.
    pub(super) fn is_admitted(&self) -> bool {
        self.continues.is_some_and(|call| call.is_expected)
    }
}

/// Records the calls of one client at one upstream, and reports them to what learns from them.
#[derive(Debug)]
pub(super) struct CallRecording {
    scope: Arc<UpstreamScope>,
    tools: Arc<UpstreamTools>,
    intents: Arc<IntentLayer>,
    rounds: MultiRoundCalls,
}

impl CallRecording {
    pub(super) fn new(
        scope: &Arc<UpstreamScope>,
        tools: &Arc<UpstreamTools>,
        intents: &Arc<IntentLayer>,
    ) -> Self {
        Self {
            scope: Arc::clone(scope),
            tools: Arc::clone(tools),
            intents: Arc::clone(intents),
            rounds: MultiRoundCalls::default(),
        }
    }

    /// Returns the context of a received call.
    pub(super) async fn context<'a>(
        &self,
        message: &'a Message,
        params: &'a RequestParams<'a>,
        received: Instant,
        received_at: Timestamp,
    ) -> CallContext<'a> {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        let session = self.scope.session_id().await;
        let work_session = client_context
            .work_session(shared, message.hints(), RequestKind::Call, received_at)
            .await;
        CallContext {
            message,
            params,
            era: params.era(),
            tool: ToolName::from(params.name().unwrap_or_default().as_ref()),
            session,
            work_session,
            session_key: SessionKey::of(work_session, session),
            continues: self.rounds.continued_call(params),
            received,
            received_at,
        }
    }

    /// Stores a call whose answer asks for input, so that its further rounds are recognized.
    pub(super) fn note_result(
        &self,
        row: &CallRow,
        request: Option<&Message>,
        answer: &Message,
        part: &Envelope,
    ) {
        if self.scope.client_context.era() == Era::Modern {
            self.rounds.note_result(row, request, answer, part);
        }
    }

    /// Opens the row of a tool call.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::RecordingUnavailable`] if no row can be written and calls must not
    /// pass unrecorded.
    pub(super) async fn open(
        &self,
        call: &CallContext<'_>,
        is_forbidden: bool,
    ) -> Result<CallRow, RpcError> {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        let (upstream, tool) = (self.scope.upstream(), &call.tool);
        let (session, session_key) = (call.session, call.session_key);
        let continued = call.continues.map(|continued| continued.call);
        let is_hidden = is_forbidden || self.tools.is_hidden(tool);
        let is_taught =
            !is_forbidden && (shared.own_tools().is_some() || shared.recommender.is_some());
        let called = self.scope.tool_ref(tool);
        let searched = is_taught.then(|| called.clone());
        let was_found = || {
            let searched = searched.as_ref();
            searched.is_some_and(|tool| client_context.search.has_found(session_key, tool))
        };
        let listed = (!is_forbidden)
            .then(|| self.note_for_list(&called, session_key, call.era))
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
            .is_none_or(|(listed, _)| listed.shown.catalog().position_of(&called).is_some());
        if is_known && !is_forbidden && source != ToolSource::Unlisted {
            let event = ToolCalledEvent {
                upstream,
                tool,
                source,
                is_first_use: (listed.as_ref()).is_some_and(|(listed, _)| listed.is_first_use),
                predicted_mass: (listed.as_ref())
                    .and_then(|(listed, _)| listed.shown.expected_coverage)
                    .map(ExpectedCoverage::get),
            };
            let origin = EventOrigin::of_session(&client_context.principal, session_key)
                .with_connection(session);
            shared.observe_from(&Event::ToolCalled(event), &origin);
        }
        let context = searched
            .as_ref()
            .and_then(|_| client_context.search.context(session_key, Instant::now()));
        // A further round of a call is the same call, so its intent and its tool count once.
        if continued.is_none() && !is_forbidden {
            let arguments = call.params.arguments();
            self.intents.on_call(session_key, tool, arguments);
        }
        let next_tools = shared.predictions.get();
        if let (Some(next_tools), None, false) = (&next_tools, &continued, is_forbidden) {
            let called = ToolRef {
                upstream: upstream.clone(),
                tool: recorded_tool(tool.clone()),
            };
            next_tools.record_call(session_key, &called, call.received_at);
        }
        let sequence =
            continued.map_or_else(|| client_context.next_sequence(), |call| call.sequence);
        let details = CallDetails {
            session,
            principal: &client_context.principal,
            upstream,
            tool: recorded_tool(tool.clone()),
            arguments: call.params.arguments(),
            started_at: call.received_at,
            sequence,
            continues: continued.map(|call| call.first),
            source,
            context,
            work_session: call.work_session,
            list_epoch: listed.as_ref().map(|(listed, _)| listed.shown.epoch),
            request_bytes: call.message.raw().len(),
        };
        let storing = shared.span(&SpanOperation::Store, call.message.trace());
        let opened = shared.recorder.call_opened(details).await;
        drop(storing);
        let id = opened.map_err(|refused| {
            RpcError::new(RpcErrorCode::RecordingUnavailable, refused.to_string())
        })?;
        let first = continued.map_or(id, |call| call.first);
        Ok(CallRow {
            id,
            call: LogicalCall { first, sequence },
            session_key,
            is_hidden,
            lesson: searched.map(|tool| {
                Box::new(LearningReport {
                    tool,
                    session_key,
                    began_at: call.received_at,
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
        let lists = self.scope.shared.selection.lists()?;
        let client = self.scope.client_context.client_name();
        let ask = self.scope.client_context.list_request(
            &client,
            session,
            era,
            self.scope.shared.recorder.now(),
        );
        let listed = lists.record_call(&ask, tool)?;
        let is_hidden = listed.shown.hides(tool);
        Some((listed, is_hidden))
    }

    /// Returns whether no list contains a tool, as far as the lists of its upstream are known.
    fn is_unlisted(&self, tool: &ToolRef) -> bool {
        let catalog = self.scope.client_context.search.complete_catalog();
        let is_offered = catalog.is_some_and(|catalog| catalog.position_of(tool).is_some());
        !is_offered && self.scope.entry.tool_sets.is_unlisted(&tool.tool)
    }

    /// Reports the outcome of a call to the search and the recommender. A cancelled call says
    /// nothing about its tool.
    pub(super) async fn report_end(
        &self,
        lesson: LearningReport,
        call: InvocationId,
        outcome: Outcome,
    ) {
        if !outcome.reflects_tool() {
            return;
        }
        if let Some(recommender) = &self.scope.shared.recommender {
            let ended = CallEnded {
                session: self.scope.session_id().await,
                session_key: lesson.session_key,
                principal: self.scope.client_context.principal.clone(),
                tool: lesson.tool.clone(),
                invocation: call,
                outcome,
                began_at: lesson.began_at,
            };
            recommender.record_call(ended).await;
        }
        let Some(tool) = self.scope.shared.enabled_own_tools() else {
            return;
        };
        tool.service.record_call(&search::FinishedCall {
            session: self.scope.session_id().await,
            principal: self.scope.client_context.principal.clone(),
            tool: lesson.tool,
            is_ok: outcome.is_success(),
            began_at: lesson.began_at,
        });
    }
}
