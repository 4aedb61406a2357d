//! Configured cost model of clients' language models and their providers.

use riglm_domain::selection::economics::CostModel;
use riglm_domain::selection::{ListPrices, SessionShape};
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

/// The configuration section `filtering.costs`. Prices are in units of one uncached prompt token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check"))]
pub struct CostsConfig {
    /// Price of a token that is read from the cache.
    pub cached_read: f64,
    /// Price of a token that is written to the cache.
    pub cache_write: f64,
    /// Mean number of tokens after the tools in a prompt.
    pub context_tokens: f64,
    /// Price of the query and the answer of a search, without definitions.
    pub search: f64,
    /// Weight of the price of a search in the selection of lists.
    pub search_weight: f64,
    /// Price of a tool that is needed, not listed, and not searched.
    pub lost_tool: f64,
    /// Relative difference of costs below which lists count as equally good.
    pub margin: f64,
    /// Assumed number of calls in a session before any session is recorded.
    pub session_calls: f64,
    /// Assumed number of different tools in a session.
    pub session_tools: f64,
}

impl CostsConfig {
    /// Returns the prices for the selection of lists, with search answers of the default length.
    #[must_use]
    pub fn prices(&self) -> ListPrices {
        ListPrices {
            model: self.model(),
            shape: SessionShape {
                n_calls: self.session_calls,
                n_tools: self.session_tools,
            },
            search_weight: self.search_weight,
            lost_tool: self.lost_tool,
            margin: self.margin,
            ..ListPrices::default()
        }
    }

    /// Returns the prices as a cost model.
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
        let prices = ListPrices::default();
        let model = prices.model;
        Self {
            cached_read: model.cached_read,
            cache_write: model.cache_write,
            context_tokens: model.context_tokens,
            search: model.inline_search,
            search_weight: prices.search_weight,
            lost_tool: prices.lost_tool,
            margin: prices.margin,
            session_calls: prices.shape.n_calls,
            session_tools: prices.shape.n_tools,
        }
    }
}

fn check(costs: &CostsConfig) -> Result<(), ValidationError> {
    let refused = |text: String| ValidationError::new("costs").with_message(text.into());
    let checked = costs.model().check();
    // The model's name of this field differs from the configuration key.
    checked.map_err(|error| refused(error.to_string().replace("inline_search", "search")))?;
    for (name, value, least) in [
        ("search_weight", costs.search_weight, 0.0),
        ("lost_tool", costs.lost_tool, 0.0),
        ("margin", costs.margin, 0.0),
        ("session_calls", costs.session_calls, 1.0),
        ("session_tools", costs.session_tools, 1.0),
    ] {
        if !value.is_finite() || value < least {
            let text = format!("{name} must be a finite number of at least {least}, not {value}");
            return Err(refused(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_prices_are_refused_with_their_key() {
        let refusal = |json: &str| {
            let costs: CostsConfig = serde_json::from_str(json).unwrap();
            costs.validate().unwrap_err().to_string()
        };
        for (json, expected) in [
            (
                r#"{"search":-1}"#,
                "search must be a finite number of at least 0, not -1",
            ),
            (r#"{"search_weight":-0.5}"#, "search_weight must be"),
            (r#"{"lost_tool":-1}"#, "lost_tool must be"),
            (r#"{"margin":-1}"#, "margin must be"),
            (
                r#"{"session_calls":0}"#,
                "session_calls must be a finite number of at least 1",
            ),
        ] {
            assert!(
                refusal(json).contains(expected),
                "{json}: {}",
                refusal(json)
            );
        }
        let infinite = CostsConfig {
            lost_tool: f64::INFINITY,
            ..CostsConfig::default()
        };
        assert!(infinite.validate().is_err());
        let zero: CostsConfig =
            serde_json::from_str(r#"{"search":0,"cached_read":0,"cache_write":0,"margin":0}"#)
                .unwrap();
        assert!(zero.validate().is_ok());
        assert_eq!(CostsConfig::default().prices(), ListPrices::default());
    }
}
