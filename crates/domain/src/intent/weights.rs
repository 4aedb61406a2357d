//! How much each source of intents counts.

use super::IntentSource;

/// How much what each source says counts, from 0 (it is not listened to) to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntentWeights {
    /// What a client says with the tool for that.
    pub set_context: f64,
    /// What stands in the metadata or a header of a request, or comes through the control API.
    pub request: f64,
    /// What was searched for.
    pub search: f64,
    /// Names and arguments of prompts.
    pub prompts: f64,
    /// Texts that servers had a model complete.
    pub sampling: f64,
    /// Arguments of calls.
    pub arguments: f64,
    /// Paths of resources.
    pub resources: f64,
}

/// A weight that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the weight of {source_name} is not a number from 0 to 1")]
pub struct WeightError {
    /// Whose weight it is.
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
    /// Returns how much a source counts.
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

    /// Checks that every weight is a number from 0 to 1.
    ///
    /// # Errors
    ///
    /// Returns [`WeightError`] for the first one that is not.
    pub fn validate(&self) -> Result<(), WeightError> {
        for source in IntentSource::ALL {
            if !(0.0..=1.0).contains(&self.of(source)) {
                return Err(WeightError {
                    source_name: source.as_str(),
                });
            }
        }
        Ok(())
    }

    /// Returns whether no source is listened to.
    #[must_use]
    pub fn is_off(&self) -> bool {
        IntentSource::ALL
            .iter()
            .all(|source| self.of(*source) <= 0.0)
    }
}
