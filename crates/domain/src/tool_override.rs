//! What an operator decides about the tools that lists show.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::OverrideId;
use crate::principal::Principal;

/// What becomes of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideAction {
    /// It is shown.
    Include,
    /// It is not shown.
    Exclude,
    /// It is shown first.
    Pin,
    /// It is not shown, and its calls are refused.
    Forbid,
}

impl OverrideAction {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Include, Self::Exclude, Self::Pin, Self::Forbid];

    /// Returns the name under which the action is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Include => "include",
            Self::Exclude => "exclude",
            Self::Pin => "pin",
            Self::Forbid => "forbid",
        }
    }

    /// Returns the action with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// For whom an override holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum OverrideScope {
    /// For everybody.
    Global,
    /// For a profile, by its name.
    Profile(String),
    /// For a client, by its hash.
    Client(String),
    /// For a session, by its identifier.
    Session(String),
}

impl OverrideScope {
    /// Returns the name of the kind of scope.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Profile(_) => "profile",
            Self::Client(_) => "client",
            Self::Session(_) => "session",
        }
    }

    /// Returns what the scope names; empty for everybody.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Global => "",
            Self::Profile(id) | Self::Client(id) | Self::Session(id) => id,
        }
    }

    /// Returns the scope of a kind.
    #[must_use]
    pub fn from_parts(kind: &str, id: &str) -> Option<Self> {
        match (kind, id) {
            ("global", "") => Some(Self::Global),
            ("global", _) | (_, "") => None,
            ("profile", id) => Some(Self::Profile(id.into())),
            ("client", id) => Some(Self::Client(id.into())),
            ("session", id) => Some(Self::Session(id.into())),
            _ => None,
        }
    }
}

impl fmt::Display for OverrideScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            other => write!(f, "{} {}", other.kind(), other.id()),
        }
    }
}

/// One override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOverride {
    /// Identifies the override.
    pub id: OverrideId,
    /// The tool, by the name that clients see.
    pub tool: String,
    /// What becomes of it.
    pub action: OverrideAction,
    /// For whom.
    pub scope: OverrideScope,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<String>,
    /// Who decided.
    pub created_by: Principal,
    /// When it was decided.
    pub created_at: Timestamp,
}

impl ToolOverride {
    /// Returns whether the override holds at a moment.
    #[must_use]
    pub fn is_active(&self, at: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| at < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_survives_its_parts() {
        for scope in [
            OverrideScope::Global,
            OverrideScope::Profile("p".into()),
            OverrideScope::Client("c".into()),
            OverrideScope::Session("s".into()),
        ] {
            let again = OverrideScope::from_parts(scope.kind(), scope.id());
            assert_eq!(again, Some(scope));
        }
        assert_eq!(OverrideScope::from_parts("client", ""), None);
        assert_eq!(OverrideScope::from_parts("global", "x"), None);
        assert_eq!(OverrideScope::from_parts("galaxy", "x"), None);
    }

    #[test]
    fn a_scope_is_written_as_kind_and_id() {
        let text = |scope| serde_json::to_string(&scope).unwrap();
        assert_eq!(text(OverrideScope::Global), r#"{"kind":"global"}"#);
        assert_eq!(
            text(OverrideScope::Session("s".into())),
            r#"{"kind":"session","id":"s"}"#
        );
    }
}
