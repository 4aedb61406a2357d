//! The configuration section `auth`: the keys of clients.
//!
//! A key is configured as its SHA-256 digest or, usually through a variable, in plain text. Only
//! digests stay in memory.

use std::collections::BTreeMap;
use std::fmt;

use riglm_domain::privacy::key_digest::{KeyDigest, KeyDigestError};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::authenticator::Authenticator;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use validator::Validate;

/// The configuration section `auth`.
#[derive(Clone, Debug, Default, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// The accepted keys of clients, by the name of their principal.
    pub keys: BTreeMap<String, SecretString>,
}

/// The reason why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is neither a key nor a digest.
    #[error(transparent)]
    Digest(#[from] KeyDigestError),
    /// Another name has the same key.
    #[error("the same key is used by another name")]
    Repeated,
    /// The name is empty, too long, or reserved for clients without a key.
    #[error("expected a name of 1 to 64 characters other than local")]
    Name,
}

/// The accepted keys of clients. If it is empty, no key is required.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<(KeyDigest, Principal)>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.principals().map(Principal::as_str);
        f.debug_set().entries(names).finish()
    }
}

impl KeyRing {
    /// Creates the ring of the configured keys.
    ///
    /// # Errors
    ///
    /// Returns the names of the keys that cannot be used, with the reasons.
    pub fn from_config(config: &AuthConfig) -> Result<Self, Vec<(String, KeyError)>> {
        let mut keys: Vec<(KeyDigest, Principal)> = Vec::with_capacity(config.keys.len());
        let mut refused = Vec::new();
        for (name, key) in &config.keys {
            if name.is_empty() || name.chars().count() > 64 || name == Principal::local().as_str() {
                refused.push((name.clone(), KeyError::Name));
                continue;
            }
            match KeyDigest::parse(key.expose_secret()) {
                Err(error) => refused.push((name.clone(), error.into())),
                Ok(digest) if keys.iter().any(|(known, _)| *known == digest) => {
                    refused.push((name.clone(), KeyError::Repeated));
                }
                Ok(digest) => keys.push((digest, Principal::from_name(name))),
            }
        }
        if refused.is_empty() {
            Ok(Self { keys })
        } else {
            Err(refused)
        }
    }

    /// Returns whether there are no keys, so that none is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of principals with a key.
    #[must_use]
    pub fn n_principals(&self) -> usize {
        self.keys.len()
    }

    /// Returns the principals with a key.
    pub fn principals(&self) -> impl Iterator<Item = &Principal> {
        self.keys.iter().map(|(_, principal)| principal)
    }

    /// Returns whether a principal has the same key in `other`. Without any keys in both, this is
    /// true for everybody.
    #[must_use]
    pub fn has_key_of(&self, principal: &Principal, other: &Self) -> bool {
        let key_in = |ring: &Self| {
            let known = ring.keys.iter().find(|(_, name)| name == principal);
            known.map(|(digest, _)| *digest)
        };
        match (key_in(self), key_in(other)) {
            (None, None) => self.is_empty() && other.is_empty(),
            (here, there) => here == there,
        }
    }

    /// Returns the principal of a presented key. The time depends on the length of the presented
    /// key and on the number of keys, not on their content.
    #[must_use]
    pub fn principal_of(&self, presented: &str) -> Option<Principal> {
        let mut found = None;
        // No early exit: the time must not tell which key matches.
        for (known, principal) in &self.keys {
            if known.matches_key(presented) {
                found = Some(principal);
            }
        }
        found.cloned()
    }
}

