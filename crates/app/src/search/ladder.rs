//! What a search does beyond its ranking, step by step: what operators point at first, then other
//! words where little fits, then another order by somebody who understands the question. The first
//! step that makes the answer good ends it, and each can be left out.

mod guard;
mod notes;

use std::sync::Arc;

use riglm_domain::retrieval::ExpansionRules;
use riglm_ports::observer::{Observer, Unobserved};
use riglm_ports::query_expander::QueryExpander;
use riglm_ports::reranker::Reranker;

pub use guard::{ModelGuard, ModelLimits};
pub(super) use notes::{Curated, PreparedNotes, Warned};
pub use notes::{Note, NoteRules};

/// A model, and how much it is asked.
#[derive(Debug)]
pub struct Guarded<M: ?Sized> {
    /// The model.
    pub model: Arc<M>,
    /// How much it is asked.
    pub guard: Arc<ModelGuard>,
}

impl<M: ?Sized> Guarded<M> {
    /// Returns a model that is asked within limits.
    #[must_use]
    pub fn new(model: Arc<M>, limits: ModelLimits) -> Self {
        Self {
            model,
            guard: Arc::new(ModelGuard::new(limits)),
        }
    }
}

impl<M: ?Sized> Clone for Guarded<M> {
    fn clone(&self) -> Self {
        Self {
            model: Arc::clone(&self.model),
            guard: Arc::clone(&self.guard),
        }
    }
}

/// Who puts what was found into another order.
#[derive(Clone, Debug, Default)]
pub enum Reranking {
    /// Nobody.
    #[default]
    None,
    /// The same model for everybody.
    Endpoint {
        /// The model.
        reranker: Guarded<dyn Reranker>,
        /// How many tools it is told of.
        max_tools: usize,
    },
    /// The model of who searches, where they offer it.
    Client {
        /// How much each is asked.
        limits: ModelLimits,
        /// How many tools it is told of.
        max_tools: usize,
    },
}

/// The steps beyond the ranking.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// What operators point at.
    pub notes: NoteRules,
    /// Which other words are tried where the answer would be graded low; `None` for none.
    pub expansion: Option<ExpansionRules>,
    /// The model that is asked for other words.
    pub expander: Option<Guarded<dyn QueryExpander>>,
    /// Who puts what was found into another order, where the answer would not be graded high.
    pub reranking: Reranking,
    /// Is told what the steps did.
    pub observer: Arc<dyn Observer>,
}

impl Default for Ladder {
    /// No step but for tools that are pinned.
    fn default() -> Self {
        Self {
            notes: NoteRules::default(),
            expansion: None,
            expander: None,
            reranking: Reranking::None,
            observer: Arc::new(Unobserved),
        }
    }
}
