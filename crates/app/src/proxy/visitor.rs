//! Who comes to the proxy.

use riglm_domain::id::ProfileName;
use riglm_domain::principal::Principal;

/// Who opens a session, and under which of the configured profiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Visitor {
    /// Who is calling.
    pub principal: Principal,
    /// The profile that the client chose by the address or the option that it came by; `None` where
    /// it chose none.
    pub profile: Option<ProfileName>,
}

impl From<&Principal> for Visitor {
    fn from(principal: &Principal) -> Self {
        Self {
            principal: principal.clone(),
            profile: None,
        }
    }
}

impl From<&Self> for Visitor {
    fn from(visitor: &Self) -> Self {
        visitor.clone()
    }
}
