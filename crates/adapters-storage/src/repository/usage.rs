//! Answers from the counts.
//!
//! Rows name tools by their keys, and the names of those that an answer is about are read once:
//! names may be long, and a tool may be in thousands of pairs.

mod calls;
mod names;
mod pairs;
#[cfg(test)]
mod tests;
mod transitions;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::principal::Principal;
use riglm_domain::tool::{ToolKey, ToolRef};
use riglm_domain::usage::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};
use riglm_ports::analytics::{StoreError, UsageRepository};

use crate::store::Store;

/// What an answer is limited to: a principal, and the keys of tools.
#[derive(Clone, Debug)]
struct Limits<'a> {
    scope: Option<&'a Principal>,
    tools: Option<Vec<ToolKey>>,
}

impl<'a> Limits<'a> {
    fn new(scope: Option<&'a Principal>, tools: Option<&[ToolRef]>) -> Self {
        Self {
            scope,
            tools: tools.map(|tools| tools.iter().map(ToolRef::key).collect()),
        }
    }

    /// Returns the one of four statements that has the conditions for these limits, so that each
    /// one has the index that fits.
    fn choose<'s, S>(&self, statements: &'s Limited<S>) -> &'s S {
        match (self.scope, &self.tools) {
            (None, None) => &statements.all,
            (Some(_), None) => &statements.of_principal,
            (None, Some(_)) => &statements.of_tools,
            (Some(_), Some(_)) => &statements.of_both,
        }
    }

    /// Returns whether nothing can be within the limits.
    fn is_nothing(&self) -> bool {
        self.tools.as_ref().is_some_and(Vec::is_empty)
    }
}

/// A question as one statement for each combination of limits. Parameters: principal, keys of
/// tools.
#[derive(Debug)]
struct Limited<S> {
    all: S,
    of_principal: S,
    of_tools: S,
    of_both: S,
}

#[async_trait]
impl UsageRepository for Store {
    async fn frequencies(
        &self,
        scope: Option<&Principal>,
        since: Timestamp,
    ) -> Result<Vec<ToolFrequency>, StoreError> {
        calls::frequencies(self.database().await?, scope, since).await
    }

    async fn sessions_using(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolSessions>, StoreError> {
        pairs::sessions_using(self.database().await?, &Limits::new(scope, tools)).await
    }

    async fn cooccurrences(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolCooccurrence>, StoreError> {
        pairs::cooccurrences(self.database().await?, &Limits::new(scope, tools)).await
    }

    async fn transitions(
        &self,
        scope: Option<&Principal>,
        from: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolTransition>, StoreError> {
        transitions::transitions(self.database().await?, &Limits::new(scope, from)).await
    }

    async fn statistics(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
        since: Timestamp,
    ) -> Result<Vec<ToolStatistics>, StoreError> {
        calls::statistics(self.database().await?, &Limits::new(scope, tools), since).await
    }
}
