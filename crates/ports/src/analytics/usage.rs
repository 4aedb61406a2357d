//! Usage counts: tool frequencies, pairs, transitions and statistics.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};

use super::StoreError;

/// Reads the counts of calls.
///
/// A record counts as soon as it is a row. Rounds that continue a call are not counted. `scope`
/// limits the result to the calls of one principal; without it, the result is the sum over all.
/// `tools` limits it to the named tools; without it, it covers all tools, and with an empty list
/// none. Counts of zero are omitted. Calls are counted by the hour in which they were received:
/// `since` means the beginning of its hour, in UTC.
///
/// The tools that a session used stay counted as long as the session exists, even when its old
/// calls are purged. [`Self::sessions_using`] and [`Self::cooccurrences`] use these counts. Of a
/// session with more than 128 tools ([`SessionTools::MAX_TOOLS`]) the first 128 are known. The
/// other methods count only the calls that are left.
///
/// [`SessionTools::MAX_TOOLS`]: riglm_domain::usage::SessionTools::MAX_TOOLS
///
/// The time of a query depends on the numbers of tools, pairs, principals and hours, and not on the
/// number of calls.
#[async_trait]
pub trait UsageRepository: Send + Sync + fmt::Debug {
    /// Returns the number of calls of each tool, most frequent first; ties by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn frequencies(
        &self,
        scope: Option<&Principal>,
        since: Timestamp,
    ) -> Result<Vec<ToolFrequency>, StoreError>;

    /// Returns the number of sessions that used each tool, ordered by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_using(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolSessions>, StoreError>;

    /// Returns the co-occurrence pairs that contain one of the tools, each once, with the lower
    /// tool, by upstream and name, as `tool_a`; ordered by both.
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

    /// Returns the transitions from the tools to the next tools with their counts, ordered by both.
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

    /// Returns the outcomes and durations of the calls of each tool, ordered by upstream and name.
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
