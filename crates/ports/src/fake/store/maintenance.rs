//! Upkeep: old rows are purged, tasks are kept to one holder.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{
    ContextId, ExchangeId, FeedbackId, InvocationId, RecommendationId, SearchId, SessionId,
    WorkSessionId,
};
use riglm_domain::list_epoch::ListEpoch;

use super::MemoryStore;
use super::rows::Rows;
use crate::analytics::{
    Finding, Maintenance, MaintenanceGuard, MaintenanceTask, Purged, Rebuilt, StoreError,
};

/// A row that grows old by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Aging {
    Call(InvocationId),
    Exchange(ExchangeId),
    ListShown(SessionId, Timestamp),
    Search(SearchId),
    Context(ContextId),
    Recommendation(RecommendationId),
    Feedback(FeedbackId),
    WorkSession(WorkSessionId),
    ListEpoch(String),
}

impl Rows {
    /// Returns the rows that are older than `before`, with their age, oldest first.
    fn aged(&self, before: Timestamp) -> BTreeSet<(Timestamp, Aging)> {
        let calls = (self.calls.values())
            .map(|row| (row.invocation.started_at, Aging::Call(row.invocation.id)));
        let exchanges =
            (self.exchanges.values()).map(|row| (row.started_at, Aging::Exchange(row.id)));
        let lists = (self.lists_shown.values())
            .map(|row| (row.shown_at, Aging::ListShown(row.session, row.shown_at)));
        let searches = (self.searches.values()).map(|row| (row.searched_at, Aging::Search(row.id)));
        let contexts = (self.contexts.values()).map(|row| (row.given_at, Aging::Context(row.id)));
        let recommendations = (self.recommendations.values())
            .map(|row| (row.shown_at, Aging::Recommendation(row.id)));
        let feedback = (self.feedback.values()).map(|row| (row.given_at, Aging::Feedback(row.id)));
        let work_sessions = (self.work_sessions.values())
            .map(|row| (row.last_active_at, Aging::WorkSession(row.id)));
        let epochs = (self.list_epochs.values())
            .filter(|row| row.scope.starts_with(ListEpoch::WORK_SCOPE))
            .map(|row| (row.began_at, Aging::ListEpoch(row.scope.clone())));
        calls
            .chain(exchanges)
            .chain(lists)
            .chain(searches)
            .chain(contexts)
            .chain(recommendations)
            .chain(feedback)
            .chain(work_sessions)
            .chain(epochs)
            .filter(|(moment, _)| *moment < before)
            .collect()
    }

    fn remove(&mut self, row: &Aging) {
        match row {
            Aging::Call(id) => drop(self.calls.remove(id)),
            Aging::Exchange(id) => drop(self.exchanges.remove(id)),
            Aging::ListShown(session, moment) => {
                drop(self.lists_shown.remove(&(*session, *moment)));
            }
            Aging::Search(id) => drop(self.searches.remove(id)),
            Aging::Context(id) => drop(self.contexts.remove(id)),
            Aging::Recommendation(id) => drop(self.recommendations.remove(id)),
            Aging::Feedback(id) => drop(self.feedback.remove(id)),
            Aging::WorkSession(id) => drop(self.work_sessions.remove(id)),
            Aging::ListEpoch(scope) => drop(self.list_epochs.remove(scope)),
        }
    }

    /// Returns the sessions that are over since before `before` and have no call, oldest first.
    fn aged_sessions(&self, before: Timestamp) -> BTreeSet<(Timestamp, SessionId)> {
        let busy: BTreeSet<_> = (self.calls.values())
            .map(|call| call.invocation.session)
            .collect();
        (self.sessions.values())
            .map(|(session, ended_at)| (ended_at.unwrap_or(session.started_at), session.id))
            .filter(|(moment, id)| *moment < before && !busy.contains(id))
            .collect()
    }

    /// Removes sessions with all that belongs to them; returns how many rows belonged to them.
    pub(super) fn remove_sessions(&mut self, gone: &BTreeSet<SessionId>) -> u64 {
        let n_before = self.n_of_sessions();
        self.sessions.retain(|id, _| !gone.contains(id));
        self.session_tools.retain(|id, _| !gone.contains(id));
        self.listed
            .retain(|(session, _), _| !gone.contains(session));
        self.exchanges.retain(|_, row| !gone.contains(&row.session));
        self.lists_shown
            .retain(|(session, _), _| !gone.contains(session));
        self.searches.retain(|_, row| !gone.contains(&row.session));
        self.contexts.retain(|_, row| !gone.contains(&row.session));
        let is_gone = |session: Option<SessionId>| session.is_some_and(|id| gone.contains(&id));
        self.recommendations.retain(|_, row| !is_gone(row.session));
        self.feedback.retain(|_, row| !is_gone(row.session));
        n_before - self.n_of_sessions()
    }

    fn n_of_sessions(&self) -> u64 {
        let n = self.listed.len()
            + self.exchanges.len()
            + self.lists_shown.len()
            + self.searches.len()
            + self.contexts.len()
            + self.recommendations.len()
            + self.feedback.len();
        n as u64
    }

    /// Forgets what sessions used that have neither a row nor a call.
    fn forget_unrecorded_sessions(&mut self) {
        let busy: BTreeSet<_> = (self.calls.values())
            .map(|call| call.invocation.session)
            .collect();
        let sessions = &self.sessions;
        self.session_tools
            .retain(|id, _| sessions.contains_key(id) || busy.contains(id));
    }
}

#[async_trait]
impl Maintenance for MemoryStore {
    async fn rebuild(&self) -> Result<Rebuilt, StoreError> {
        let rows = self.writing()?;
        Ok(Rebuilt {
            n_calls: rows.calls.len() as u64,
            n_counts: rows.n_counts(),
        })
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<Purged, StoreError> {
        let mut rows = self.writing()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let old: Vec<_> = rows.aged(before).into_iter().take(limit).collect();
        let mut purged = Purged::default();
        for (_, row) in &old {
            rows.remove(row);
            if matches!(row, Aging::Call(_)) {
                purged.n_calls += 1;
            } else {
                purged.n_others += 1;
            }
        }
        let sessions = rows.aged_sessions(before).into_iter();
        let sessions: BTreeSet<_> = sessions.take(limit - old.len()).map(|(_, id)| id).collect();
        purged.n_sessions = sessions.len() as u64;
        purged.n_others += rows.remove_sessions(&sessions);
        rows.forget_unrecorded_sessions();
        purged.is_done = rows.aged(before).is_empty() && rows.aged_sessions(before).is_empty();
        Ok(purged)
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = || {
            let tasks = Arc::clone(&self.tasks);
            Box::new(Guard { tasks, task }) as Box<dyn MaintenanceGuard>
        };
        Ok(tasks.insert(task).then(guard))
    }
}

/// Frees the task when it is dropped.
#[derive(Debug)]
struct Guard {
    tasks: Arc<Mutex<HashSet<MaintenanceTask>>>,
    task: MaintenanceTask,
}

impl MaintenanceGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.remove(&self.task);
    }
}
