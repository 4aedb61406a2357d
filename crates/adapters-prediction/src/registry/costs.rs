//! What is assumed of a client's model and its provider, as it is configured.

use riglm_domain::economics::CostModel;
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

/// The configuration section `filtering.costs`: prices in terms of a token of a prompt that is in no
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check"))]
pub struct CostsConfig {
    /// The price of a token that is read from the cache.
    pub cached_read: f64,
    /// The price of a token that is written to the cache.
    pub cache_write: f64,
    /// How many tokens stand behind the tools in a prompt, on average.
    pub context_tokens: f64,
    /// The price of the question and the answer of a search, without definitions.
    pub search: f64,
}

impl CostsConfig {
    /// Returns the prices as a model.
    #[must_use]
    pub fn model(&self) -> CostModel {
        CostModel {
            cached_read: self.cached_read,
            cache_write: self.cache_write,
            context_tokens: self.context_tokens,
            inline_search: self.search,
            ..CostModel::default()
        }
    }
}

impl Default for CostsConfig {
    fn default() -> Self {
        let model = CostModel::default();
        Self {
            cached_read: model.cached_read,
            cache_write: model.cache_write,
            context_tokens: model.context_tokens,
            search: model.inline_search,
        }
    }
}

fn check(costs: &CostsConfig) -> Result<(), ValidationError> {
    let checked = costs.model().check();
    checked.map_err(|error| {
        let text = error.to_string().replace("inline_search", "search");
        ValidationError::new("costs").with_message(text.into())
    })
}
