//! Session keys. They are keyed hashes, so that their input is never stored.

use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::privacy::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::usage::work_session::WorkSessionKey;

use super::WorkRequest;

/// A client at one place: principal, name, profile and workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientKey(KeyedHash);

#[derive(Debug)]
pub(super) struct SessionKeys(KeyedHasher);

impl SessionKeys {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self(hasher)
    }

    pub(super) fn client(&self, request: &WorkRequest<'_>) -> ClientKey {
        let workspace = request.workspace.map(|hash| hash.to_string());
        ClientKey(self.hash(&[
            "client",
            request.principal.as_str(),
            request.client_name,
            request.profile.unwrap_or_default(),
            workspace.as_deref().unwrap_or_default(),
        ]))
    }

    /// Returns the key that the client chose, if any.
    pub(super) fn chosen_key(
        &self,
        client: &ClientKey,
        hints: &RequestHints,
    ) -> Option<WorkSessionKey> {
        let (kind, chosen) = match (&hints.session, &hints.baggage_session) {
            (Some(session), _) => ("session", session),
            (None, Some(session)) => ("baggage", session),
            (None, None) => return None,
        };
        let hash = self.hash(&[kind, &client.0.to_string(), chosen]);
        Some(WorkSessionKey(hash))
    }

    pub(super) fn window(&self, client: &ClientKey, number: usize) -> WorkSessionKey {
        let hash = self.hash(&["window", &client.0.to_string(), &number.to_string()]);
        WorkSessionKey(hash)
    }

    /// Returns the hash of parts, separated by their lengths.
    fn hash(&self, parts: &[&str]) -> KeyedHash {
        let parts = parts.iter().map(|part| format!("{}:{part}", part.len()));
        self.0.hash_text(&parts.collect::<String>())
    }
}
