//! A query in other words.

use std::fmt;

use async_trait::async_trait;

use crate::model_call::{ModelCallError, ModelUsage};

/// Other wordings of a query, and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The wordings, the best one first.
    pub texts: Vec<String>,
    /// What they cost.
    pub usage: ModelUsage,
}

/// Puts a query into other words, at most as many as it is asked for, none of which is the query.
///
/// Calls may come at the same time; one that is dropped is given up, and others go on. How long a call
/// takes is up to the caller, who drops it.
#[async_trait]
pub trait QueryExpander: Send + Sync + fmt::Debug {
    /// Returns at most `n` other wordings of a query.
    ///
    /// # Errors
    ///
    /// Returns [`ModelCallError`] when there are none.
    async fn expand(&self, query: &str, n: usize) -> Result<Expanded, ModelCallError>;
}
