//! The sessions of modern clients: created at the first request, shared by all requests of the same
//! client, and created again when they have ended.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::proxy::{ClientSession, Proxy};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcError;

use super::client_key::ClientKey;
use super::link::ModernLink;

/// The number of additions after which ended sessions are removed from the map.
const SWEEP_EVERY: usize = 64;

/// A session and its client link.
type Entry = (Arc<ClientSession>, Arc<ModernLink>);

/// The sessions by client. Their number is limited by the sessions that the proxy admits, plus a
/// few ended ones.
#[derive(Debug, Default)]
pub(in super::super) struct Clients {
    by_key: Mutex<HashMap<ClientKey, Entry>>,
}

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
    pub(super) fn find_or_accept(&self, proxy: &Proxy, key: ClientKey) -> Result<Entry, RpcError> {
        let mut by_key = self.by_key.lock();
        if let Some((session, link)) = by_key.get(&key) {
            session.touch();
            if !session.is_closed() {
                link.set_longest(proxy.limits().call_timeout_max);
                return Ok((Arc::clone(session), Arc::clone(link)));
            }
        }
        let link = Arc::new(ModernLink::new(proxy.limits().call_timeout_max));
        let accepted = proxy.accept(
            Transport::StreamableHttp,
            key.visitor(),
            Arc::<ModernLink>::clone(&link),
        );
        if by_key.len().is_multiple_of(SWEEP_EVERY) || accepted.is_err() {
            by_key.retain(|_, (session, _)| !session.is_closed());
        }
        match accepted {
            Ok(session) => {
                by_key.insert(key, (Arc::clone(&session), Arc::clone(&link)));
                Ok((session, link))
            }
            Err(error) => by_key
                .iter()
                .filter(|(other, _)| other.visitor() == key.visitor())
                // A stable choice, so that the requests of one client use the same session.
                .min_by_key(|(other, _)| *other)
                .map(|(_, entry)| entry.clone())
                .ok_or(error),
        }
    }
}
