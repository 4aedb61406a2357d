//! Who a request comes from.

use std::fmt;
use std::pin::Pin;

use riglm_domain::principal::Principal;

/// Ends when a key that let somebody in does so no longer.
pub type Revocation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells who presents a bearer key.
///
/// The answer depends on the key alone and takes the same time for every wrong key.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Returns the principal that `bearer`, the key of the `Authorization` header, belongs to;
    /// `None` when the request must be refused.
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal>;

    /// Returns what ends as soon as `bearer` lets nobody in any more, or somebody else: at once where
    /// that is so now. What was opened with the key and stays open ends with it. Where keys never
    /// change it never ends.
    fn revoked(&self, _bearer: Option<&str>) -> Revocation {
        Box::pin(std::future::pending())
    }
}

/// Takes every request as [`Principal::local`]: for servers that only this machine reaches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unauthenticated;

impl Authenticator for Unauthenticated {
    fn authenticate(&self, _bearer: Option<&str>) -> Option<Principal> {
        Some(Principal::local())
    }
}
