//! Query expansion: other words for a query.

use std::fmt;

use async_trait::async_trait;

use crate::model_call::{ModelCallError, ModelUsage};

/// Variants of a query, and the tokens used for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryVariants {
    /// The variants, the best one first.
    pub texts: Vec<String>,
    /// The tokens used.
    pub usage: ModelUsage,
}

/// Rewrites a query in other words.
///
/// Returns at most the requested number of variants, never the query itself. Calls may run
/// concurrently. A dropped call is cancelled and does not affect others. The caller sets the
/// timeout by dropping the call.
#[async_trait]
pub trait QueryExpander: Send + Sync + fmt::Debug {
    /// Returns at most `n` variants of a query.
    ///
    /// # Errors
    ///
    /// Returns [`ModelCallError`] when there are none.
    async fn expand(&self, query: &str, n: usize) -> Result<QueryVariants, ModelCallError>;
}
