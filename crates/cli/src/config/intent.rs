//! The configuration section `intent`: weights for the sources of a session's intent.

use riglm_domain::intent::IntentWeights;
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The section `intent`. A weight is a number from 0 to 1; 0 switches its source off.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct IntentConfig {
    /// The context that a client declares with the tool for it.
    #[validate(custom(function = "check_weight"))]
    pub set_context: f64,
    /// The intent in the metadata or a header of a request.
    #[validate(custom(function = "check_weight"))]
    pub request: f64,
    /// Queries of searches.
    #[validate(custom(function = "check_weight"))]
    pub search: f64,
    /// Names and arguments of prompts.
    #[validate(custom(function = "check_weight"))]
    pub prompts: f64,
    /// Texts that servers have a model complete (sampling).
    #[validate(custom(function = "check_weight"))]
    pub sampling: f64,
    /// Arguments of calls.
    #[validate(custom(function = "check_weight"))]
    pub arguments: f64,
    /// Paths of resources.
    #[validate(custom(function = "check_weight"))]
    pub resources: f64,
}

impl Default for IntentConfig {
    fn default() -> Self {
        let weights = IntentWeights::default();
        Self {
            set_context: weights.set_context,
            request: weights.request,
            search: weights.search,
            prompts: weights.prompts,
            sampling: weights.sampling,
            arguments: weights.arguments,
            resources: weights.resources,
        }
    }
}

impl IntentConfig {
    /// Returns the configured weights.
    #[must_use]
    pub fn weights(&self) -> IntentWeights {
        IntentWeights {
            set_context: self.set_context,
            request: self.request,
            search: self.search,
            prompts: self.prompts,
            sampling: self.sampling,
            arguments: self.arguments,
            resources: self.resources,
        }
    }
}

fn check_weight(value: f64) -> Result<(), ValidationError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    let message = "expected a number from 0 to 1";
    Err(ValidationError::new("range").with_message(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_checked_and_default_to_those_of_the_rule() {
        let config: IntentConfig = serde_json::from_str(r#"{"prompts":0}"#).unwrap();
        assert!(config.validate().is_ok());
        let expected = IntentWeights {
            prompts: 0.0,
            ..IntentWeights::default()
        };
        assert_eq!(config.weights(), expected);
        let wrong: IntentConfig = serde_json::from_str(r#"{"search":1.5}"#).unwrap();
        let error = wrong.validate().unwrap_err().to_string();
        assert!(
            error.contains("search") && error.contains("0 to 1"),
            "{error}"
        );
    }
}
