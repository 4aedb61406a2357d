//! Queries of the usage counts.
//!
//! Rows refer to tools by key. The names of the tools in a result are read once: names may be long,
//! and a tool may be in thousands of pairs.

mod calls;
mod names;
mod pairs;
#[cfg(test)]
mod tests;
mod transitions;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};
use riglm_ports::analytics::{StoreError, UsageRepository};

use crate::store::Store;

/// The limits of a query: a principal, and the keys of tools.
#[derive(Clone, Debug)]
struct QueryLimits<'a> {
    scope: Option<&'a Principal>,
    tools: Option<Vec<ToolKey>>,
}

impl<'a> QueryLimits<'a> {
    fn new(scope: Option<&'a Principal>, tools: Option<&[ToolRef]>) -> Self {
        Self {
            scope,
            tools: tools.map(|tools| tools.iter().map(ToolRef::key).collect()),
        }
    }

    /// Returns the one of four statements that has the conditions for these limits, so that each
    /// one can use its index.
    fn choose<'s, S>(&self, statements: &'s StatementsByLimits<S>) -> &'s S {
        match (self.scope, &self.tools) {
            (None, None) => &statements.all,
            (Some(_), None) => &statements.of_principal,
            (None, Some(_)) => &statements.of_tools,
            (Some(_), Some(_)) => &statements.of_both,
        }
    }

    /// Returns whether the result must be empty.
    fn is_nothing(&self) -> bool {
        self.tools.as_ref().is_some_and(Vec::is_empty)
    }
}

/// A query as one statement for each combination of limits. Parameters: principal, keys of tools.
#[derive(Debug)]
struct StatementsByLimits<S> {
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
        pairs::sessions_using(self.database().await?, &QueryLimits::new(scope, tools)).await
    }

    async fn cooccurrences(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolCooccurrence>, StoreError> {
        pairs::cooccurrences(self.database().await?, &QueryLimits::new(scope, tools)).await
    }

    async fn transitions(
        &self,
        scope: Option<&Principal>,
        from: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolTransition>, StoreError> {
        transitions::transitions(self.database().await?, &QueryLimits::new(scope, from)).await
    }

    async fn statistics(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
        since: Timestamp,
    ) -> Result<Vec<ToolStatistics>, StoreError> {
        calls::statistics(
            self.database().await?,
            &QueryLimits::new(scope, tools),
            since,
        )
        .await
    }
}
