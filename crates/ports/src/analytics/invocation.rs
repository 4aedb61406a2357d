//! Recorded requests: tool calls, and requests for resources and prompts.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ContextId, InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{CallState, InvocationSummary, PastCall};

use super::StoreError;

/// A filter of calls. The default matches all calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvocationFilter {
    /// Only calls of this session.
    pub session: Option<SessionId>,
    /// Only calls of this tool, by its name at the upstream.
    pub tool: Option<ToolName>,
    /// Only calls that were forwarded to this upstream.
    pub upstream: Option<UpstreamName>,
    /// Only calls that were received at this moment or later. The moment is taken from the
    /// identifier, which has a precision of milliseconds.
    pub since: Option<Timestamp>,
    /// Only calls in this state: in flight, or with this outcome.
    pub state: Option<CallState>,
}

/// Reads recorded tool calls, and requests for resources and prompts.
#[async_trait]
pub trait InvocationRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` matching calls by identifier, oldest first. An identifier begins
    /// with the time of receipt. Calls in flight are included, without an end.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the calls with these identifiers, oldest first by identifier. Unknown identifiers
    /// are omitted.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn calls_by_id(&self, ids: &[InvocationId])
    -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the oldest `limit` calls by identifier, oldest first, of a principal or of all: all
    /// calls, or only those after a given call, which need not exist any more. Calls in flight are
    /// included. In this way the whole history can be read page by page.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn past_calls(
        &self,
        scope: Option<&Principal>,
        after: Option<InvocationId>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError>;

    /// Returns the newest `limit` calls by identifier, oldest first, of a principal or of all, in the
    /// form of [`Self::past_calls`].
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recent_calls(
        &self,
        scope: Option<&Principal>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError>;

    /// Returns the newest call that is older than the newest `n` calls by identifier, of a principal
    /// or of all; `None` if there are no more than `n`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn call_before_newest(
        &self,
        scope: Option<&Principal>,
        n: u32,
    ) -> Result<Option<InvocationId>, StoreError>;

    /// Returns the calls that followed these contexts, oldest first by identifier. Calls in flight
    /// are included.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn calls_after(
        &self,
        contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the start of the newest call by identifier of each of these tools, in any order. Tools
    /// without calls are omitted.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn last_calls(&self, tools: &[ToolRef]) -> Result<Vec<(ToolRef, Timestamp)>, StoreError>;

    /// Returns the newest `limit` calls of a work session by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn calls_of_work(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the number of matching calls, calls in flight included.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError>;

    /// Returns the newest `limit` requests of a session for resources and prompts by start, oldest first; ties by
    /// identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError>;
}
