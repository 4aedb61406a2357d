//! A session: one client connected over one transport session, from its handshake to its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::id::{RunId, SessionId};
use crate::principal::Principal;
use crate::protocol::{Revision, Transport};

/// What a client says of itself in its handshake, cut to a length that fits a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// `clientInfo.name`.
    pub name: String,
    /// `clientInfo.version`.
    pub version: String,
}

impl ClientInfo {
    /// The longest name or version that is kept, in characters.
    pub const MAX_CHARS: usize = 128;

    /// Returns the information with control characters removed and both parts cut to
    /// [`Self::MAX_CHARS`].
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        let cut = |text: &str| {
            text.chars()
                .filter(|c| !c.is_control())
                .take(Self::MAX_CHARS)
                .collect()
        };
        Self {
            name: cut(name),
            version: cut(version),
        }
    }
}

/// A session as it is recorded at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Identifies the session.
    pub id: SessionId,
    /// The run of the proxy that holds the session.
    pub run: RunId,
    /// Who is calling.
    pub principal: Principal,
    /// Keyed hash of principal, client name and client version.
    pub client: KeyedHash,
    /// What the client says of itself.
    pub client_info: ClientInfo,
    /// The revision that the client asked for and the server answered with.
    pub protocol: Revision,
    /// How the client is connected.
    pub transport: Transport,
    /// When the session started.
    pub started_at: Timestamp,
    /// The profile that the client chose by its address, where it chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What else is known of the client, by name: `capabilities`, `title`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A recorded session with what is known of it by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session as it started.
    pub session: Session,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// How many tool calls it made.
    pub n_calls: u64,
    /// The names of the tools that were listed to it, sorted, without repetition.
    pub tools_available: Vec<String>,
}
