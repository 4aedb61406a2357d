//! The clauses of [`Authenticator`].

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt as _;
use riglm_domain::privacy::principal::Principal;

use super::within;
use crate::authenticator::Authenticator;

/// An authenticator with keys that a test knows.
pub trait AuthenticatorScene: Send + Sync + fmt::Debug {
    /// Returns the authenticator.
    fn authenticator(&self) -> &dyn Authenticator;

    /// Returns the accepted keys with their principals, at least one. `None` is a request without a
    /// key.
    fn accepted(&self) -> Vec<(Option<String>, Principal)>;

    /// Returns keys that are refused. An authenticator without keys refuses none.
    fn refused(&self) -> Vec<Option<String>>;

    /// Makes the first accepted key invalid and keeps the others. Returns false if keys never
    /// change.
    fn revoke_first(&self) -> bool {
        false
    }
}

/// Expands to a module with one `tokio::test` for each clause of an authenticator.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to an
/// [`AuthenticatorScene`](crate::contract::authenticator::AuthenticatorScene).
#[macro_export]
macro_rules! authenticator_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(authenticator [$(#[$attribute])*] $fresh;
                an_accepted_key_has_its_principal,
                any_other_key_is_refused,
                the_answer_depends_on_the_key_alone,
                threads_authenticate_at_once,
                a_valid_key_is_not_revoked,
                a_key_that_is_not_valid_counts_as_revoked,
                a_revoked_key_ends_only_its_own_connections,
                keys_are_not_in_debug_output,
            );
        }
    };
}

/// An accepted key has its own principal.
pub async fn an_accepted_key_has_its_principal(scene: &impl AuthenticatorScene) {
    let accepted = scene.accepted();
    assert!(!accepted.is_empty());
    for (key, principal) in accepted {
        let found = scene.authenticator().authenticate(key.as_deref());
        assert_eq!(found, Some(principal));
    }
}

/// Other keys have no principal: neither parts of an accepted one, nor one with more text.
pub async fn any_other_key_is_refused(scene: &impl AuthenticatorScene) {
    let authenticator = scene.authenticator();
    let mut refused = scene.refused();
    if !refused.is_empty() {
        for key in scene.accepted().into_iter().filter_map(|(key, _)| key) {
            refused.push(Some(format!("{key} ")));
            refused.push(Some(format!("{key}\0")));
            refused.push(Some(key.to_uppercase()));
            refused.push(Some(key.chars().skip(1).collect()));
        }
        refused.push(Some(String::new()));
        refused.push(Some("x".repeat(1 << 20)));
    }
    for key in refused {
        let found = authenticator.authenticate(key.as_deref());
        assert_eq!(found, None, "{:.40?}", key.unwrap_or_default());
    }
}

/// The answer is the same each time, whichever keys were presented in between.
pub async fn the_answer_depends_on_the_key_alone(scene: &impl AuthenticatorScene) {
    for _ in 0..3 {
        an_accepted_key_has_its_principal(scene).await;
        any_other_key_is_refused(scene).await;
    }
}

/// Any number of threads may authenticate at the same time.
pub async fn threads_authenticate_at_once(scene: &impl AuthenticatorScene) {
    let authenticator = scene.authenticator();
    let accepted = scene.accepted();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    for (key, principal) in &accepted {
                        let found = authenticator.authenticate(key.as_deref());
                        assert_eq!(found.as_ref(), Some(principal));
                    }
                }
            });
        }
    });
}

/// The revocation of a valid key is pending.
pub async fn a_valid_key_is_not_revoked(scene: &impl AuthenticatorScene) {
    for (key, _) in scene.accepted() {
        let mut revoked = scene.authenticator().revocation(key.as_deref());
        let early = tokio::time::timeout(Duration::from_millis(20), &mut revoked).await;
        assert!(early.is_err());
    }
}

/// If keys can change, the revocation of a refused key is complete at once.
pub async fn a_key_that_is_not_valid_counts_as_revoked(scene: &impl AuthenticatorScene) {
    let keys = scene.refused();
    let (first, _) = scene.accepted().remove(0);
    if !scene.revoke_first() {
        return;
    }
    for key in keys.into_iter().chain([first]) {
        let revoked = scene.authenticator().revocation(key.as_deref());
        assert_eq!(revoked.now_or_never(), Some(()));
    }
}

/// A revocation completes when its key becomes invalid. Other keys are not affected.
pub async fn a_revoked_key_ends_only_its_own_connections(scene: &impl AuthenticatorScene) {
    let accepted = scene.accepted();
    let open = accepted.iter().map(|(key, _)| key.as_deref());
    let mut open: Vec<_> = open
        .map(|key| scene.authenticator().revocation(key))
        .collect();
    if !scene.revoke_first() {
        return;
    }
    within(open.remove(0)).await;
    for revoked in open {
        assert_eq!(revoked.now_or_never(), None);
    }
    let mut keys = accepted.into_iter();
    let (first, _) = keys.next().unwrap();
    assert_eq!(scene.authenticator().authenticate(first.as_deref()), None);
    for (key, principal) in keys {
        let found = scene.authenticator().authenticate(key.as_deref());
        assert_eq!(found, Some(principal));
    }
}

/// No key is in the debug output of an authenticator.
pub async fn keys_are_not_in_debug_output(scene: &impl AuthenticatorScene) {
    let output = format!("{:?}", scene.authenticator());
    let keys = scene.accepted().into_iter().filter_map(|(key, _)| key);
    for key in keys.filter(|key| !key.is_empty()) {
        assert!(!output.contains(&key), "{output}");
    }
}
