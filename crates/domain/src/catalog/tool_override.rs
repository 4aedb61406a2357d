//! Overrides: decisions of an operator about the tools in lists.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::id::OverrideId;
use crate::privacy::principal::Principal;

/// The effect of an override on the tool.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OverrideAction {
    /// The tool is shown.
    Include,
    /// The tool is not shown.
    Exclude,
    /// The tool is shown first.
    Pin,
    /// The tool is not shown, and its calls are refused.
    Forbid,
}

impl OverrideAction {
    /// All actions.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the action is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The scope of an override.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OverrideScope {
    /// All clients.
    Global,
    /// A profile, by its name.
    Profile(String),
    /// A client, by its hash.
    Client(String),
    /// A session, by its identifier.
    Session(String),
}

impl OverrideScope {
    /// Returns the name of the kind of scope.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the identifier in the scope; empty for the global scope.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Global => "",
            Self::Profile(id) | Self::Client(id) | Self::Session(id) => id,
        }
    }

    /// Returns the scope of a kind with an identifier; `None` if the two do not fit.
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
    /// The effect on the tool.
    pub action: OverrideAction,
    /// The scope of the override.
    pub scope: OverrideScope,
    /// The time of expiry; `None` for no expiry.
    pub expires_at: Option<Timestamp>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
    /// The principal that created the override.
    pub created_by: Principal,
    /// The time of creation.
    pub created_at: Timestamp,
}

impl ToolOverride {
    /// Returns whether the override is in effect at a time.
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
