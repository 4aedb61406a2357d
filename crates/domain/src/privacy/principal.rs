//! Principals: the authenticated subjects of requests, and a key of all records.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The subject of a request: the name of the presented key, or `local` without authentication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Returns the principal of a server without authentication.
    #[must_use]
    pub fn local() -> Self {
        Self("local".into())
    }

    /// Returns the principal with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
