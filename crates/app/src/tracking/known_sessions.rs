//! Identities of the open sessions, for events about them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::session::Session;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionIdentity {
    pub(crate) connection: SessionId,
    pub(crate) principal: Principal,
    pub(crate) client: KeyedHash,
    /// The name that the client declares.
    pub(crate) client_name: String,
}

/// The open sessions that have a row, by connection and work session.
#[derive(Debug, Default)]
pub struct OpenSessions(Mutex<OpenSessionMaps>);

#[derive(Debug, Default)]
struct OpenSessionMaps {
    connections: HashMap<SessionId, (Arc<SessionIdentity>, Option<WorkSessionId>)>,
    /// The last connection of each work session.
    work_sessions: HashMap<WorkSessionId, SessionId>,
}

impl OpenSessions {
    /// Adds a session that has a row now.
    pub(crate) fn add_session(&self, session: &Session) {
        let known = SessionIdentity {
            connection: session.id,
            principal: session.principal.clone(),
            client: session.client,
            client_name: session.client_info.name.clone(),
        };
        let mut state = self.0.lock();
        (state.connections).insert(session.id, (Arc::new(known), None));
    }

    /// Records the work session of the last request of a connection.
    pub(crate) fn set_work_session(&self, connection: SessionId, work: WorkSessionId) {
        let mut state = self.0.lock();
        let Some((_, known)) = state.connections.get_mut(&connection) else {
            return;
        };
        let before = known.replace(work);
        if let Some(before) = before.filter(|before| *before != work) {
            state.forget(before, connection);
        }
        state.work_sessions.insert(work, connection);
    }

    pub(crate) fn remove_session(&self, connection: SessionId) {
        let mut state = self.0.lock();
        if let Some((_, Some(work))) = state.connections.remove(&connection) {
            state.forget(work, connection);
        }
    }

    /// Returns the identity of a session, by its connection or else by its work session.
    pub(crate) fn find(
        &self,
        connection: Option<SessionId>,
        work: Option<WorkSessionId>,
    ) -> Option<Arc<SessionIdentity>> {
        let state = self.0.lock();
        let of_work = || work.and_then(|work| state.work_sessions.get(&work).copied());
        let connection = connection.or_else(of_work)?;
        let known = state.connections.get(&connection);
        known.map(|(session, _)| Arc::clone(session))
    }
}

impl OpenSessionMaps {
    /// Removes a work session of a connection, unless it is active over another one now.
    fn forget(&mut self, work: WorkSessionId, connection: SessionId) {
        if self.work_sessions.get(&work) == Some(&connection) {
            self.work_sessions.remove(&work);
        }
    }
}
