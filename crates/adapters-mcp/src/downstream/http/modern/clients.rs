//! The sessions of modern clients, shared by all requests of the same client.

use std::sync::Arc;

use riglm_app::proxy::{ClientSession, Proxy};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcError;

use super::client_key::ClientKey;
use super::link::ModernLink;
use super::session_map::{KeyedSession, SessionMap};

type Entry = (Arc<ClientSession>, Arc<ModernLink>);

impl KeyedSession for Entry {
    fn session(&self) -> &Arc<ClientSession> {
        &self.0
    }

    fn responses(&self) -> &ModernLink {
        &self.1
    }
}

#[derive(Debug, Default)]
pub(in super::super) struct Clients(SessionMap<Entry>);

impl Clients {
    /// Returns the session of this client, and creates it if there is none.
    ///
    /// If the proxy admits no further session, another session of the same principal and profile is
    /// used, because the messages need nothing of it but the connection.
    ///
    /// # Errors
    ///
    /// Returns the error of the proxy if it admits no session and the principal has no other
    /// session.
    pub(super) fn find_or_accept(&self, proxy: &Proxy, key: &ClientKey) -> Result<Entry, RpcError> {
        let opened = self.0.find_or_open(proxy, key, |link| {
            let transport = Transport::StreamableHttp;
            let session =
                proxy.accept(transport, key.visitor(), Arc::<ModernLink>::clone(&link))?;
            Ok((session, link))
        });
        opened.or_else(|error| self.0.first_of(key.visitor()).ok_or(error))
    }
}
