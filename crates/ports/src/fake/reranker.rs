//! A re-ranker with scripted answers.

use std::collections::VecDeque;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::retrieval::BriefCatalog;

use crate::model_call::{ModelCallError, ModelUsage};
use crate::reranker::{Reranker, Reranking};

/// The result of one call of the scripted re-ranker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RerankScript {
    /// A ranking of all tools, the last one first.
    Reverse,
    /// A ranking with these indexes.
    Order(Vec<usize>),
    /// An error: the model is not available.
    Down,
    /// An error: the model refuses.
    Refuse,
    /// An error: the model answered in an unexpected form.
    Nonsense,
    /// No result: the call never ends.
    Hang,
}

/// Executes the next step of its plan for each call, and repeats the last step when the plan is
/// used up. It records the requests.
#[derive(Debug)]
pub struct ScriptedReranker {
    plan: Mutex<VecDeque<RerankScript>>,
    last: Mutex<RerankScript>,
    asked: Mutex<Vec<(String, Vec<String>)>>,
}

impl ScriptedReranker {
    /// The tokens used by each call with an answer.
    pub const USAGE: ModelUsage = ModelUsage {
        n_input_tokens: 100,
        n_output_tokens: 10,
    };

    /// Returns a re-ranker with a plan. With an empty plan it uses [`RerankScript::Reverse`].
    #[must_use]
    pub fn new(plan: impl IntoIterator<Item = RerankScript>) -> Self {
        Self {
            plan: Mutex::new(plan.into_iter().collect()),
            last: Mutex::new(RerankScript::Reverse),
            asked: Mutex::default(),
        }
    }

    /// Returns the recorded queries, with the names of the tools.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Vec<String>)> {
        let asked = self.asked.lock();
        asked.clone()
    }

    fn record_query(&self, query: &str, names: Vec<String>) {
        let mut asked = self.asked.lock();
        asked.push((query.to_owned(), names));
    }

    fn next(&self) -> RerankScript {
        let mut plan = self.plan.lock();
        let mut last = self.last.lock();
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
    ) -> Result<Reranking, ModelCallError> {
        // An empty catalog causes no request.
        if catalog.is_empty() {
            return Ok(Reranking::default());
        }
        let names = catalog.names().map(str::to_owned).collect();
        self.record_query(query, names);
        let order = match self.next() {
            RerankScript::Reverse => (0..catalog.len()).rev().collect(),
            RerankScript::Order(order) => order,
            RerankScript::Down => return Err(ModelCallError::Unavailable("down".into())),
            RerankScript::Refuse => return Err(ModelCallError::Refused),
            RerankScript::Nonsense => return Err(ModelCallError::Nonsense(Self::USAGE)),
            RerankScript::Hang => std::future::pending().await,
        };
        Ok(Reranking {
            order,
            usage: Self::USAGE,
        })
    }
}
