//! Recorded tool calls.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{ContextId, InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::invocation::{CallState, InvocationSummary, PastCall};

use super::StoreError;

/// Which calls are meant. The default means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvocationFilter {
    /// Only calls of this session.
    pub session: Option<SessionId>,
    /// Only calls of this tool, by the name that its upstream knows.
    pub tool: Option<ToolName>,
    /// Only calls that were forwarded to this upstream.
    pub upstream: Option<UpstreamName>,
    /// Only calls that were received at this moment or later, by their identifiers, which have it to
    /// the millisecond.
    pub since: Option<Timestamp>,
    /// Only calls that are in flight, or that ended so.
    pub state: Option<CallState>,
}

/// Reads recorded tool calls.
#[async_trait]
pub trait InvocationRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` calls that fit by identifier, which begins with the time of
    /// receipt, oldest first. Calls in flight are among them, without an end.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the calls with these identifiers, oldest first by identifier. Those of no call are left
    /// out.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn calls_by_id(&self, ids: &[InvocationId])
    -> Result<Vec<InvocationSummary>, StoreError>;

    /// Returns the oldest `limit` calls by identifier, oldest first: all, or those after a call,
    /// which need not be there any more. Calls in flight are among them. So the whole history can
    /// be read page by page.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn past_calls(
        &self,
        after: Option<InvocationId>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError>;

    /// Returns the newest `limit` calls by identifier, oldest first, as [`Self::past_calls`] returns
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recent_calls(&self, limit: u32) -> Result<Vec<PastCall>, StoreError>;

    /// Returns the calls that followed these contexts, oldest first by identifier. Calls in flight
    /// are among them.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn calls_after(
        &self,
        contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError>;

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

    /// Returns how many calls fit, those in flight included.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError>;
}
