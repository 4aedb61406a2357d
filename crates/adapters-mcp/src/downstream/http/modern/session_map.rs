//! Sessions without a transport session: found by the key of their client, opened at its first
//! request, and opened again when they have ended.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::proxy::{ClientIdentity, ClientSession, Proxy};
use riglm_domain::mcp::rpc_error::RpcError;

use super::client_key::ClientKey;
use super::link::ModernLink;

/// The number of additions after which ended sessions are removed from the map.
const SWEEP_EVERY: usize = 64;

/// A session in a [`SessionMap`].
pub(in super::super) trait KeyedSession: Clone {
    fn session(&self) -> &Arc<ClientSession>;

    /// Returns the link that receives the answers to its requests.
    fn responses(&self) -> &ModernLink;
}

/// The sessions by client. Their number is limited by the sessions that the proxy admits, plus a
/// few ended ones.
#[derive(Debug)]
pub(in super::super) struct SessionMap<T> {
    by_key: Mutex<HashMap<ClientKey, T>>,
}

impl<T> Default for SessionMap<T> {
    fn default() -> Self {
        Self {
            by_key: Mutex::default(),
        }
    }
}

impl<T: KeyedSession> SessionMap<T> {
    /// Returns the session of a client. If there is none, `open` opens it with a link for the
    /// answers to its requests.
    ///
    /// # Errors
    ///
    /// Returns the error of `open`.
    pub(in super::super) fn find_or_open(
        &self,
        proxy: &Proxy,
        key: &ClientKey,
        open: impl FnOnce(Arc<ModernLink>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let longest = proxy.limits().call_timeout_max;
        let mut by_key = self.by_key.lock();
        if let Some(known) = by_key.get(key) {
            known.session().touch();
            if !known.session().is_closed() {
                known.responses().set_longest(longest);
                return Ok(known.clone());
            }
        }
        let opened = open(Arc::new(ModernLink::new(longest)));
        if by_key.len().is_multiple_of(SWEEP_EVERY) || opened.is_err() {
            by_key.retain(|_, known| !known.session().is_closed());
        }
        let opened = opened?;
        by_key.insert(key.clone(), opened.clone());
        Ok(opened)
    }

    /// Returns one session of a principal and a profile, always the same one, so that the requests
    /// of one client use the same session.
    pub(super) fn first_of(&self, visitor: &ClientIdentity) -> Option<T> {
        let by_key = self.by_key.lock();
        let all = by_key.iter().filter(|(key, _)| key.visitor() == visitor);
        all.min_by_key(|(key, _)| *key)
            .map(|(_, known)| known.clone())
    }
}
