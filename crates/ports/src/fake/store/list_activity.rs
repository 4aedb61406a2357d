//! List activity: the lists, calls and searches of sessions, by which list policies are evaluated.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::account::ListActivity;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::invocation::Invocation;

use super::MemoryStore;
use super::queries::{last_rows, newest_rows};
use super::rows::Rows;
use crate::analytics::{ListRepository, StoreError};

impl Rows {
    fn activity(
        &self,
        limit: u32,
        has_call: impl Fn(&Invocation) -> bool,
        has_search: impl Fn(&Search) -> bool,
        has_list: impl Fn(&ListShown) -> bool,
    ) -> ListActivity {
        let calls = (self.calls.values())
            .map(|row| &row.invocation)
            .filter(|call| call.continues.is_none() && has_call(call));
        let searches = self.searches.values().filter(|row| has_search(row));
        let lists = self.lists_shown.values().filter(|row| has_list(row));
        let by_moment = |row: &ListShown| (row.shown_at, row.session);
        let lists = newest_rows(lists.cloned().collect(), limit, by_moment);
        ListActivity {
            lists: lists.iter().map(Into::into).collect(),
            calls: last_rows(calls, limit).iter().map(Into::into).collect(),
            searches: last_rows(searches, limit).iter().map(Into::into).collect(),
        }
    }
}

#[async_trait]
impl ListRepository for MemoryStore {
    async fn lists_shown(
        &self,
        session: SessionId,
        limit: u32,
    ) -> Result<Vec<ListShown>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.lists_shown.values();
        Ok(last_rows(all.filter(|row| row.session == session), limit))
    }

    async fn sessions_open_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(SessionId, Timestamp)>, StoreError> {
        let rows = self.rows.lock();
        let open = rows.sessions.values();
        let open = open.filter(|(_, ended_at)| ended_at.is_none_or(|end| end >= since));
        let open: Vec<(Timestamp, SessionId)> = open
            .map(|(session, _)| (session.started_at, session.id))
            .collect();
        let open = newest_rows(open, limit, |open: &(Timestamp, SessionId)| *open);
        Ok(open.into_iter().map(|(start, id)| (id, start)).collect())
    }

    async fn work_sessions_of(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, BTreeSet<WorkSessionId>>, StoreError> {
        let rows = self.rows.lock();
        let mut of: BTreeMap<SessionId, BTreeSet<WorkSessionId>> = BTreeMap::new();
        for session in sessions {
            let calls = rows.calls.values().map(|row| &row.invocation);
            let mut calls: Vec<_> = calls.filter(|call| call.session == *session).collect();
            calls.sort_by_key(|call| std::cmp::Reverse(call.sequence));
            let work: BTreeSet<_> = calls
                .iter()
                .take(limit as usize)
                .filter_map(|call| call.work_session)
                .collect();
            if !work.is_empty() {
                of.insert(*session, work);
            }
        }
        Ok(of)
    }

    async fn work_sessions_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<BTreeMap<WorkSessionId, SessionId>, StoreError> {
        let rows = self.rows.lock();
        let first = WorkSessionId::new(since, [0; 10]);
        // Calls are sorted by identifier, so that of a later one replaces the session.
        let calls = rows.calls.values().map(|row| &row.invocation);
        let calls = calls.filter_map(|call| Some((call.work_session?, call.session)));
        let mut newest: BTreeMap<_, _> = calls.filter(|(work, _)| *work >= first).collect();
        while newest.len() > limit as usize {
            newest.pop_first();
        }
        Ok(newest)
    }

    async fn list_activities(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, ListActivity>, StoreError> {
        let rows = self.rows.lock();
        let of = |id: SessionId| {
            rows.activity(
                limit,
                |call| call.session == id,
                |search| search.session == id,
                |list| list.session == id,
            )
        };
        Ok(sessions.iter().map(|id| (*id, of(*id))).collect())
    }

    async fn list_activity_of(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<ListActivity, StoreError> {
        let rows = self.rows.lock();
        let is_of = |call: &Invocation| call.work_session == Some(work_session);
        let calls = rows.calls.values().map(|row| &row.invocation);
        let calls: Vec<&Invocation> = calls.filter(|call| is_of(call)).collect();
        let known = rows.work_sessions.get(&work_session);
        let known = known.map(|row| [row.started_at, row.last_active_at]);
        let moments = (calls.iter().map(|call| call.started_at)).chain(known.into_iter().flatten());
        let moments: BTreeSet<Timestamp> = moments.collect();
        let (Some(from), Some(to)) = (moments.first(), moments.last()) else {
            return Ok(ListActivity::default());
        };
        let over: BTreeSet<SessionId> = calls.iter().map(|call| call.session).collect();
        let lists = rows.lists_shown.values();
        let held = lists
            .filter(|row| over.contains(&row.session) && row.shown_at <= *from)
            .map(|row| row.shown_at)
            .max();
        // The list that was current when the work session began was shown before it.
        let shown_from = held.unwrap_or(*from);
        let is_within = |from: Timestamp, at: Timestamp| (from..=*to).contains(&at);
        Ok(rows.activity(
            limit,
            is_of,
            |row| over.contains(&row.session) && is_within(*from, row.searched_at),
            |row| over.contains(&row.session) && is_within(shown_from, row.shown_at),
        ))
    }
}
