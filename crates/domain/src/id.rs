//! Identifiers of sessions, calls and processes, and the names of tools and upstreams.
//!
//! Row identifiers are UUIDs of version 7 (RFC 9562): they sort by time of creation. They are made
//! at receipt, so that writing a row twice is idempotent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
#[cfg(feature = "validator")]
use validator::ValidationError;

/// Ten random bytes, the entropy of one identifier.
pub type Entropy = [u8; 10];

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Returns the identifier of an object created at the time `at`; `entropy` makes it
            /// unique. Times before 1970 count as 1970.
            #[must_use]
            pub fn new(at: Timestamp, entropy: Entropy) -> Self {
                let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid())
            }

            /// Returns the UUID.
            #[must_use]
            pub fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|source| IdError::NotAUuid { kind: stringify!($name), source })
            }
        }
    };
}

uuid_id! {
    /// Identifies one recorded session (one client connected over one transport session).
    SessionId
}
uuid_id! {
    /// Identifies one recorded tool call.
    InvocationId
}
uuid_id! {
    /// Identifies one recorded request other than a tool call.
    ExchangeId
}
uuid_id! {
    /// Identifies a work session: the calls of one client for one task, over any number of
    /// sessions.
    WorkSessionId
}
uuid_id! {
    /// Identifies a context: a text that says what a client is doing.
    ContextId
}
uuid_id! {
    /// Identifies one search for tools.
    SearchId
}
uuid_id! {
    /// Identifies one answer of the recommender.
    RecommendationId
}
uuid_id! {
    /// Identifies one piece of feedback.
    FeedbackId
}
uuid_id! {
    /// Identifies one override of a tool in lists.
    OverrideId
}
uuid_id! {
    /// Identifies one entry of the audit trail.
    AuditId
}
uuid_id! {
    /// Identifies one run of the proxy process. Rows that a crash left open are found by it.
    RunId
}

/// The reason for which a text is no identifier.
#[derive(Debug, thiserror::Error)]
pub enum IdError {
    /// The text is not a UUID.
    #[error("{kind} is not a UUID")]
    NotAUuid {
        /// The kind of the expected identifier.
        kind: &'static str,
        /// The error of the UUID parser.
        source: uuid::Error,
    },
    /// The name of an upstream is empty or too long, or has invalid characters.
    #[error(
        "upstream name {name:?} must be 1 to 64 characters of letters, digits, '-', '_' and '.'"
    )]
    UpstreamName {
        /// The rejected name, cut to 64 characters.
        name: String,
    },
    /// The text has no `/` between the name of an upstream and the name of a tool.
    #[error("tool {text:?} must be written as UPSTREAM/TOOL")]
    ToolRef {
        /// The rejected text, cut to 64 characters.
        text: String,
    },
    /// The name of a profile is empty or too long, has invalid characters, does not begin with a
    /// letter or digit, or has two `_` in a row.
    #[error(
        "profile name {name:?} must be 1 to 64 characters of letters, digits, '-', '_' and '.', \
        begin with a letter or digit, and have no '__'"
    )]
    ProfileName {
        /// The rejected name, cut to 64 characters.
        name: String,
    },
}

/// Returns whether a name needs no escaping in a configuration key, a URL and a command-line
/// option.
pub(crate) fn needs_no_escaping(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Checks the configured name of an own tool of riglm. Every client must accept it.
///
/// # Errors
///
/// Returns an error for an empty name, one over 64 characters, or one with other characters than
/// letters, digits, `_` and `-`.
#[cfg(feature = "validator")]
pub fn check_own_tool_name(name: &str) -> Result<(), ValidationError> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    let message = "expected 1 to 64 letters, digits, `_` and `-`";
    Err(ValidationError::new("tool_name").with_message(message.into()))
}

/// The name of a tool as its server wrote it, of any length and with any characters.
///
/// Servers name tools freely, so riglm rejects no name that a client can call. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ToolName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The configured name of an upstream server: 1 to 64 characters of letters, digits, `-`, `_`, `.`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpstreamName(Arc<str>);

impl UpstreamName {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// Returns [`IdError::UpstreamName`] for an empty name, one over 64 characters, or one with
    /// other characters than letters, digits, `-`, `_` and `.`.
    pub fn parse(name: &str) -> Result<Self, IdError> {
        if needs_no_escaping(name) {
            Ok(Self(name.into()))
        } else {
            Err(IdError::UpstreamName {
                name: name.chars().take(64).collect(),
            })
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UpstreamName {
    type Error = IdError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

impl From<UpstreamName> for String {
    fn from(name: UpstreamName) -> Self {
        name.0.as_ref().into()
    }
}

impl fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The configured name of a profile, under which clients connect: 1 to 64 characters of letters,
/// digits, `-`, `_`, `.`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName(Arc<str>);

impl ProfileName {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// Returns [`IdError::ProfileName`] for an empty name, one over 64 characters, and one with
    /// other characters than letters, digits, `-`, `_` and `.`. A name must begin with a letter or
    /// digit, since `..` cannot be a part of a URL path. It must not contain `__`, the separator in
    /// the names of environment variables.
    pub fn parse(name: &str) -> Result<Self, IdError> {
        let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if needs_no_escaping(name) && begins_well && !name.contains("__") {
            Ok(Self(name.into()))
        } else {
            Err(IdError::ProfileName {
                name: name.chars().take(64).collect(),
            })
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProfileName {
    type Err = IdError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl TryFrom<String> for ProfileName {
    type Error = IdError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

impl From<ProfileName> for String {
    fn from(name: ProfileName) -> Self {
        name.0.as_ref().into()
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_the_time_of_creation() {
        let earlier = InvocationId::new(Timestamp::from_millisecond(1_000).unwrap(), [0xff; 10]);
        let later = InvocationId::new(Timestamp::from_millisecond(1_001).unwrap(), [0; 10]);
        assert!(earlier < later);
        assert_eq!(earlier.as_uuid().get_version_num(), 7);
    }

    #[test]
    fn an_id_survives_its_text_form() {
        let id = SessionId::new(Timestamp::from_millisecond(5).unwrap(), [7; 10]);
        assert_eq!(id.to_string().parse::<SessionId>().unwrap(), id);
    }

    #[test]
    fn upstream_names_are_checked() {
        assert_eq!(
            UpstreamName::parse("git-hub.v2").unwrap().as_str(),
            "git-hub.v2"
        );
        assert!(UpstreamName::parse("").is_err());
        assert!(UpstreamName::parse("a b").is_err());
        assert!(UpstreamName::parse(&"x".repeat(65)).is_err());
    }

    #[test]
    fn profile_names_are_checked() {
        assert_eq!(
            ProfileName::parse("on-call.2").unwrap().as_str(),
            "on-call.2"
        );
        for name in ["", "a b", "a/b", "\u{e9}", ".", "..", "-a", "a__b"] {
            let error = ProfileName::parse(name).unwrap_err().to_string();
            assert!(error.contains("profile name"), "{error}");
        }
    }
}
