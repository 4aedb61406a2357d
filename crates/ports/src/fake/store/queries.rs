//! Queries of recorded rows.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolDefinition, ToolRef};
use riglm_domain::id::{
    ContextId, InvocationId, RecommendationId, SessionId, UpstreamName, WorkSessionId,
};
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::{InvocationSummary, PastCall};
use riglm_domain::usage::session::{Session, SessionSummary};
use riglm_domain::usage::work_session::WorkSession;

use super::MemoryStore;
use super::rows::Rows;
use crate::analytics::{
    DiscoveryRepository, InvocationFilter, InvocationRepository, SessionFilter, SessionRepository,
    StoreError, ToolDefinitionRepository,
};

impl Rows {
    fn summary(&self, session: &Session, ended_at: Option<Timestamp>) -> SessionSummary {
        let calls = self.calls.values();
        let tools: BTreeSet<String> = (self.listed.keys())
            .filter(|(listed_to, _)| *listed_to == session.id)
            .filter_map(|(_, listing)| self.listings.get(listing))
            .flat_map(|listing| listing.tools.iter().map(|tool| tool.name.to_string()))
            .collect();
        SessionSummary {
            session: session.clone(),
            ended_at,
            n_calls: calls
                .filter(|call| call.invocation.session == session.id)
                .count() as u64,
            tools_available: tools.into_iter().collect(),
        }
    }

    fn past_call(&self, call: &InvocationSummary) -> PastCall {
        let made = call.invocation.clone();
        let session = self.sessions.get(&made.session);
        PastCall {
            id: made.id,
            session: made.session,
            work_session: made.work_session,
            principal: made.principal,
            client: session.map(|(session, _)| session.client_info.name.clone()),
            upstream: made.upstream,
            tool: made.tool,
            started_at: made.started_at,
            continues: made.continues,
            context: call.invocation.context,
            outcome: call.end.as_ref().map(|end| end.outcome),
        }
    }

    fn matching_calls(
        &self,
        filter: &InvocationFilter,
    ) -> impl Iterator<Item = &InvocationSummary> {
        let first = filter.since.map(|since| InvocationId::new(since, [0; 10]));
        self.calls.values().filter(move |call| {
            let InvocationSummary { invocation, .. } = call;
            (filter.session).is_none_or(|id| id == invocation.session)
                && (filter.tool.as_ref()).is_none_or(|tool| *tool == invocation.tool)
                && (filter.upstream.as_ref()).is_none_or(|name| *name == invocation.upstream)
                && first.is_none_or(|first| invocation.id >= first)
                && filter.state.is_none_or(|state| state == call.state())
        })
    }
}

/// Returns the last `limit` rows, in their order.
pub(super) fn last_rows<'a, T: Clone + 'a>(
    rows: impl Iterator<Item = &'a T>,
    limit: u32,
) -> Vec<T> {
    let mut rows: Vec<T> = rows.cloned().collect();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    rows.split_off(rows.len().saturating_sub(limit))
}

/// Returns the newest `limit` rows, oldest first.
pub(super) fn newest_rows<T: Clone, K: Ord>(
    mut rows: Vec<T>,
    limit: u32,
    age: impl Fn(&T) -> K,
) -> Vec<T> {
    rows.sort_by_key(age);
    last_rows(rows.iter(), limit)
}

#[async_trait]
impl SessionRepository for MemoryStore {
    async fn sessions_where(
        &self,
        filter: &SessionFilter,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = self.rows.lock();
        let fits = |(session, ended_at): &&(Session, Option<Timestamp>)| {
            let place = (session.started_at, session.id);
            filter.before.is_none_or(|before| place < before)
                && filter
                    .is_open
                    .is_none_or(|is_open| ended_at.is_none() == is_open)
                && filter.id.is_none_or(|id| session.id == id)
        };
        let all = rows.sessions.values().filter(fits);
        let all = all
            .map(|(session, ended_at)| {
                let mut summary = rows.summary(session, *ended_at);
                let most = filter.count_up_to.map_or(u64::MAX, u64::from);
                summary.n_calls = summary.n_calls.min(most);
                summary
            })
            .collect();
        Ok(newest_rows(all, limit, |row: &SessionSummary| {
            (row.session.started_at, row.session.id)
        }))
    }

    async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError> {
        let hash = KeyedHash::from_hex(name);
        let rows = self.rows.lock();
        let named = rows
            .sessions
            .values()
            .map(|(session, _)| session)
            .filter(|session| session.client_info.name == name || Some(session.client) == hash);
        Ok(named.map(|session| session.client).collect())
    }

    async fn work_session(&self, id: WorkSessionId) -> Result<Option<WorkSession>, StoreError> {
        Ok(self.rows.lock().work_sessions.get(&id).cloned())
    }

    async fn work_sessions(&self, limit: u32) -> Result<Vec<WorkSession>, StoreError> {
        let all = self.rows.lock().work_sessions.values().cloned().collect();
        Ok(newest_rows(all, limit, |row: &WorkSession| {
            (row.last_active_at, row.id)
        }))
    }
}

