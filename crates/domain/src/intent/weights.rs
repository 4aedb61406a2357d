//! Weights of the sources of intents.

use serde::Deserialize;
#[cfg(feature = "validator")]
use validator::Validate;

use super::IntentSource;
#[cfg(feature = "validator")]
use crate::num::check_share;

/// The configuration section `intent`: the weight of each source, from 0 (ignored) to 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "validator", derive(Validate))]
#[serde(deny_unknown_fields, default)]
pub struct IntentWeights {
    /// Text declared with the tool `set_context`.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub set_context: f64,
    /// Text from the metadata or a header of a request, or from the control API.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub request: f64,
    /// Queries of searches.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub search: f64,
    /// Names and arguments of prompts.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub prompts: f64,
    /// Messages of sampling requests from servers.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub sampling: f64,
    /// Arguments of calls.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub arguments: f64,
    /// Paths of resources.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub resources: f64,
}

impl Default for IntentWeights {
    fn default() -> Self {
        Self {
            set_context: 1.0,
            request: 1.0,
            search: 0.8,
            prompts: 0.6,
            sampling: 0.5,
            arguments: 0.3,
            resources: 0.2,
        }
    }
}

impl IntentWeights {
    /// Returns the weight of a source.
    #[must_use]
    pub fn of(&self, source: IntentSource) -> f64 {
        match source {
            IntentSource::SetContext => self.set_context,
            IntentSource::Request | IntentSource::Control => self.request,
            IntentSource::Search => self.search,
            IntentSource::Prompt => self.prompts,
            IntentSource::Sampling => self.sampling,
            IntentSource::Arguments => self.arguments,
            IntentSource::Resource => self.resources,
        }
    }

    /// Returns whether all sources are ignored.
    #[must_use]
    pub fn is_off(&self) -> bool {
        IntentSource::ALL
            .iter()
            .all(|source| self.of(*source) <= 0.0)
    }
}
