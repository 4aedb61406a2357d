//! Escalation of a search beyond its ranking, in tiers. Notes of operators come first. Query
//! expansion follows if little fits. Reranking by a model comes last. The first tier that makes the
//! answer good ends the escalation. Each tier can be disabled.

mod guard;
mod notes;

use std::sync::Arc;

use riglm_domain::retrieval::ExpansionRules;
use riglm_ports::observer::{NoObserver, Observer};
use riglm_ports::query_expander::QueryExpander;
use riglm_ports::reranker::Reranker;

pub use guard::{ModelGuard, ModelLimits};
pub(super) use notes::{IdleNoteWarning, NotesIndex, OperatorMatches};
pub use notes::{Note, NotesConfig};

/// A model with its guard, which limits requests.
#[derive(Debug)]
pub struct GuardedModel<M: ?Sized> {
    /// The model.
    pub model: Arc<M>,
    /// Limits of its requests.
    pub guard: Arc<ModelGuard>,
}

impl<M: ?Sized> GuardedModel<M> {
    /// Adds a guard with these limits to a model.
    #[must_use]
    pub fn new(model: Arc<M>, limits: ModelLimits) -> Self {
        Self {
            model,
            guard: Arc::new(ModelGuard::new(limits)),
        }
    }
}

impl<M: ?Sized> Clone for GuardedModel<M> {
    fn clone(&self) -> Self {
        Self {
            model: Arc::clone(&self.model),
            guard: Arc::clone(&self.guard),
        }
    }
}

/// The model that reranks hits.
#[derive(Clone, Debug, Default)]
pub enum Reranking {
    /// No reranking.
    #[default]
    None,
    /// One model for all clients.
    Endpoint {
        /// The model.
        reranker: GuardedModel<dyn Reranker>,
        /// Maximum number of tools in a request.
        max_tools: usize,
    },
    /// The model of the client that searches, if the client offers one (sampling).
    Client {
        /// Limits for each of these models.
        limits: ModelLimits,
        /// Maximum number of tools in a request.
        max_tools: usize,
    },
}

/// The tiers of a search beyond its ranking.
#[derive(Clone, Debug)]
pub struct Escalation {
    /// Notes and pins of operators.
    pub notes: NotesConfig,
    /// Rules for query expansion if the answer would be graded low, or `None` to disable it.
    pub expansion: Option<ExpansionRules>,
    /// The model that generates query variants.
    pub expander: Option<GuardedModel<dyn QueryExpander>>,
    /// The reranking model, used if the answer would not be graded high.
    pub reranking: Reranking,
    /// Observer of the results of the tiers.
    pub observer: Arc<dyn Observer>,
}

impl Default for Escalation {
    /// Returns an escalation in which only pins have an effect.
    fn default() -> Self {
        Self {
            notes: NotesConfig::default(),
            expansion: None,
            expander: None,
            reranking: Reranking::None,
            observer: Arc::new(NoObserver),
        }
    }
}
