//! Export and deletion of all stored data of one client.

use std::collections::BTreeSet;

use async_trait::async_trait;
use riglm_domain::catalog::tool_override::{OverrideScope, ToolOverride};
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::work_session::WorkSession;

use super::MemoryStore;
use super::rows::Rows;
use crate::analytics::{ClientData, ClientRow, ClientSelector, DeletedRows, StoreError, Topic};

/// The selected clients, and their sessions.
struct ClientSelection {
    clients: BTreeSet<KeyedHash>,
    sessions: BTreeSet<SessionId>,
    work_sessions: BTreeSet<WorkSessionId>,
}

impl ClientSelection {
    fn new(rows: &Rows, selector: &ClientSelector) -> Self {
        let sessions = rows.sessions.values().map(|(session, _)| session);
        let named = (sessions.clone())
            .filter(|session| session.client_info.name == selector.0)
            .map(|session| session.client);
        let clients: BTreeSet<_> = named.chain(KeyedHash::from_hex(&selector.0)).collect();
        let sessions = sessions
            .filter(|session| clients.contains(&session.client))
            .map(|session| session.id)
            .collect();
        let work_sessions = (rows.work_sessions.values())
            .filter(|row| clients.contains(&row.client))
            .map(|row| row.id)
            .collect();
        Self {
            clients,
            sessions,
            work_sessions,
        }
    }

    /// Returns whether a row belongs to a session or a work session of the clients.
    fn has_row_of(&self, session: Option<SessionId>, work: Option<WorkSessionId>) -> bool {
        session.is_some_and(|session| self.sessions.contains(&session))
            || work.is_some_and(|work| self.work_sessions.contains(&work))
    }

    fn has_work_session(&self, row: &WorkSession) -> bool {
        self.clients.contains(&row.client)
    }

    fn has_epoch(&self, row: &ListEpoch) -> bool {
        row.client
            .is_some_and(|client| self.clients.contains(&client))
    }

    fn has_override(&self, row: &ToolOverride) -> bool {
        match &row.scope {
            OverrideScope::Client(id) => {
                KeyedHash::from_hex(id).is_some_and(|client| self.clients.contains(&client))
            }
            OverrideScope::Session(id) => id
                .parse()
                .is_ok_and(|session| self.sessions.contains(&session)),
            OverrideScope::Global | OverrideScope::Profile(_) => false,
        }
    }
}

impl Rows {
    fn client_rows(&self, selected: &ClientSelection) -> Result<Vec<ClientRow>, StoreError> {
        let is_of = |session: SessionId| selected.sessions.contains(&session);
        let sessions = (self.sessions.values())
            .filter(|(session, _)| is_of(session.id))
            .map(|(session, ended_at)| ClientRow::session(session, *ended_at));
        let calls = (self.calls.values())
            .filter(|row| is_of(row.invocation.session))
            .map(ClientRow::call);
        let exchanges = (self.exchanges.values())
            .filter(|row| is_of(row.session))
            .map(ClientRow::exchange);
        let listed = (self.listed.iter())
            .filter(|((session, _), _)| is_of(*session))
            .map(|((session, listing), at)| ClientRow::tools_listed(*session, listing, *at));
        let lists_shown = (self.lists_shown.values())
            .filter(|row| is_of(row.session))
            .map(ClientRow::list_shown);
        let searches = (self.searches.values())
            .filter(|row| is_of(row.session))
            .map(ClientRow::search);
        let contexts = (self.contexts.values())
            .filter(|row| is_of(row.session))
            .map(ClientRow::context);
        let recommendations = (self.recommendations.values())
            .filter(|row| selected.has_row_of(row.session, row.work_session))
            .map(ClientRow::recommendation);
        let feedback = (self.feedback.values())
            .filter(|row| selected.has_row_of(row.session, row.work_session))
            .map(ClientRow::feedback);
        let work_sessions = (self.work_sessions.values())
            .filter(|row| selected.has_work_session(row))
            .map(ClientRow::work_session);
        let epochs = (self.list_epochs.values())
            .filter(|row| selected.has_epoch(row))
            .map(ClientRow::list_epoch);
        let overrides = (self.overrides.values())
            .filter(|row| selected.has_override(row))
            .map(ClientRow::tool_override);
        sessions
            .chain(calls)
            .chain(exchanges)
            .chain(listed)
            .chain(lists_shown)
            .chain(searches)
            .chain(contexts)
            .chain(recommendations)
            .chain(feedback)
            .chain(work_sessions)
            .chain(epochs)
            .chain(overrides)
            .collect()
    }
}

#[async_trait]
impl ClientData for MemoryStore {
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError> {
        // Collected first, so that the lock is not held while `take` runs.
        let found = {
            let rows = self.rows.lock();
            rows.client_rows(&ClientSelection::new(&rows, clients))?
        };
        for row in found {
            if !take(row) {
                break;
            }
        }
        Ok(())
    }

    async fn delete(&self, clients: &ClientSelector) -> Result<DeletedRows, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let selected = ClientSelection::new(&rows, clients);
        let n_before = [
            rows.calls.len(),
            rows.work_sessions.len(),
            rows.overrides.len(),
            rows.list_epochs.len(),
            rows.recommendations.len(),
            rows.feedback.len(),
        ];
        (rows.recommendations).retain(|_, row| !selected.has_row_of(None, row.work_session));
        (rows.feedback).retain(|_, row| !selected.has_row_of(None, row.work_session));
        rows.calls
            .retain(|_, row| !selected.sessions.contains(&row.invocation.session));
        rows.work_sessions
            .retain(|_, row| !selected.has_work_session(row));
        rows.overrides.retain(|_, row| !selected.has_override(row));
        rows.list_epochs.retain(|_, row| !selected.has_epoch(row));
        let n_after = [
            rows.calls.len(),
            rows.work_sessions.len(),
            rows.overrides.len(),
            rows.list_epochs.len(),
            rows.recommendations.len(),
            rows.feedback.len(),
        ];
        let n_gone = |index: usize| (n_before[index] - n_after[index]) as u64;
        if n_gone(2) > 0 {
            rows.touch(Topic::Overrides);
        }
        if n_gone(3) > 0 {
            rows.touch(Topic::ListEpochs);
        }
        // Learned state may contain the calls of these sessions.
        if !selected.sessions.is_empty() {
            rows.snapshots.clear();
            rows.touch(Topic::Erasures);
        }
        Ok(DeletedRows {
            n_sessions: selected.sessions.len() as u64,
            n_calls: n_gone(0),
            n_others: (1..=5).map(n_gone).sum::<u64>() + rows.remove_sessions(&selected.sessions),
        })
    }
}
