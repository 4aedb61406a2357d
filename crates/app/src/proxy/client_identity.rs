//! The identity of a client: principal and profile.

use riglm_domain::id::ProfileName;
use riglm_domain::privacy::principal::Principal;

/// The principal and the profile under which a client opens a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientIdentity {
    /// The principal of the client.
    pub principal: Principal,
    /// The profile that the client selected by address or option; `None` if it selected none.
    pub profile: Option<ProfileName>,
}

impl From<&Principal> for ClientIdentity {
    fn from(principal: &Principal) -> Self {
        Self {
            principal: principal.clone(),
            profile: None,
        }
    }
}

impl From<&Self> for ClientIdentity {
    fn from(visitor: &Self) -> Self {
        visitor.clone()
    }
}
