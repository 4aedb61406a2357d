//! Who is behind the sessions that are open, for those who tell of what happens in them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::principal::Principal;
use riglm_domain::session::Session;

/// Who is behind a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownSession {
    /// Its connection.
    pub(crate) connection: SessionId,
    /// Whose it is.
    pub(crate) principal: Principal,
    /// Keyed hash of the client.
    pub(crate) client: KeyedHash,
    /// The name that the client gives itself.
    pub(crate) client_name: String,
}

/// The sessions that are open and have a row, by their connections and work sessions.
#[derive(Debug, Default)]
pub struct KnownSessions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    connections: HashMap<SessionId, (Arc<KnownSession>, Option<WorkSessionId>)>,
    /// The connection over which each work session was heard of last.
    work_sessions: HashMap<WorkSessionId, SessionId>,
}

impl KnownSessions {
    /// Notes a session that has a row now.
    pub(crate) fn opened(&self, session: &Session) {
        let known = KnownSession {
            connection: session.id,
            principal: session.principal.clone(),
            client: session.client,
            client_name: session.client_info.name.clone(),
        };
        let mut state = self.state();
        state
            .connections
            .insert(session.id, (Arc::new(known), None));
    }

    /// Notes the work session to which the last request of a connection belongs.
    pub(crate) fn works(&self, connection: SessionId, work: WorkSessionId) {
        let mut state = self.state();
        let Some((_, known)) = state.connections.get_mut(&connection) else {
            return;
        };
        let before = known.replace(work);
        if let Some(before) = before.filter(|before| *before != work) {
            state.forget(before, connection);
        }
        state.work_sessions.insert(work, connection);
    }

    /// Forgets a session.
    pub(crate) fn closed(&self, connection: SessionId) {
        let mut state = self.state();
        if let Some((_, Some(work))) = state.connections.remove(&connection) {
            state.forget(work, connection);
        }
    }

    /// Returns who is behind a session, by its connection or, without that, by its work session.
    pub(crate) fn find(
        &self,
        connection: Option<SessionId>,
        work: Option<WorkSessionId>,
    ) -> Option<Arc<KnownSession>> {
        let state = self.state();
        let of_work = || work.and_then(|work| state.work_sessions.get(&work).copied());
        let connection = connection.or_else(of_work)?;
        let known = state.connections.get(&connection);
        known.map(|(session, _)| Arc::clone(session))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets that a work session was heard of over a connection, unless it was over another one since.
    fn forget(&mut self, work: WorkSessionId, connection: SessionId) {
        if self.work_sessions.get(&work) == Some(&connection) {
            self.work_sessions.remove(&work);
        }
    }
}
