//! Making connections, finding the one for a request, and what follows from the end of one.

use std::sync::Arc;
use std::time::Duration;

use riglm_ports::upstream::UpstreamError;

use super::Core;
use super::call::{Call, Ended, Seat};
use super::connection::{Connection, lost};
use super::from_server::Events;
use super::state::State;
use super::welcome::Hello;

/// How many connections a link has for new requests.
const MAX_CONNECTIONS: usize = 8;

impl Core {
    /// Returns the connection for the requests of a client that says this of itself; opens one if
    /// there is none.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Busy`] when all connections that a link may have are in use.
    pub(super) fn connection_for(
        self: &Arc<Self>,
        state: &mut State,
        hello: &Arc<Hello>,
    ) -> Result<Arc<Connection>, UpstreamError> {
        let key = hello.key();
        let current = state.current.get(&key);
        if let Some(connection) = current.and_then(|number| state.connections.get(number)) {
            connection.touch();
            return Ok(Arc::clone(connection));
        }
        if state.current.len() >= MAX_CONNECTIONS {
            evict(state)?;
        }
        let number = state.next_number();
        let connection = Arc::new(Connection::new(number, Arc::clone(hello)));
        state.connections.insert(number, Arc::clone(&connection));
        state.current.insert(key, number);
        if !std::mem::replace(&mut state.is_swept, true) {
            self.spawn(Arc::clone(self).sweep());
        }
        self.changed.notify_one();
        self.spawn(Arc::clone(self).open(Arc::clone(&connection)));
        Ok(connection)
    }

    /// Opens a connection and sets it up.
    async fn open(self: Arc<Self>, connection: Arc<Connection>) {
        let limit = self.options.handshake_timeout;
        let opened = tokio::time::timeout(limit, self.try_open(&connection, limit)).await;
        if let Err(error) = opened.unwrap_or(Err(UpstreamError::NoAnswer)) {
            tracing::debug!("a legacy connection could not be set up: {error}");
            connection.close().await;
            self.connection_over(&connection, error).await;
        }
    }

    async fn try_open(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        limit: Duration,
    ) -> Result<(), UpstreamError> {
        let events = Arc::new(Events::new(self, connection));
        let link = self.inner.connect(&self.principal, events).await?;
        connection.take_link(link);
        if self.is_closed() {
            // Closed between the two: nobody else knew of the link.
            connection.close().await;
            return Err(lost());
        }
        connection.set_up(limit).await
    }

    /// Takes a connection that the server no longer knows out of use. What it still owes may come.
    pub(super) fn retire(&self, state: &mut State, connection: &Connection) {
        state.withdraw(connection.number);
        state.release_listens(connection.number);
        connection.leave();
        self.changed.notify_one();
    }

    /// Takes note that a connection is over: fails what waits for it.
    pub(super) async fn connection_over(&self, connection: &Connection, error: UpstreamError) {
        let calls: Vec<Call> = {
            let mut state = self.state();
            let calls = state.remove_connection(connection.number, || Ended::Failed(error.clone()));
            state.release_listens(connection.number);
            calls
        };
        connection.end(error.clone());
        for call in calls {
            if let Seat::Taken(client) = &call.seat {
                let _turn = call.turn.lock().await;
                self.unanswered(&client.id, error.clone()).await;
            }
        }
    }
}

/// Closes a connection that nothing depends on.
pub(super) fn dismiss(state: &mut State, connection: Arc<Connection>) {
    state.remove_connection(connection.number, || Ended::Failed(lost()));
    // Not bound to the life of the link, which may end before the session on the server does.
    tokio::spawn(async move {
        connection.close().await;
        connection.end(lost());
    });
}

/// Closes the connection that was unused for the longest time.
fn evict(state: &mut State) -> Result<(), UpstreamError> {
    let idle = state.current.values().copied();
    let idle = idle.filter(|number| !state.is_busy(*number));
    let idle = idle.filter_map(|number| state.connections.get(&number));
    let oldest = idle
        .min_by_key(|connection| connection.last_used())
        .cloned()
        .ok_or(UpstreamError::Busy {
            reason: "all connections that one client may have are in use",
        })?;
    dismiss(state, oldest);
    Ok(())
}