/// Without keys every client is [`Principal::local`]; with keys, a client must present one.
impl Authenticator for KeyRing {
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal> {
        if self.is_empty() {
            return Some(Principal::local());
        }
        bearer.and_then(|key| self.principal_of(key))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use riglm_ports::contract::authenticator::AuthenticatorScene;

    use super::*;

    fn ring(keys: &[(&str, &str)]) -> Result<KeyRing, Vec<(String, KeyError)>> {
        KeyRing::from_config(&AuthConfig {
            keys: keys
                .iter()
                .map(|(name, key)| ((*name).to_owned(), SecretString::from(*key)))
                .collect(),
        })
    }

    const ALICE: &str = "the key of alice";
    const BOB: &str = "the key of bob 1234";

    impl AuthenticatorScene for KeyRing {
        fn authenticator(&self) -> &dyn Authenticator {
            self
        }

        fn accepted(&self) -> Vec<(Option<String>, Principal)> {
            if self.is_empty() {
                let keys = [None, Some("any key".to_owned())];
                return keys.map(|key| (key, Principal::local())).into();
            }
            let key = |key: &str, name| (Some(key.to_owned()), Principal::from_name(name));
            vec![key(ALICE, "alice"), key(BOB, "bob")]
        }

        fn refused(&self) -> Vec<Option<String>> {
            if self.is_empty() {
                return Vec::new();
            }
            let digest = KeyDigest::of(BOB).unwrap().to_string();
            vec![None, Some("the key of carol".into()), Some(digest)]
        }
    }

    fn two_keys() -> KeyRing {
        let digest = KeyDigest::of(BOB).unwrap().to_string();
        ring(&[("alice", ALICE), ("bob", &digest)]).unwrap()
    }

    riglm_ports::authenticator_contract!(contract, ready(Box::new(two_keys())));
    riglm_ports::authenticator_contract!(
        contract_without_keys,
        ready(Box::new(KeyRing::default()))
    );

    #[test]
    fn a_key_is_known_by_itself_and_by_its_digest() {
        let digest = KeyDigest::of("the key of bob 1234").unwrap().to_string();
        let ring = ring(&[("alice", "the key of alice"), ("bob", &digest)]).unwrap();
        let name = |key: &str| {
            ring.principal_of(key)
                .map(|found| found.as_str().to_owned())
        };
        assert_eq!(name("the key of alice").as_deref(), Some("alice"));
        assert_eq!(name("the key of bob 1234").as_deref(), Some("bob"));
        assert_eq!(name("the key of alice "), None);
        assert_eq!(name(&digest), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn clients_are_local_unless_keys_are_configured() {
        let open = KeyRing::default();
        assert_eq!(open.authenticate(None), Some(Principal::local()));
        assert_eq!(open.authenticate(Some("x")), Some(Principal::local()));
        let closed = ring(&[("alice", "the key of alice")]).unwrap();
        assert_eq!(closed.authenticate(None), None);
        assert_eq!(closed.authenticate(Some("x")), None);
        let alice = closed.authenticate(Some("the key of alice"));
        assert_eq!(alice, Some(Principal::from_name("alice")));
    }

    #[test]
    fn invalid_keys_are_refused_by_name() {
        let error = |keys: &[(&str, &str)]| {
            let errors = ring(keys).unwrap_err();
            assert_eq!(errors.len(), 1);
            errors[0].clone()
        };
        assert_eq!(
            error(&[("a", "short")]),
            ("a".into(), KeyError::Digest(KeyDigestError::Short))
        );
        assert_eq!(
            error(&[("a", "sha256:12")]),
            ("a".into(), KeyError::Digest(KeyDigestError::Digest))
        );
        let not_hex = format!("sha256:{}", "g".repeat(64));
        assert_eq!(
            error(&[("a", &not_hex)]),
            ("a".into(), KeyError::Digest(KeyDigestError::Digest))
        );
        let same = "one and the same key";
        assert_eq!(
            error(&[("a", same), ("b", same)]),
            ("b".into(), KeyError::Repeated)
        );
        assert_eq!(error(&[("local", same)]).1, KeyError::Name);
    }

    #[test]
    fn debug_output_hides_keys() {
        let ring = ring(&[("alice", "the key of alice")]).unwrap();
        assert_eq!(format!("{ring:?}"), r#"{"alice"}"#);
        assert!(ring.principal_of("the key of bob").is_none() && !ring.is_empty());
    }
}
