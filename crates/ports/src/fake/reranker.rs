//! A re-ranker that does what a test tells it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use riglm_domain::retrieval::BriefCatalog;

use crate::model_call::{ModelCallError, ModelUsage};
use crate::reranker::{Reranked, Reranker};

/// What a call comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RerankScript {
    /// All tools, the last one first.
    Reverse,
    /// These places.
    Order(Vec<usize>),
    /// An error: it is not available.
    Down,
    /// An error: it does not want to.
    Refuse,
    /// An error: it said something else.
    Nonsense,
    /// Nothing, ever.
    Hang,
}

/// Does for each call what is planned next, and what was last for all others. It notes what it is
/// asked.
#[derive(Debug)]
pub struct ScriptedReranker {
    plan: Mutex<VecDeque<RerankScript>>,
    last: Mutex<RerankScript>,
    asked: Mutex<Vec<(String, Vec<String>)>>,
}

impl ScriptedReranker {
    /// What a call with an answer costs.
    pub const USAGE: ModelUsage = ModelUsage {
        n_input_tokens: 100,
        n_output_tokens: 10,
    };

    /// Returns a re-ranker with a plan; one without does [`RerankScript::Reverse`].
    #[must_use]
    pub fn new(plan: impl IntoIterator<Item = RerankScript>) -> Self {
        Self {
            plan: Mutex::new(plan.into_iter().collect()),
            last: Mutex::new(RerankScript::Reverse),
            asked: Mutex::default(),
        }
    }

    /// Returns the queries that it was asked, with the names of the tools.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Vec<String>)> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }

    fn note(&self, query: &str, names: Vec<String>) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((query.to_owned(), names));
    }

    fn next(&self) -> RerankScript {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = plan.pop_front() {
            *last = next;
        }
        last.clone()
    }
}

#[async_trait]
impl Reranker for ScriptedReranker {
    async fn rerank(
        &self,
        query: &str,
        catalog: &BriefCatalog,
    ) -> Result<Reranked, ModelCallError> {
        if catalog.is_empty() {
            return Ok(Reranked::default());
        }
        let names = catalog.names().map(str::to_owned).collect();
        self.note(query, names);
        let order = match self.next() {
            RerankScript::Reverse => (0..catalog.len()).rev().collect(),
            RerankScript::Order(order) => order,
            RerankScript::Down => return Err(ModelCallError::Unavailable("down".into())),
            RerankScript::Refuse => return Err(ModelCallError::Refused),
            RerankScript::Nonsense => return Err(ModelCallError::Nonsense(Self::USAGE)),
            RerankScript::Hang => std::future::pending().await,
        };
        Ok(Reranked {
            order,
            usage: Self::USAGE,
        })
    }
}
