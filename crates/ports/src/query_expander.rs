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
/// The caller sets the timeout by dropping the call.
///
/// # Promises
///
/// - The variants are texts of the model, the best one first, at most as many as were requested.
/// - The query is never its own variant, however it is spaced or capitalized. No variant is empty,
///   and none is there twice.
/// - A model that knows no other words causes an answer without variants, which is no error.
/// - Any query can be expanded.
/// - Calls may run concurrently. A dropped call is cancelled and does not affect others.
///
/// `contract::query_expander` has a clause for each, `contract::model_call` those of failures.
#[async_trait]
pub trait QueryExpander: Send + Sync + fmt::Debug {
    /// Returns at most `n` variants of a query.
    ///
    /// # Errors
    ///
    /// Returns [`ModelCallError`] when the model gives no usable answer.
    async fn expand(&self, query: &str, n: usize) -> Result<QueryVariants, ModelCallError>;
}