#[async_trait]
impl InvocationRepository for MemoryStore {
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(last_rows(self.rows.lock().matching_calls(filter), limit))
    }

    async fn calls_by_id(
        &self,
        ids: &[InvocationId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let (rows, all) = (self.rows.lock(), InvocationFilter::default());
        let is_meant = |call: &&InvocationSummary| ids.contains(&call.invocation.id);
        Ok(last_rows(
            rows.matching_calls(&all).filter(is_meant),
            u32::MAX,
        ))
    }

    async fn past_calls(
        &self,
        scope: Option<&Principal>,
        after: Option<InvocationId>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        let rows = self.rows.lock();
        let mut calls: Vec<PastCall> = (rows.calls.values())
            .filter(|call| scope.is_none_or(|scope| call.invocation.principal == *scope))
            .filter(|call| after.is_none_or(|after| call.invocation.id > after))
            .map(|call| rows.past_call(call))
            .collect();
        calls.sort_by_key(|call| call.id);
        calls.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(calls)
    }

    async fn recent_calls(
        &self,
        scope: Option<&Principal>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        let mut calls = self.past_calls(scope, None, u32::MAX).await?;
        let n_older = calls
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(calls.split_off(n_older))
    }

    async fn call_before_newest(
        &self,
        scope: Option<&Principal>,
        n: u32,
    ) -> Result<Option<InvocationId>, StoreError> {
        let calls = self.past_calls(scope, None, u32::MAX).await?;
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        Ok(calls.iter().rev().nth(n).map(|call| call.id))
    }

    async fn calls_after(
        &self,
        contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let (rows, all) = (self.rows.lock(), InvocationFilter::default());
        let followed = |call: &&InvocationSummary| {
            let context = call.invocation.context;
            context.is_some_and(|context| contexts.contains(&context))
        };
        Ok(last_rows(
            rows.matching_calls(&all).filter(followed),
            u32::MAX,
        ))
    }

    async fn last_calls(&self, tools: &[ToolRef]) -> Result<Vec<(ToolRef, Timestamp)>, StoreError> {
        let (rows, all) = (self.rows.lock(), InvocationFilter::default());
        let mut newest: BTreeMap<ToolRef, (InvocationId, Timestamp)> = BTreeMap::new();
        for call in rows.matching_calls(&all) {
            let made = &call.invocation;
            let tool = ToolRef {
                upstream: made.upstream.clone(),
                tool: made.tool.clone(),
            };
            if !tools.contains(&tool) {
                continue;
            }
            let last = newest.entry(tool).or_insert((made.id, made.started_at));
            if last.0 < made.id {
                *last = (made.id, made.started_at);
            }
        }
        let newest = newest.into_iter();
        Ok(newest.map(|(tool, (_, at))| (tool, at)).collect())
    }

    async fn calls_of_work(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let (rows, all) = (self.rows.lock(), InvocationFilter::default());
        let is_of_it =
            |call: &&InvocationSummary| call.invocation.work_session == Some(work_session);
        Ok(last_rows(rows.matching_calls(&all).filter(is_of_it), limit))
    }

    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError> {
        Ok(self.rows.lock().matching_calls(filter).count() as u64)
    }

    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.exchanges.values();
        let all = all
            .filter(|exchange| exchange.session == session)
            .cloned()
            .collect();
        Ok(newest_rows(all, limit, |row: &Exchange| {
            (row.started_at, row.id)
        }))
    }
}

#[async_trait]
impl ToolDefinitionRepository for MemoryStore {
    async fn tool_definitions(
        &self,
        upstream: Option<&UpstreamName>,
    ) -> Result<Vec<ToolDefinition>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.definitions.values();
        let all = all
            .filter(|row| upstream.is_none_or(|upstream| *upstream == row.upstream))
            .cloned()
            .collect();
        Ok(newest_rows(all, u32::MAX, |row: &ToolDefinition| {
            (
                row.upstream.clone(),
                row.sighting.name.clone(),
                row.first_seen,
                row.sighting.content_hash.clone(),
            )
        }))
    }

    async fn tools_seen(&self) -> Result<Vec<ToolRef>, StoreError> {
        let rows = self.rows.lock();
        let tools: BTreeSet<ToolRef> = (rows.definitions.values())
            .map(|row| ToolRef {
                upstream: row.upstream.clone(),
                tool: row.sighting.name.clone(),
            })
            .collect();
        Ok(tools.into_iter().collect())
    }
}

#[async_trait]
impl DiscoveryRepository for MemoryStore {
    async fn searches(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Search>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.searches.values();
        let fits = |row: &&Search| session.is_none_or(|session| session == row.session);
        Ok(last_rows(all.filter(fits), limit))
    }

    async fn contexts(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.contexts.values();
        let fits = |row: &&Context| session.is_none_or(|session| session == row.session);
        Ok(last_rows(all.filter(fits), limit))
    }

    async fn contexts_of(
        &self,
        principal: &Principal,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.contexts.values();
        Ok(last_rows(
            all.filter(|row| row.principal == *principal),
            limit,
        ))
    }

    async fn contexts_with(&self, ids: &[ContextId]) -> Result<Vec<Context>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.contexts.values();
        Ok(last_rows(all.filter(|row| ids.contains(&row.id)), u32::MAX))
    }

    async fn recommendation(
        &self,
        id: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        Ok(self.rows.lock().recommendations.get(&id).cloned())
    }

    async fn recommendations(&self, limit: u32) -> Result<Vec<Recommendation>, StoreError> {
        Ok(last_rows(self.rows.lock().recommendations.values(), limit))
    }

    async fn feedback(
        &self,
        scope: Option<&Principal>,
        tool: Option<&ToolRef>,
        limit: u32,
    ) -> Result<Vec<Feedback>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.feedback.values();
        let fits = |row: &&Feedback| {
            scope.is_none_or(|scope| *scope == row.principal)
                && tool.is_none_or(|tool| *tool == row.tool)
        };
        Ok(last_rows(all.filter(fits), limit))
    }
}
