//! A query expander with scripted answers.

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::retrieval::parse_wordings;

use crate::model_call::{ModelCallError, ModelUsage};
use crate::query_expander::{QueryExpander, QueryVariants};

/// Answers every request with the same texts, as a model would.
#[derive(Debug, Default)]
pub struct ScriptedExpander(Mutex<String>);

impl ScriptedExpander {
    /// The tokens used by each call.
    pub const USAGE: ModelUsage = ModelUsage {
        n_input_tokens: 50,
        n_output_tokens: 5,
    };

    /// Makes the model answer every later request with this text, which need not have variants.
    pub fn answer_with(&self, text: impl Into<String>) {
        *self.0.lock() = text.into();
    }
}

#[async_trait]
impl QueryExpander for ScriptedExpander {
    async fn expand(&self, query: &str, n: usize) -> Result<QueryVariants, ModelCallError> {
        let answer = self.0.lock().clone();
        match parse_wordings(&answer, query, n) {
            Some(texts) => Ok(QueryVariants {
                texts,
                usage: Self::USAGE,
            }),
            None => Err(ModelCallError::Nonsense(Self::USAGE)),
        }
    }
}
