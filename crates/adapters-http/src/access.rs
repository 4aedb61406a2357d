//! Who may do what: bearer keys with scopes.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use riglm_domain::key_digest::KeyDigest;
use riglm_domain::principal::Principal;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;

/// What a key lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To see what is known and what was decided.
    Read,
    /// To decide which tools lists show.
    Override,
    /// To change the configuration.
    Config,
    /// To hand out and remove what is stored. No request asks for it yet, so that no key may have it.
    #[serde(skip_deserializing)]
    Data,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Override, Self::Config, Self::Data];

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Override => "override",
            Self::Config => "config",
            Self::Data => "data",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key of the control server.
#[derive(Clone, Debug)]
pub struct ControlKey {
    /// Whom it stands for, as the audit trail names them.
    pub holder: Principal,
    /// The key.
    pub digest: KeyDigest,
    /// What it lets its holder do.
    pub scopes: Vec<Scope>,
}

/// All keys of the control server, which may change while it runs; clones have the same keys. Without
/// any nobody is let in.
#[derive(Clone, Debug, Default)]
pub struct ControlKeys(Arc<RwLock<Arc<[Held]>>>);

/// A key that lets its holder in.
#[derive(Clone, Debug)]
struct Held {
    key: ControlKey,
    /// Cancelled when it does so no longer.
    gone: CancellationToken,
}

impl Held {
    fn new(key: ControlKey) -> Self {
        Self {
            key,
            gone: CancellationToken::new(),
        }
    }

    /// Returns whether who has this key may do with `other` all that they may do with this one.
    fn lives_on_in(&self, other: &ControlKey) -> bool {
        let has = |scope| other.scopes.contains(scope);
        self.key.digest == other.digest
            && self.key.holder == other.holder
            && self.key.scopes.iter().all(has)
    }
}

impl ControlKeys {
    /// Returns these keys.
    #[must_use]
    pub fn new(keys: Vec<ControlKey>) -> Self {
        Self(Arc::new(RwLock::new(
            keys.into_iter().map(Held::new).collect(),
        )))
    }

    /// Puts other keys in the place of these. Requests that come from now on are judged by them, and
    /// streams end that were opened with a key that is gone.
    pub fn replace(&self, keys: Vec<ControlKey>) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = keys.into_iter().map(|key| {
            let same = held.iter().find(|before| before.lives_on_in(&key));
            match same {
                Some(before) => Held {
                    key,
                    gone: before.gone.clone(),
                },
                None => Held::new(key),
            }
        });
        let replaced: Arc<[Held]> = replaced.collect();
        for before in held.iter() {
            if !replaced.iter().any(|after| before.lives_on_in(&after.key)) {
                before.gone.cancel();
            }
        }
        *held = replaced;
    }

    /// Returns the key that was presented. The time that it takes depends on the length of what
    /// was presented and on the number of keys, not on their content.
    fn find(&self, presented: &str) -> Option<Held> {
        let keys = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        let mut found = None;
        for held in keys.iter() {
            if held.key.digest.is_of(presented) {
                found = Some(held);
            }
        }
        found.cloned()
    }
}

/// Who makes a request that was let in.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub(crate) Principal);

/// Cancelled when the key of a request that was let in is gone.
#[derive(Clone, Debug)]
pub(crate) struct KeyGone(pub(crate) CancellationToken);

/// What a route asks for.
#[derive(Clone, Debug)]
pub(crate) struct Required {
    pub(crate) keys: ControlKeys,
    pub(crate) scope: Scope,
}

/// Answers 401 to requests without a key, and 403 to those whose key has not the scope.
pub(crate) async fn check(
    State(required): State<Required>,
    mut request: Request,
    next: Next,
) -> Response {
    let presented = request.headers().get(header::AUTHORIZATION);
    let presented = presented.and_then(|value| value.to_str().ok());
    let token = presented.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let Some(Held { key, gone }) = token.and_then(|token| required.keys.find(token)) else {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "a bearer token is required");
        let challenge = HeaderValue::from_static("Bearer realm=\"riglm control\"");
        return ([(header::WWW_AUTHENTICATE, challenge)], problem).into_response();
    };
    if !key.scopes.contains(&required.scope) {
        let detail = format!("this token lacks the scope {}", required.scope);
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    request.extensions_mut().insert(Actor(key.holder));
    request.extensions_mut().insert(KeyGone(gone));
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, scopes: &[Scope]) -> ControlKey {
        ControlKey {
            holder: Principal::named("operator"),
            digest: KeyDigest::of(text).unwrap(),
            scopes: scopes.to_vec(),
        }
    }

    #[test]
    fn a_key_is_gone_when_it_may_no_longer_do_what_it_could() {
        let text = "the key of an operator";
        let is_gone_after = |next: ControlKey| {
            let keys = ControlKeys::new(vec![key(text, &[Scope::Read])]);
            let gone = keys.find(text).unwrap().gone;
            keys.replace(vec![key("another key of theirs", &Scope::ALL), next]);
            gone.is_cancelled()
        };
        assert!(!is_gone_after(key(text, &[Scope::Read])));
        assert!(!is_gone_after(key(text, &Scope::ALL)));
        assert!(is_gone_after(key(text, &[Scope::Data])));
        assert!(is_gone_after(key("a third key of theirs", &Scope::ALL)));
        let holder = Principal::named("somebody else");
        assert!(is_gone_after(ControlKey {
            holder,
            ..key(text, &Scope::ALL)
        }));
    }
}
