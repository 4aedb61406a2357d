//! A session during its handshake.

use std::sync::Arc;

use riglm_app::proxy::ClientSession;

use super::port::Port;

/// A session that has an id and whose handshake was not answered yet. Dropped before it is told to
/// live, it is ended: the handshake failed, or the client went away before it was told the id.
pub(super) struct Newborn {
    port: Arc<Port>,
    id: String,
    session: Option<Arc<ClientSession>>,
}

impl Newborn {
    pub(super) fn new(port: Arc<Port>, id: String, session: Arc<ClientSession>) -> Self {
        Self {
            port,
            id,
            session: Some(session),
        }
    }

    /// Returns the id of the session.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Lets the session live on.
    pub(super) fn live(mut self) {
        self.session = None;
    }
}

impl Drop for Newborn {
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
