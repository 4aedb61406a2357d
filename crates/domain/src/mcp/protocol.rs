//! Protocol revisions and the transports that carry them.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A revision of the Model Context Protocol, named by its date.
///
/// Revisions are ordered by date. A revision that this build does not know is ordered by its text,
/// which for dates gives the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// The first revision: stdio and HTTP+SSE.
    pub const V2024_11_05: &'static str = "2024-11-05";
    /// Streamable HTTP, JSON-RPC batches.
    pub const V2025_03_26: &'static str = "2025-03-26";
    /// No batches, the version header, elicitation.
    pub const V2025_06_18: &'static str = "2025-06-18";
    /// Polling of SSE streams, tasks, elicitation by URL.
    pub const V2025_11_25: &'static str = "2025-11-25";
    /// No handshake, no sessions, no requests of the server. This revision is "modern"; all earlier
    /// ones are "legacy" (basic/versioning, Terminology).
    pub const V2026_07_28: &'static str = "2026-07-28";
    /// The newest revision with a handshake.
    pub const NEWEST_LEGACY: &'static str = Self::V2025_11_25;
    /// The newest revision without a handshake.
    pub const NEWEST_MODERN: &'static str = Self::V2026_07_28;
    /// Every revision that has sessions and a handshake, oldest first.
    pub const WITH_SESSIONS: [&'static str; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];

    /// Returns every revision that riglm supports, newest first.
    #[must_use]
    pub fn supported_revisions() -> Vec<&'static str> {
        let legacy = Self::WITH_SESSIONS.iter().rev().copied();
        std::iter::once(Self::V2026_07_28).chain(legacy).collect()
    }

    /// Returns the revision named by `text`, known or not.
    #[must_use]
    pub fn new(text: &str) -> Self {
        // Limits the size of texts from clients; a date is shorter.
        Self(text.chars().take(32).collect())
    }

    /// Returns the date that names the revision.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this build supports the revision.
    #[must_use]
    pub fn is_known(&self) -> bool {
        Self::WITH_SESSIONS.contains(&self.0.as_str()) || self.is_modern()
    }

    /// Returns whether each request carries version, identity and capabilities, in place of a
    /// handshake. Returns false for revisions that are newer than this build.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.0 == Self::V2026_07_28
    }

    /// Returns whether the revision has JSON-RPC batches (removed in 2025-06-18).
    #[must_use]
    pub fn allows_batches(&self) -> bool {
        self.0.as_str() < Self::V2025_06_18
    }

    /// Returns whether tool definitions may have `annotations`.
    #[must_use]
    pub fn has_annotations(&self) -> bool {
        self.0.as_str() >= Self::V2025_03_26
    }

    /// Returns whether tools may have a `title` and an `outputSchema`, and results of calls may
    /// have `structuredContent`.
    #[must_use]
    pub fn has_structured_results(&self) -> bool {
        self.0.as_str() >= Self::V2025_06_18
    }

    /// Returns whether a stream may be closed early and polled again (SEP-1699). Such a stream
    /// starts with an event that has an id and no data.
    #[must_use]
    pub fn has_stream_priming(&self) -> bool {
        self.0 == Self::V2025_11_25
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The era of a request (basic/versioning, Terminology). Both eras may occur in one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Before 2026-07-28: a handshake begins the session, and servers send requests.
    Legacy,
    /// Since 2026-07-28: each request carries version, identity and capabilities of its client.
    Modern,
}

/// The transport of messages between two peers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Transport {
    /// One JSON message a line over standard input and output.
    Stdio,
    /// Streamable HTTP, since revision 2025-03-26.
    StreamableHttp,
    /// HTTP with server-sent events as of revision 2024-11-05.
    Sse,
}

impl Transport {
    /// All transports.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the transport is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_know_their_rules() {
        assert!(Revision::new(Revision::V2025_03_26).allows_batches());
        assert!(!Revision::new(Revision::V2025_06_18).allows_batches());
        assert!(Revision::new(Revision::V2025_11_25).has_stream_priming());
        assert!(!Revision::new(Revision::V2024_11_05).has_annotations());
        assert!(Revision::new(Revision::V2025_03_26).has_annotations());
        assert!(!Revision::new(Revision::V2025_03_26).has_structured_results());
        assert!(Revision::new(Revision::V2026_07_28).has_structured_results());
        assert!(!Revision::new("1999-01-01").is_known());
    }
}
