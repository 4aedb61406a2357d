//! Authorization of control requests: bearer keys with scopes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use parking_lot::RwLock;
use riglm_domain::privacy::key_digest::KeyDigest;
use riglm_domain::privacy::principal::Principal;
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A permission of a control key.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, VariantArray, Display, ToSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// Read state, records and decisions.
    Read,
    /// Decide about tools: overrides, approvals and feedback.
    Override,
    /// Change the configuration and stop experiments.
    Config,
    /// Export and delete stored data.
    Data,
}

impl Scope {
    /// All scopes.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// A key of the control server.
#[derive(Clone, Debug)]
pub struct ControlKey {
    /// The principal that the audit trail records for requests with this key.
    pub holder: Principal,
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The permissions of the key.
    pub scopes: Vec<Scope>,
}

/// All keys of the control server. They may change while it runs; clones share the same keys.
/// Without any key every request is refused.
#[derive(Clone, Debug, Default)]
pub struct ControlKeys(Arc<RwLock<Arc<[ActiveKey]>>>);

/// A key with the token that ends its open streams.
#[derive(Clone, Debug)]
struct ActiveKey {
    key: ControlKey,
    /// Cancelled when the key is removed or loses a permission.
    gone: CancellationToken,
}

impl ActiveKey {
    fn new(key: ControlKey) -> Self {
        Self {
            key,
            gone: CancellationToken::new(),
        }
    }

    /// Returns whether `other` is the same key for the same holder with at least the same scopes.
    /// Streams that were opened with this key may then stay open.
    fn is_retained_in(&self, other: &ControlKey) -> bool {
        let has = |scope| other.scopes.contains(scope);
        self.key.digest == other.digest
            && self.key.holder == other.holder
            && self.key.scopes.iter().all(has)
    }
}

impl ControlKeys {
    /// Creates the set of keys.
    #[must_use]
    pub fn new(keys: Vec<ControlKey>) -> Self {
        Self(Arc::new(RwLock::new(
            keys.into_iter().map(ActiveKey::new).collect(),
        )))
    }

    /// Replaces all keys. Later requests are checked against the new keys, and streams that were
    /// opened with a removed key end.
    pub fn replace(&self, keys: Vec<ControlKey>) {
        let mut held = self.0.write();
        let replaced = keys.into_iter().map(|key| {
            let same = held.iter().find(|before| before.is_retained_in(&key));
            match same {
                Some(before) => ActiveKey {
                    key,
                    gone: before.gone.clone(),
                },
                None => ActiveKey::new(key),
            }
        });
        let replaced: Arc<[ActiveKey]> = replaced.collect();
        for before in held.iter() {
            if !replaced
                .iter()
                .any(|after| before.is_retained_in(&after.key))
            {
                before.gone.cancel();
            }
        }
        *held = replaced;
    }

    /// Returns the key that matches a presented token. The time depends on the length of the token
    /// and on the number of keys, not on their content.
    fn find(&self, presented: &str) -> Option<ActiveKey> {
        let keys = Arc::clone(&self.0.read());
        let mut found = None;
        // No early exit: the time must not tell which key matches.
        for held in keys.iter() {
            if held.key.digest.matches_key(presented) {
                found = Some(held);
            }
        }
        found.cloned()
    }
}

/// The principal of an authorized request.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub(crate) Principal);

/// Cancelled when the key of an authorized request is removed.
#[derive(Clone, Debug)]
pub(crate) struct KeyRevocation(pub(crate) CancellationToken);

/// The permissions of the key of an authorized request.
#[derive(Clone, Debug)]
pub(crate) struct GrantedScopes(pub(crate) Vec<Scope>);

/// The keys and the scope that a route requires.
#[derive(Clone, Debug)]
pub(crate) struct RouteAccess {
    pub(crate) keys: ControlKeys,
    pub(crate) scope: Scope,
}

/// Returns the token that a request presents, or `None`.
pub(crate) fn presented_token(headers: &HeaderMap) -> Option<&str> {
    let presented = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = presented.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the answer to a request without a valid token.
pub(crate) fn token_problem() -> Problem {
    let detail = "missing or unknown token; send \"Authorization: Bearer TOKEN\" with the \
                  token in DATA_DIR/control.token or a key of control.keys";
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

/// Answers 401 to requests without a valid key, and 403 if the key lacks the scope.
pub(crate) async fn check(
    State(required): State<RouteAccess>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let token = presented_token(request.headers());
    let Some(ActiveKey { key, gone }) = token.and_then(|token| required.keys.find(token)) else {
        return Err(token_problem());
    };
    if !key.scopes.contains(&required.scope) {
        let detail = format!("the token does not have the scope {}", required.scope);
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let extensions = request.extensions_mut();
    extensions.insert(Actor(key.holder));
    extensions.insert(GrantedScopes(key.scopes));
    extensions.insert(KeyRevocation(gone));
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, scopes: &[Scope]) -> ControlKey {
        ControlKey {
            holder: Principal::from_name("operator"),
            digest: KeyDigest::of(text).unwrap(),
            scopes: scopes.to_vec(),
        }
    }

    #[test]
    fn keys_are_revoked_on_lost_scopes_or_changed_holder() {
        let text = "the key of an operator";
        let is_gone_after = |next: ControlKey| {
            let keys = ControlKeys::new(vec![key(text, &[Scope::Read])]);
            let gone = keys.find(text).unwrap().gone;
            keys.replace(vec![key("another key of theirs", Scope::ALL), next]);
            gone.is_cancelled()
        };
        assert!(!is_gone_after(key(text, &[Scope::Read])));
        assert!(!is_gone_after(key(text, Scope::ALL)));
        assert!(is_gone_after(key(text, &[Scope::Data])));
        assert!(is_gone_after(key("a third key of theirs", Scope::ALL)));
        let holder = Principal::from_name("somebody else");
        assert!(is_gone_after(ControlKey {
            holder,
            ..key(text, Scope::ALL)
        }));
    }

    #[test]
    fn names_of_scopes_are_stable() {
        let names: Vec<String> = Scope::ALL.iter().map(Scope::to_string).collect();
        assert_eq!(names, ["read", "override", "config", "data"]);
    }
}
