//! The opening of connections, their assignment to requests, and their end.

use std::sync::{Arc, Weak};

use riglm_ports::upstream::{UpstreamConnector, UpstreamError};
use tokio::time::timeout;

use super::ModernBridge;
use super::asking::Questions;
use super::bridge_core::BridgeCore;
use super::call::{Call, CallEnd, CallWaiter};
use super::connection::{Connection, connection_lost};
use super::from_server::LegacyEvents;
use super::state::BridgeState;
use super::sweeping::sweep;
use super::welcome::Hello;

/// The maximum number of connections for new requests per link.
const MAX_CONNECTIONS: usize = 8;

/// Opens the connections to the server and assigns them to requests.
#[derive(Debug)]
pub(super) struct Connections {
    core: Arc<BridgeCore>,
    connector: Arc<dyn UpstreamConnector>,
    questions: Arc<Questions>,
    /// The receiver of the messages of the server.
    bridge: Weak<ModernBridge>,
}

impl Connections {
    /// Returns an opener whose connections give their messages to `bridge`.
    pub(super) fn new(
        core: Arc<BridgeCore>,
        connector: Arc<dyn UpstreamConnector>,
        questions: Arc<Questions>,
        bridge: Weak<ModernBridge>,
    ) -> Self {
        Self {
            core,
            connector,
            questions,
            bridge,
        }
    }

    /// Returns the connection for requests of a client with this description. Opens one if
    /// necessary.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Busy`] if the maximum number of connections is in use.
    pub(super) fn connection_for(
        self: &Arc<Self>,
        state: &mut BridgeState,
        hello: &Arc<Hello>,
    ) -> Result<Arc<Connection>, UpstreamError> {
        let key = hello.key();
        let current = state.current.get(&key);
        if let Some(connection) = current.and_then(|number| state.connections.get(number)) {
            connection.touch();
            return Ok(Arc::clone(connection));
        }
        let predecessor = take_predecessor(state);
        if state.current.len() >= MAX_CONNECTIONS {
            evict(state)?;
        }
        let number = state.next_number();
        let connection = Arc::new(Connection::new(number, Arc::clone(hello)));
        state.connections.insert(number, Arc::clone(&connection));
        state.current.insert(key, number);
        if !std::mem::replace(&mut state.is_swept, true) {
            let core = Arc::clone(&self.core);
            self.core
                .tasks
                .spawn(sweep(core, Arc::clone(&self.questions)));
        }
        self.core.changed.notify_one();
        self.core
            .tasks
            .spawn(Arc::clone(self).open(Arc::clone(&connection), predecessor));
        Ok(connection)
    }

    /// Opens a connection and sets it up, if possible with the process of its predecessor.
    async fn open(
        self: Arc<Self>,
        connection: Arc<Connection>,
        predecessor: Option<Arc<Connection>>,
    ) {
        if let Some(predecessor) = predecessor {
            predecessor.close().await;
            predecessor.end(connection_lost());
        }
        if let Err(error) = self.try_open(&connection).await {
            tracing::debug!("failed to set up a legacy connection: {error}");
            connection.close().await;
            self.note_ended(&connection, error).await;
        }
    }

    async fn try_open(&self, connection: &Arc<Connection>) -> Result<(), UpstreamError> {
        let events = Arc::new(LegacyEvents::new(Weak::clone(&self.bridge), connection));
        let connecting = self.connector.connect(&self.core.principal, events);
        let limit = self.core.options.handshake_timeout;
        let link = timeout(limit, connecting).await;
        connection.take_link(link.unwrap_or(Err(UpstreamError::NoAnswer))?);
        if self.core.is_closed() {
            // The link was closed in between, so no other task closes this connection.
            connection.close().await;
            return Err(connection_lost());
        }
        // The time of a handshake does not begin while the server is still starting.
        let limit = limit.max(connection.time_to_start().unwrap_or_default());
        let set_up = timeout(limit, connection.set_up(limit)).await;
        set_up.unwrap_or(Err(UpstreamError::NoAnswer))
    }

    /// Retires a connection whose session the server has forgotten. Pending answers may still
    /// arrive.
    pub(super) fn retire(&self, state: &mut BridgeState, connection: &Connection) {
        state.withdraw(connection.number);
        state.release_listens(connection.number);
        connection.retire();
        self.core.changed.notify_one();
    }

    /// Handles the end of a connection: fails the calls that wait for it.
    pub(super) async fn note_ended(&self, connection: &Connection, error: UpstreamError) {
        let calls: Vec<Call> = {
            let mut state = self.core.state.lock();
            let calls =
                state.remove_connection(connection.number, || CallEnd::Failed(error.clone()));
            state.release_listens(connection.number);
            calls
        };
        connection.end(error.clone());
        for call in calls {
            if let CallWaiter::Taken(client) = &call.seat {
                let _turn = call.turn.lock().await;
                self.core.report_unanswered(&client.id, error.clone()).await;
            }
        }
    }
}

/// Removes a connection whose process another one can use.
fn take_predecessor(state: &mut BridgeState) -> Option<Arc<Connection>> {
    let idle = state
        .current
        .values()
        .filter(|number| !state.is_busy(**number));
    let mut idle = idle.filter_map(|number| state.connections.get(number));
    let found = idle
        .find(|connection| connection.can_be_handed_over())
        .cloned()?;
    state.remove_connection(found.number, || CallEnd::Failed(connection_lost()));
    Some(found)
}

/// Closes a connection that is not in use.
pub(super) fn dismiss(state: &mut BridgeState, connection: Arc<Connection>) {
    state.remove_connection(connection.number, || CallEnd::Failed(connection_lost()));
    // The task is not bound to the link, because the session at the server must be closed even
    // after the link has ended.
    tokio::spawn(async move {
        connection.close().await;
        connection.end(connection_lost());
    });
}

/// Closes the connection that has been unused for longest.
fn evict(state: &mut BridgeState) -> Result<(), UpstreamError> {
    let idle = state.current.values().copied();
    let idle = idle.filter(|number| !state.is_busy(*number));
    let idle = idle.filter_map(|number| state.connections.get(&number));
    let oldest = idle
        .min_by_key(|connection| connection.last_used())
        .cloned()
        .ok_or(UpstreamError::Busy {
            reason: "all connections of this client are in use",
        })?;
    dismiss(state, oldest);
    Ok(())
}
