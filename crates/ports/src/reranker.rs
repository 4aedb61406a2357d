//! Re-ranking: a second ranking of search results by a language model that understands the query.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::retrieval::BriefCatalog;

use crate::model_call::{ModelCallError, ModelUsage};

/// A ranking, and the tokens used for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reranking {
    /// Indexes into the catalog of the tools that help with the query, the best one first.
    pub order: Vec<usize>,
    /// The tokens used.
    pub usage: ModelUsage,
}

/// Ranks the few tools of a catalog by their use for a query.
///
/// The caller sets the timeout by dropping the call.
///
/// # Promises
///
/// - A ranking contains only indexes of the catalog, each at most once. It need not contain all. Any
///   other answer of a model is [`ModelCallError::Nonsense`].
/// - An empty catalog causes no request to a model.
/// - Calls may run concurrently. A dropped call is cancelled and does not affect others.
///
/// `contract::reranker` has a clause for each, `contract::model_call` those of failures.
#[async_trait]
pub trait Reranker: Send + Sync + fmt::Debug {
    /// Returns the ranking of the tools of a catalog for a query.
    ///
    /// # Errors
    ///
    /// Returns [`ModelCallError`] when there is no ranking.
    async fn rerank(
        &self,
        query: &str,
        catalog: &BriefCatalog,
    ) -> Result<Reranking, ModelCallError>;
}
