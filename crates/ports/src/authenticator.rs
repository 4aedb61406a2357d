//! Who a request comes from.

use std::fmt;

use riglm_domain::principal::Principal;

/// Tells who presents a bearer key.
///
/// The answer depends on the key alone and takes the same time for every wrong key.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Returns the principal that `bearer`, the key of the `Authorization` header, belongs to;
    /// `None` when the request must be refused.
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal>;
}

/// Takes every request as [`Principal::local`]: for servers that only this machine reaches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unauthenticated;

impl Authenticator for Unauthenticated {
    fn authenticate(&self, _bearer: Option<&str>) -> Option<Principal> {
        Some(Principal::local())
    }
}
