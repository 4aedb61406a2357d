//! Maintenance: purging old rows, and locking tasks.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::id::{
    ContextId, ExchangeId, FeedbackId, InvocationId, RecommendationId, SearchId, SessionId,
    WorkSessionId,
};
use riglm_domain::selection::epoch::ListEpoch;

use super::MemoryStore;
use super::rows::Rows;
use crate::analytics::{
    IntegrityProblem, Maintenance, MaintenanceGuard, MaintenanceTask, PurgeReport, RebuildReport,
    StoreError,
};

/// The key of a row that is purged by age.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum AgedRow {
    Call(InvocationId),
    Exchange(ExchangeId),
    ListShown(SessionId, Timestamp),
    Search(SearchId),
    Context(ContextId),
    Recommendation(RecommendationId),
    Feedback(FeedbackId),
    WorkSession(WorkSessionId),
    ListEpoch(String),
    Snapshot(String, u64),
}

impl Rows {
    /// Returns the rows that are older than `before`, with their age, oldest first.
    fn rows_older_than(&self, before: Timestamp) -> BTreeSet<(Timestamp, AgedRow)> {
        let calls = (self.calls.values())
            .map(|row| (row.invocation.started_at, AgedRow::Call(row.invocation.id)));
        let exchanges =
            (self.exchanges.values()).map(|row| (row.started_at, AgedRow::Exchange(row.id)));
        let lists = (self.lists_shown.values())
            .map(|row| (row.shown_at, AgedRow::ListShown(row.session, row.shown_at)));
        let searches =
            (self.searches.values()).map(|row| (row.searched_at, AgedRow::Search(row.id)));
        let contexts = (self.contexts.values()).map(|row| (row.given_at, AgedRow::Context(row.id)));
        let recommendations = (self.recommendations.values())
            .map(|row| (row.shown_at, AgedRow::Recommendation(row.id)));
        let feedback =
            (self.feedback.values()).map(|row| (row.given_at, AgedRow::Feedback(row.id)));
        let work_sessions = (self.work_sessions.values())
            .map(|row| (row.last_active_at, AgedRow::WorkSession(row.id)));
        let epochs = (self.list_epochs.values())
            .filter(|row| row.scope.starts_with(ListEpoch::WORK_SCOPE))
            .map(|row| (row.began_at, AgedRow::ListEpoch(row.scope.clone())));
        let snapshots = (self.snapshots.values().flat_map(BTreeMap::values)).map(|row| {
            (
                row.taken_at,
                AgedRow::Snapshot(row.model.clone(), row.version),
            )
        });
        calls
            .chain(exchanges)
            .chain(lists)
            .chain(searches)
            .chain(contexts)
            .chain(recommendations)
            .chain(feedback)
            .chain(work_sessions)
            .chain(epochs)
            .chain(snapshots)
            .filter(|(moment, _)| *moment < before)
            .collect()
    }

    fn remove(&mut self, row: &AgedRow) {
        match row {
            AgedRow::Call(id) => drop(self.calls.remove(id)),
            AgedRow::Exchange(id) => drop(self.exchanges.remove(id)),
            AgedRow::ListShown(session, moment) => {
                drop(self.lists_shown.remove(&(*session, *moment)));
            }
            AgedRow::Search(id) => drop(self.searches.remove(id)),
            AgedRow::Context(id) => drop(self.contexts.remove(id)),
            AgedRow::Recommendation(id) => drop(self.recommendations.remove(id)),
            AgedRow::Feedback(id) => drop(self.feedback.remove(id)),
            AgedRow::WorkSession(id) => drop(self.work_sessions.remove(id)),
            AgedRow::ListEpoch(scope) => drop(self.list_epochs.remove(scope)),
            AgedRow::Snapshot(model, version) => {
                if let Some(versions) = self.snapshots.get_mut(model) {
                    versions.remove(version);
                }
            }
        }
    }

    /// Returns the sessions that ended before `before` and have no calls left, oldest first.
    fn aged_sessions(&self, before: Timestamp) -> BTreeSet<(Timestamp, SessionId)> {
        let busy: BTreeSet<_> = (self.calls.values())
            .map(|call| call.invocation.session)
            .collect();
        (self.sessions.values())
            .map(|(session, ended_at)| (ended_at.unwrap_or(session.started_at), session.id))
            .filter(|(moment, id)| *moment < before && !busy.contains(id))
            .collect()
    }

    /// Removes sessions with all rows that belong to them; returns the number of these rows.
    pub(super) fn remove_sessions(&mut self, gone: &BTreeSet<SessionId>) -> u64 {
        let n_before = self.n_session_rows();
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
        n_before - self.n_session_rows()
    }

    fn n_session_rows(&self) -> u64 {
        let n = self.listed.len()
            + self.exchanges.len()
            + self.lists_shown.len()
            + self.searches.len()
            + self.contexts.len()
            + self.recommendations.len()
            + self.feedback.len();
        n as u64
    }

    /// Removes the used tools of sessions that have neither a row nor a call.
    fn remove_unrecorded_session_tools(&mut self) {
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
    async fn rebuild(&self) -> Result<RebuildReport, StoreError> {
        let rows = self.rows_for_writing()?;
        Ok(RebuildReport {
            n_calls: rows.calls.len() as u64,
            n_counts: rows.n_counts(),
        })
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<PurgeReport, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let old: Vec<_> = rows
            .rows_older_than(before)
            .into_iter()
            .take(limit)
            .collect();
        let mut purged = PurgeReport::default();
        for (_, row) in &old {
            rows.remove(row);
            if matches!(row, AgedRow::Call(_)) {
                purged.n_calls += 1;
            } else {
                purged.n_others += 1;
            }
        }
        let sessions = rows.aged_sessions(before).into_iter();
        let sessions: BTreeSet<_> = sessions.take(limit - old.len()).map(|(_, id)| id).collect();
        purged.n_sessions = sessions.len() as u64;
        purged.n_others += rows.remove_sessions(&sessions);
        // After the calls are gone, used tools of sessions without a row are not needed any more.
        rows.remove_unrecorded_session_tools();
        purged.is_done =
            rows.rows_older_than(before).is_empty() && rows.aged_sessions(before).is_empty();
        Ok(purged)
    }

    async fn check(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        Ok(Vec::new())
    }

    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
        let mut tasks = self.tasks.lock();
        let guard = || {
            let tasks = Arc::clone(&self.tasks);
            Box::new(TaskGuard { tasks, task }) as Box<dyn MaintenanceGuard>
        };
        Ok(tasks.insert(task).then(guard))
    }
}

/// Releases the task when it is dropped.
#[derive(Debug)]
struct TaskGuard {
    tasks: Arc<Mutex<HashSet<MaintenanceTask>>>,
    task: MaintenanceTask,
}

impl MaintenanceGuard for TaskGuard {}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let mut tasks = self.tasks.lock();
        tasks.remove(&self.task);
    }
}
