//! A session during its handshake.

use std::sync::Arc;

use riglm_app::proxy::ClientSession;

use super::port::ServerState;

/// A session that has an id but whose handshake was not answered yet. Dropping it before it is made
/// permanent ends the session: the handshake failed, or the client disconnected before it got the
/// id.
pub(super) struct PendingSession {
    port: Arc<ServerState>,
    id: String,
    session: Option<Arc<ClientSession>>,
}

impl PendingSession {
    pub(super) fn new(port: Arc<ServerState>, id: String, session: Arc<ClientSession>) -> Self {
        Self {
            port,
            id,
            session: Some(session),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    // The drop handler then has nothing to close.
    pub(super) fn make_permanent(mut self) {
        self.session = None;
    }
}

impl Drop for PendingSession {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.port.streamable.remove(&self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { session.close().await });
        }
    }
}
