//! Keys of work sessions: keyed hashes, so that nothing of what they are made of is stored.

use riglm_domain::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::request_hints::RequestHints;
use riglm_domain::work_session::WorkSessionKey;

use super::WorkRequest;

/// A client at one place: principal, name, profile and workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientKey(KeyedHash);

/// Makes keys.
#[derive(Debug)]
pub(super) struct Keys(KeyedHasher);

impl Keys {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self(hasher)
    }

    /// Returns the key of the client that sent a request.
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

    /// Returns the key that a client chose, if it did.
    pub(super) fn chosen(
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

    /// Returns the key of a window of a client.
    pub(super) fn window(&self, client: &ClientKey, number: usize) -> WorkSessionKey {
        let hash = self.hash(&["window", &client.0.to_string(), &number.to_string()]);
        WorkSessionKey(hash)
    }

    /// Returns the hash of parts, which are kept apart by their lengths.
    fn hash(&self, parts: &[&str]) -> KeyedHash {
        let parts = parts.iter().map(|part| format!("{}:{part}", part.len()));
        self.0.hash_text(&parts.collect::<String>())
    }
}
