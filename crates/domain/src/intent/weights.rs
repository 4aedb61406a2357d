//! Weights of the sources of intents.

use super::IntentSource;

/// The weight of each source, from 0 (ignored) to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntentWeights {
    /// Text declared with the tool `set_context`.
    pub set_context: f64,
    /// Text from the metadata or a header of a request, or from the control API.
    pub request: f64,
    /// Queries of searches.
    pub search: f64,
    /// Names and arguments of prompts.
    pub prompts: f64,
    /// Messages of sampling requests from servers.
    pub sampling: f64,
    /// Arguments of calls.
    pub arguments: f64,
    /// Paths of resources.
    pub resources: f64,
}

/// A weight is outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the weight of {source_name} is not a number from 0 to 1")]
pub struct WeightError {
    /// Name of the source.
    pub source_name: &'static str,
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

    /// Validates the weights: each must be a number from 0 to 1.
    ///
    /// # Errors
    ///
    /// Returns [`WeightError`] for the first weight outside this range.
    pub fn validate(&self) -> Result<(), WeightError> {
        for source in IntentSource::ALL {
            if !(0.0..=1.0).contains(&self.of(*source)) {
                return Err(WeightError {
                    source_name: source.as_str(),
                });
            }
        }
        Ok(())
    }

    /// Returns whether all sources are ignored.
    #[must_use]
    pub fn is_off(&self) -> bool {
        IntentSource::ALL
            .iter()
            .all(|source| self.of(*source) <= 0.0)
    }
}
