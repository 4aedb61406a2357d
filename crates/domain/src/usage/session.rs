//! Sessions: one client connected over one transport session, from its handshake to its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{RunId, SessionId};
use crate::mcp::protocol::{Revision, Transport};
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;

/// The name and version of a client by its handshake, cut to a length that fits a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// `clientInfo.name`.
    pub name: String,
    /// `clientInfo.version`.
    pub version: String,
}

impl ClientInfo {
    /// The maximum length of a stored name or version, in characters.
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
    /// The principal of the client.
    pub principal: Principal,
    /// Keyed hash of principal, client name and client version.
    pub client: KeyedHash,
    /// The name and version of the client.
    pub client_info: ClientInfo,
    /// The revision that the client asked for and the server answered with.
    pub protocol: Revision,
    /// The transport of the client.
    pub transport: Transport,
    /// The start of the session.
    pub started_at: Timestamp,
    /// The profile that the client chose by its address, if it chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Further properties of the client, by name: `capabilities`, `title`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A recorded session with its present end, calls and tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session as it started.
    pub session: Session,
    /// The end of the session; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// The number of its tool calls.
    pub n_calls: u64,
    /// The names of the tools that were listed to it, sorted, without repetition.
    pub tools_available: Vec<String>,
}
