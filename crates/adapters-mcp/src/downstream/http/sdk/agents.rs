//! The sessions of agents, found by principal, profile, provider and session key.

use std::sync::Arc;

use riglm_app::proxy::{ClientIdentity, ClientSession, Proxy};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcError;

use super::definitions::Definitions;
use super::provider::Provider;
use super::session::{AgentLink, AgentSession};
use crate::downstream::http::modern::{ClientKey, KeyedSession, ModernLink, SessionMap};

impl KeyedSession for Arc<AgentSession> {
    fn session(&self) -> &Arc<ClientSession> {
        AgentSession::session(self)
    }

    fn responses(&self) -> &ModernLink {
        AgentSession::responses(self)
    }
}

/// The sessions of agents, and the definitions of their tools.
#[derive(Debug, Default)]
pub(in super::super) struct Agents {
    sessions: SessionMap<Arc<AgentSession>>,
    definitions: Arc<Definitions>,
}

impl Agents {
    /// Returns the session of an agent, and opens it if there is none. `label` is the session key
    /// that the agent sent.
    ///
    /// # Errors
    ///
    /// Returns the error of the proxy if it admits no further session.
    pub(super) fn find_or_accept(
        &self,
        proxy: &Proxy,
        provider: Provider,
        visitor: &ClientIdentity,
        label: Option<&str>,
    ) -> Result<Arc<AgentSession>, RpcError> {
        let info = provider.client_info().to_string();
        let key = ClientKey::new(visitor, Some(&info), label);
        self.sessions.find_or_open(proxy, &key, |responses| {
            let link = Arc::new(AgentLink::new(responses));
            let transport = Transport::StreamableHttp;
            let session = proxy.accept(transport, key.visitor(), Arc::<AgentLink>::clone(&link))?;
            let definitions = Arc::clone(&self.definitions);
            let agent = AgentSession::new(session, link, provider, definitions);
            Ok(Arc::new(agent))
        })
    }
}
