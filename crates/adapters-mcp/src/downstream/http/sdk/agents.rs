//! The sessions of agents: opened at the first request, found by principal, profile, provider and
//! session key, and opened again when they have ended.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::proxy::{ClientIdentity, Proxy};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcError;

use super::definitions::Definitions;
use super::provider::Provider;
use super::session::{AgentLink, AgentSession};
use crate::downstream::http::modern::{ClientKey, ModernLink};

/// The number of additions after which ended sessions are removed from the map.
const SWEEP_EVERY: usize = 64;

/// The sessions of agents. Their number is limited by the sessions that the proxy admits, plus a few
/// ended ones.
#[derive(Debug, Default)]
pub(in super::super) struct Agents {
    by_key: Mutex<HashMap<ClientKey, Arc<AgentSession>>>,
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
        let mut by_key = self.by_key.lock();
        if let Some(agent) = by_key.get(&key) {
            agent.touch();
            if !agent.is_closed() {
                return Ok(Arc::clone(agent));
            }
        }
        if by_key.len().is_multiple_of(SWEEP_EVERY) {
            by_key.retain(|_, agent| !agent.is_closed());
        }
        let responses = ModernLink::new(proxy.limits().call_timeout_max);
        let link = Arc::new(AgentLink::new(Arc::new(responses)));
        let accepted = proxy.accept(
            Transport::StreamableHttp,
            visitor,
            Arc::<AgentLink>::clone(&link),
        );
        let session = match accepted {
            Ok(session) => session,
            Err(error) => {
                by_key.retain(|_, agent| !agent.is_closed());
                return Err(error);
            }
        };
        let definitions = Arc::clone(&self.definitions);
        let agent = AgentSession::new(proxy, session, link, provider, definitions);
        let agent = Arc::new(agent);
        by_key.insert(key, Arc::clone(&agent));
        Ok(agent)
    }
}
