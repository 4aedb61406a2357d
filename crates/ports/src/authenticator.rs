//! Authentication of requests by bearer key.

use std::fmt;
use std::pin::Pin;

use riglm_domain::privacy::principal::Principal;

/// A future that completes when a bearer key is revoked.
pub type Revocation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Maps a bearer key to its principal.
///
/// The answer depends on the key alone. It takes the same time for every wrong key, so that timing
/// reveals nothing about valid keys.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Returns the principal of `bearer`, the key of the `Authorization` header; `None` when the
    /// request must be refused.
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal>;

    /// Returns a future that completes as soon as `bearer` is no longer valid or belongs to another
    /// principal; at once if that is already so. Connections that were opened with the key end with
    /// it. The future of an implementation whose keys never change never completes.
    fn revocation(&self, _bearer: Option<&str>) -> Revocation {
        Box::pin(std::future::pending())
    }
}

/// Accepts every request as [`Principal::local`], for servers that only this machine can reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalAuthenticator;

impl Authenticator for LocalAuthenticator {
    fn authenticate(&self, _bearer: Option<&str>) -> Option<Principal> {
        Some(Principal::local())
    }
}
