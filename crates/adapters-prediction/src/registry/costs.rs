//! What is assumed of a client's model and its provider, as it is configured.

use riglm_domain::economics::CostModel;
use riglm_domain::listing::{ListPrices, SessionShape};
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
    /// Factor by which the price of a search counts when lists are chosen.
    pub search_weight: f64,
    /// The price of a tool that is needed, not listed, and not looked for.
    pub lost_tool: f64,
    /// Lists whose costs differ by less than this share count as equally good.
    pub margin: f64,
    /// Number of calls that a session is assumed to make before any was recorded.
    pub session_calls: f64,
    /// Number of different tools that a session is assumed to use.
    pub session_tools: f64,
}

impl CostsConfig {
    /// Returns the prices by which lists are chosen, of answers to searches of the default length.
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
    fn what_is_no_price_is_refused_by_name() {
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
