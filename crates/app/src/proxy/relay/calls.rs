//! The rows of tool calls, and what a search learns from calls.

use std::time::Instant;

use riglm_domain::id::ToolName;
use riglm_domain::invocation::{Outcome, ToolSource};
use riglm_domain::message::Message;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::tool::ToolRef;

use super::Relay;
use super::params::RequestParams;
use super::pending::{CallRow, Lesson};
use super::recorded_names::recorded_tool;
use super::rounds::LogicalCall;
use crate::search::ToolCalled;
use crate::tracking::CallDetails;

impl Relay {
    /// Opens the row of a tool call.
    pub(super) async fn open_call(
        &self,
        message: &Message,
        params: &RequestParams<'_>,
        started_at: jiff::Timestamp,
    ) -> Result<CallRow, RpcError> {
        let session = self.row().await;
        let name = params.name().unwrap_or_default();
        let tool = ToolName::from(name.as_ref());
        let is_hidden = self.state().hidden.contains(&tool);
        let lesson = self.lesson(&tool);
        let was_found = || {
            let lesson = lesson.as_ref();
            lesson.is_some_and(|lesson| self.caller.search.has_found(&lesson.tool))
        };
        let continued = self.continued(params);
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
            source: match is_hidden {
                true if was_found() => ToolSource::Found,
                true => ToolSource::Hidden,
                false => ToolSource::Shown,
            },
            context: lesson.as_ref().and_then(|lesson| lesson.context),
            request_bytes: message.raw().len(),
        };
        let opened = self.shared.recorder.call_opened(details).await;
        let id = opened.map_err(|refused| {
            RpcError::new(RpcErrorCode::RecordingUnavailable, refused.to_string())
        })?;
        let first = continued.map_or(id, |call| call.first);
        Ok(CallRow {
            id,
            call: LogicalCall { first, sequence },
            lesson,
        })
    }

    /// Returns what the search is told of a call when it ends, where tools are searched.
    fn lesson(&self, tool: &ToolName) -> Option<Box<Lesson>> {
        self.shared.search_tool.as_ref()?;
        Some(Box::new(Lesson {
            tool: ToolRef {
                upstream: self.upstream().clone(),
                tool: tool.clone(),
            },
            context: self.caller.search.context(Instant::now()),
        }))
    }

    /// Tells the search how a call ended. A call that was taken back says nothing of its tool.
    pub(super) async fn teach(&self, lesson: Lesson, outcome: Outcome) {
        let Some(tool) = &self.shared.search_tool else {
            return;
        };
        if matches!(outcome, Outcome::Cancelled | Outcome::Unknown) {
            return;
        }
        tool.service.called(&ToolCalled {
            session: self.row().await,
            principal: self.caller.principal.clone(),
            tool: lesson.tool,
            is_ok: outcome == Outcome::Ok,
            context: lesson.context,
        });
    }
}
