//! The sessions of clients whose transport has none: made at the first request, shared by all
//! requests of the same client, and made again when they have ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use riglm_app::proxy::{ClientSession, Proxy};
use riglm_domain::protocol::Transport;
use riglm_domain::rpc_error::RpcError;

use super::client_key::ClientKey;
use super::link::ModernLink;

/// Every so many additions, sessions that ended are dropped from the map.
const SWEEP_EVERY: usize = 64;

/// A session and its way to the client.
type Entry = (Arc<ClientSession>, Arc<ModernLink>);

/// The sessions by whose they are. There are no more than the proxy admits, and few that ended.
#[derive(Debug, Default)]
pub(in super::super) struct Clients {
    by_key: Mutex<HashMap<ClientKey, Entry>>,
}

impl Clients {
    /// Returns the session of this client, and makes it if there is none.
    ///
    /// Where the proxy admits no further session, another one of the same principal under the same profile serves: what
    /// is said over it needs nothing of it but the connection.
    ///
    /// # Errors
    ///
    /// Returns why the proxy admits no session when the principal has none either.
    pub(super) fn find_or_accept(&self, proxy: &Proxy, key: ClientKey) -> Result<Entry, RpcError> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
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
                .min_by_key(|(other, _)| *other)
                .map(|(_, entry)| entry.clone())
                .ok_or(error),
        }
    }
}
