//! What was found, put into another order by somebody who understands the question.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::retrieval::BriefCatalog;

use crate::model_call::{ModelCallError, ModelUsage};

/// An order, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reranked {
    /// Places in the catalog, the best one first: of the tools that help with the query.
    pub order: Vec<usize>,
    /// What it cost.
    pub usage: ModelUsage,
}

/// Says which of a few tools help with a query, and which most.
///
/// An order names places of the catalog only, each at most once; what a model says otherwise is
/// [`ModelCallError::Nonsense`]. It need not name all of them. Nobody is asked about an empty catalog.
/// Calls may come at the same time; one that is dropped is given up, and others go on. How long a call
/// takes is up to the caller, who drops it.
#[async_trait]
pub trait Reranker: Send + Sync + fmt::Debug {
    /// Returns the order of the tools of a catalog for a query.
    ///
    /// # Errors
    ///
    /// Returns [`ModelCallError`] when there is no order.
    async fn rerank(&self, query: &str, catalog: &BriefCatalog)
    -> Result<Reranked, ModelCallError>;
}
