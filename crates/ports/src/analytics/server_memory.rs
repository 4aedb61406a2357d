//! Memories of upstream servers: what they said of themselves, for the time after a restart.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::UpstreamName;

use super::StoreError;

/// One thing that is remembered of an upstream server, such as its list of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMemory {
    /// The upstream.
    pub upstream: UpstreamName,
    /// The keyed digest of the configuration under which it was learned, in hexadecimal digits. With
    /// another configuration the memory does not count.
    pub fingerprint: String,
    /// The name of the thing, such as `initialize`. At most
    /// [`MAX_PART_BYTES`](Self::MAX_PART_BYTES).
    pub part: String,
    /// The JSON text of the server, verbatim. At most
    /// [`MAX_CONTENT_BYTES`](Self::MAX_CONTENT_BYTES).
    pub content: String,
    /// The time at which the server said it.
    pub learned_at: Timestamp,
}

impl ServerMemory {
    /// The largest number of parts that are kept of an upstream.
    pub const MAX_PARTS: usize = 40;
    /// The longest name of a part, in bytes.
    pub const MAX_PART_BYTES: usize = 100;
    /// The longest content, in bytes.
    pub const MAX_CONTENT_BYTES: usize = 16 << 20;

    /// Returns whether the name of the part and the content are short enough to be stored.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.part.len() <= Self::MAX_PART_BYTES && self.content.len() <= Self::MAX_CONTENT_BYTES
    }
}

/// Stores what upstream servers said of themselves, the newest content of each part.
///
/// The memories are definitions of servers, like tool definitions: no purge
/// ([`Maintenance::purge`](super::Maintenance::purge)) and no deletion of the data of clients
/// ([`ClientData::delete`](super::ClientData::delete)) removes them.
#[async_trait]
pub trait ServerMemoryRepository: Send + Sync + fmt::Debug {
    /// Stores memories in one transaction. A memory replaces the one with the same upstream and
    /// part, whatever the fingerprint and the time of either: of several in one call, and of
    /// several concurrent calls, the last one stays.
    ///
    /// A memory that does not [fit](ServerMemory::fits) only removes the one it would replace, so
    /// that nothing out of date is recalled. Of each upstream in `memories`, the
    /// [`MAX_PARTS`](ServerMemory::MAX_PARTS) parts that were learned last are kept; of those of
    /// one moment, the last by name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; nothing is written then.
    async fn remember_servers(&self, memories: &[ServerMemory]) -> Result<(), StoreError>;

    /// Returns all memories of upstreams, ordered by upstream and part. An upstream without
    /// memories is no error.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recall_servers(
        &self,
        upstreams: &[UpstreamName],
    ) -> Result<Vec<ServerMemory>, StoreError>;
}
