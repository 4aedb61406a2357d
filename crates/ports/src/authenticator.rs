//! Authentication of requests by bearer key.
//!
//! # Promises
//!
//! - **Exact keys.** An accepted key has its principal. Any other text is refused, parts of a key
//!   and keys with more text included.
//! - **The key alone decides.** The answer does not depend on earlier requests, or on concurrent
//!   ones.
//! - **Revocation.** The revocation of a valid key is pending. It completes when the key becomes
//!   invalid or belongs to another principal, and is complete at once for a key that is not valid.
//!   Other keys are not affected. Where keys never change, it never completes.
//! - **Secrecy.** No key is in the debug output. The time of an answer does not depend on the
//!   content of a wrong key; no test can show this, so it is a matter of review.
//!
//! `contract::authenticator` has a clause for each of the others.

use std::fmt;
use std::pin::Pin;

use riglm_domain::privacy::principal::Principal;

/// A future that completes when a bearer key is revoked.
pub type Revocation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Maps a bearer key to its principal. It keeps the [promises](self#promises) of the module.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Returns the principal of `bearer`, the key of the `Authorization` header; `None` when the
    /// request must be refused.
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal>;

    /// Returns a future that completes as soon as `bearer` is no longer valid or belongs to another
    /// principal. Connections that were opened with the key end with it.
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
