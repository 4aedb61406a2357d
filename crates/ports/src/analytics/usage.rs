//! Counts of what sessions did.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_domain::usage::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};

use super::StoreError;

/// Reads the counts of calls.
///
/// A record counts as soon as it is a row. Rounds that continue a call are not counted. `scope`
/// limits the answer to the calls of one principal; without it, it is the sum over all. `tools`
/// limits it to the named tools; without it, it is about all, and with an empty list about none.
/// What has a count of zero is left out. Calls are counted by the hour in which they were
/// received: `since` means the beginning of its hour, in UTC.
///
/// What a session used stays counted as long as the session is there, also when old calls of it
/// are purged: that is what [`Self::sessions_using`] and [`Self::cooccurrences`] tell. Of a
/// session with more than 128 tools ([`SessionTools::MAX_TOOLS`]) the first 128 are known. The
/// other answers are about the calls that are left.
///
/// [`SessionTools::MAX_TOOLS`]: riglm_domain::usage::SessionTools::MAX_TOOLS
///
/// The time that an answer takes depends on the numbers of tools, pairs, principals and hours,
/// and not on the number of calls.
#[async_trait]
pub trait UsageRepository: Send + Sync + fmt::Debug {
    /// Returns how often tools were called, most frequent first; ties by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn frequencies(
        &self,
        scope: Option<&Principal>,
        since: Timestamp,
    ) -> Result<Vec<ToolFrequency>, StoreError>;

    /// Returns how many sessions used the tools, ordered by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_using(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolSessions>, StoreError>;

    /// Returns the pairs that one of the tools is in, each once, with the lower of the two, by
    /// upstream and name, as `tool_a`; ordered by both.
    ///
    /// A session counts once for a pair, with the distance of the first uses of the two.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn cooccurrences(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolCooccurrence>, StoreError>;

    /// Returns which tools followed the tools and how often, ordered by both.
    ///
    /// A call follows another one of its session when its position is the next.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn transitions(
        &self,
        scope: Option<&Principal>,
        from: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolTransition>, StoreError>;

    /// Returns what became of the calls of the tools, ordered by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn statistics(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
        since: Timestamp,
    ) -> Result<Vec<ToolStatistics>, StoreError>;
}
