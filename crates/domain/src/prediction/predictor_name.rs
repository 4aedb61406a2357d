//! The configured names of predictors, and the sets of experts that they stand for.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Expert, ExpertSet, PredictionMethod, PredictorSet};

/// Method of predicting the next tool.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
    Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PredictorName {
    /// A mix of all other methods except `cooccurrence`, or of some of them, weighted by their past
    /// performance.
    #[default]
    Mix,
    /// Tools used in the same sessions, with frequency as the fallback.
    Cooccurrence,
    /// Tools used later in the same sessions, smoothed, as in the mix.
    CooccurrenceSmoothed,
    /// Frequency of calls of each tool.
    Frequency,
    /// Frequency of each tool as the first one of a session.
    FirstCall,
    /// Recent calls of the session.
    Recency,
    /// Successors of the last one to five calls.
    Markov,
    /// Tools used for the first time after the last different tools.
    Workflow,
    /// The server that follows the last one, and the frequency of its tools.
    Server,
    /// Tools of similar sessions.
    SimilarSessions,
    /// The next tools in sessions with a similar course.
    NextInSessions,
    /// Tools used after similar texts.
    ContextKnn,
    /// Fit of the tools for the text.
    Text,
    /// Calls at this hour and on this weekday.
    Time,
    /// Calls by this kind of client.
    Client,
}

impl PredictorName {
    /// All names.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the configuration name of the predictor.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the method of the predictor.
    #[must_use]
    pub fn method(self) -> PredictionMethod {
        match self {
            Self::Mix => PredictionMethod::Mix,
            Self::Cooccurrence => PredictionMethod::CooccurrenceWithFallback,
            other => PredictionMethod::Expert(other.expert().unwrap_or(Expert::Frequency)),
        }
    }

    /// Returns the expert of a predictor that is a single one, or `None` for a combined one.
    #[must_use]
    pub fn expert(self) -> Option<Expert> {
        Some(match self {
            Self::Mix | Self::Cooccurrence => return None,
            Self::CooccurrenceSmoothed => Expert::Cooccurrence,
            Self::Frequency => Expert::Frequency,
            Self::FirstCall => Expert::FirstCall,
            Self::Recency => Expert::Recency,
            Self::Markov => Expert::Markov,
            Self::Workflow => Expert::Workflow,
            Self::Server => Expert::Server,
            Self::SimilarSessions => Expert::SimilarSessions,
            Self::NextInSessions => Expert::NextInSessions,
            Self::ContextKnn => Expert::ContextKnn,
            Self::Text => Expert::Text,
            Self::Time => Expert::Time,
            Self::Client => Expert::Client,
        })
    }
}

/// The reason why names are not a predictor set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictorSetError {
    /// The list is empty.
    #[error("expected the name of a predictor, or the experts of a mix")]
    Empty,
    /// A name occurs twice.
    #[error("{0} is named twice")]
    Twice(PredictorName),
    /// A predictor cannot be part of a mix.
    #[error("{0} combines several predictors, so it must be the only name")]
    NoPart(PredictorName),
}

impl PredictorSet {
    /// Returns the predictor set of a list of names. One name is that predictor alone, several are a
    /// mix.
    ///
    /// # Errors
    ///
    /// Returns [`PredictorSetError`] for names that are not a valid set.
    pub fn from_names(names: &[PredictorName]) -> Result<Self, PredictorSetError> {
        if let [name] = names {
            return Ok(Self::new(name.method(), ExpertSet::ALL));
        }
        if names.is_empty() {
            return Err(PredictorSetError::Empty);
        }
        for (at, name) in names.iter().enumerate() {
            if name.expert().is_none() {
                return Err(PredictorSetError::NoPart(*name));
            }
            if names[..at].contains(name) {
                return Err(PredictorSetError::Twice(*name));
            }
        }
        Ok(Self::new(
            PredictionMethod::Mix,
            ExpertSet::from_names(names),
        ))
    }
}

impl ExpertSet {
    /// Returns the experts with these names, [`Self::ALL`] for the names of all experts. Predictors that
    /// combine several are left out.
    #[must_use]
    pub fn from_names(names: &[PredictorName]) -> Self {
        let experts = names.iter().filter_map(|name| name.expert());
        // The successors of the last call are a part of the Markov predictor, so it has no name of its
        // own.
        let markov = names.contains(&PredictorName::Markov);
        let with = markov.then_some(Expert::LastCall);
        let chosen = Self::of(&experts.chain(with).collect::<Vec<_>>());
        let mut all = Expert::ALL.iter();
        // An external predictor has no name: the configuration says what it is.
        if all.all(|expert| *expert == Expert::External || chosen.contains(*expert)) {
            return Self::ALL;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictors_are_configured_by_their_names() {
        for &name in PredictorName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        assert!("other".parse::<PredictorName>().is_err());
    }

    #[test]
    fn names_of_predictors_are_stable() {
        let names: Vec<&str> = PredictorName::ALL.iter().map(|it| it.as_str()).collect();
        let expected = [
            "mix",
            "cooccurrence",
            "cooccurrence_smoothed",
            "frequency",
            "first_call",
            "recency",
            "markov",
            "workflow",
            "server",
            "similar_sessions",
            "next_in_sessions",
            "context_knn",
            "text",
            "time",
            "client",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            format!("{} {}", PredictorName::Mix, PredictorName::ContextKnn),
            "mix context_knn"
        );
    }
}
