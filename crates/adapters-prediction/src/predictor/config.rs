//! The configuration section `prediction`.

use std::fmt;

use riglm_domain::prediction::{Bands, ConfidenceMeasure, Expert, ExpertSet, Method};
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

/// What the next tool is predicted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictorName {
    /// All of the following but `cooccurrence`, or some of them, mixed by what each was worth so
    /// far.
    #[default]
    Mix,
    /// What is used in the same sessions, and frequency where that says nothing.
    Cooccurrence,
    /// What is used later in the same sessions, smoothed: as the mix has it.
    CooccurrenceSmoothed,
    /// How often each tool is called.
    Frequency,
    /// How often each tool is the first one of a session.
    FirstCall,
    /// What was called lately in the session.
    Recency,
    /// What followed the last one to five calls.
    Markov,
    /// What is used for the first time after the last different tools.
    Workflow,
    /// Which server follows the last one, and how often its tools are called.
    Server,
    /// The tools of sessions like this one.
    SimilarSessions,
    /// The tools that came next in sessions that went like this one.
    NextInSessions,
    /// The tools that were used after similar texts.
    ContextKnn,
    /// How well tools fit the text.
    Text,
    /// What is called at this hour and on this weekday.
    Time,
    /// What this kind of client calls.
    Client,
}

impl PredictorName {
    /// All names.
    pub const ALL: [Self; 15] = [
        Self::Mix,
        Self::Cooccurrence,
        Self::CooccurrenceSmoothed,
        Self::Frequency,
        Self::FirstCall,
        Self::Recency,
        Self::Markov,
        Self::Workflow,
        Self::Server,
        Self::SimilarSessions,
        Self::NextInSessions,
        Self::ContextKnn,
        Self::Text,
        Self::Time,
        Self::Client,
    ];

    /// Returns the name under which the predictor is configured.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Cooccurrence => "cooccurrence",
            Self::CooccurrenceSmoothed => "cooccurrence_smoothed",
            Self::Frequency => "frequency",
            Self::FirstCall => "first_call",
            Self::Recency => "recency",
            Self::Markov => "markov",
            Self::Workflow => "workflow",
            Self::Server => "server",
            Self::SimilarSessions => "similar_sessions",
            Self::NextInSessions => "next_in_sessions",
            Self::ContextKnn => "context_knn",
            Self::Text => "text",
            Self::Time => "time",
            Self::Client => "client",
        }
    }

    /// Returns the predictor with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    pub(super) fn method(self) -> Method {
        match self {
            Self::Mix => Method::Mix,
            Self::Cooccurrence => Method::CooccurrenceWithFallback,
            other => Method::Expert(other.expert().unwrap_or(Expert::Frequency)),
        }
    }

    /// Returns the expert that this is alone; `None` for what is made of several.
    fn expert(self) -> Option<Expert> {
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

impl fmt::Display for PredictorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where one band of confidence ends and the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_order"))]
pub struct BandsConfig {
    /// Below this confidence every tool is shown.
    #[validate(range(min = 0.0, max = 1.0, message = "expected a number from 0 to 1"))]
    pub show_all_below: f64,
    /// Below this confidence the search for tools comes first.
    #[validate(range(min = 0.0, max = 1.0, message = "expected a number from 0 to 1"))]
    pub search_prominent_below: f64,
}

/// The configuration section `prediction`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct PredictionConfig {
    /// Whether recorded calls are learned from.
    pub enabled: bool,
    /// What the next tool is predicted with.
    pub predictor: PredictorName,
    /// What `mix` is made of; all where none is named.
    #[validate(custom(function = "check_experts"))]
    pub experts: Vec<PredictorName>,
    /// The days after which what was learned counts half.
    #[validate(range(
        min = 0.01,
        max = 36_500.0,
        message = "expected a number from 0.01 to 36500"
    ))]
    pub half_life_days: f64,
    /// How the confidence in a prediction is made.
    pub confidence: ConfidenceMeasure,
    /// The bands of confidence; without them those that go with the measure: 0.6 and 0.9 for the
    /// mass, 0.3 and 0.7 for the similarity.
    #[validate(nested)]
    pub bands: Option<BandsConfig>,
}

impl PredictionConfig {
    /// Returns the experts that `mix` is made of.
    #[must_use]
    pub fn experts(&self) -> ExpertSet {
        if self.experts.is_empty() {
            return ExpertSet::ALL;
        }
        let named = self.experts.iter().filter_map(|name| name.expert());
        // What followed the last call is a part of what followed the last calls.
        let markov = self.experts.contains(&PredictorName::Markov);
        let with = markov.then_some(Expert::LastCall);
        ExpertSet::of(&named.chain(with).collect::<Vec<_>>())
    }

    /// Returns the bands that the section asks for.
    #[must_use]
    pub fn bands(&self) -> Bands {
        self.bands.map_or_else(
            || self.confidence.bands(),
            |bands| Bands {
                show_all_below: bands.show_all_below,
                search_prominent_below: bands.search_prominent_below,
            },
        )
    }
}

impl Default for PredictionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            predictor: PredictorName::Mix,
            experts: Vec::new(),
            half_life_days: 30.0,
            confidence: ConfidenceMeasure::Mass,
            bands: None,
        }
    }
}

fn check_order(bands: &BandsConfig) -> Result<(), ValidationError> {
    if bands.show_all_below <= bands.search_prominent_below {
        return Ok(());
    }
    Err(ValidationError::new("show_all_below").with_message(
        format!(
            "show_all_below ({}) must not be greater than search_prominent_below ({})",
            bands.show_all_below, bands.search_prominent_below
        )
        .into(),
    ))
}

fn check_experts(experts: &[PredictorName]) -> Result<(), ValidationError> {
    match experts.iter().find(|name| name.expert().is_none()) {
        None => Ok(()),
        Some(name) => Err(ValidationError::new("experts")
            .with_message(format!("{name} is itself made of several and cannot be a part").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> PredictionConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn names_of_predictors_are_those_of_the_configuration() {
        for name in PredictorName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
            assert_eq!(PredictorName::parse(name.as_str()), Some(name));
        }
        assert_eq!(PredictorName::parse("other"), None);
    }

    #[test]
    fn bands_go_with_the_measure_unless_they_are_set() {
        assert_eq!(config("{}").bands(), Bands::MASS);
        assert_eq!(
            config(r#"{"confidence":"similarity"}"#).bands(),
            Bands::SIMILARITY
        );
        let set = r#"{"bands":{"show_all_below":0.1,"search_prominent_below":0.2}}"#;
        assert!((config(set).bands().search_prominent_below - 0.2).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_checked() {
        let refusal = |json: &str| config(json).validate().unwrap_err().to_string();
        assert!(config("{}").validate().is_ok());
        assert!(refusal(r#"{"half_life_days":0.0}"#).contains("from 0.01 to 36500"));
        assert!(refusal(r#"{"experts":["mix"]}"#).contains("cannot be a part"));
        let bands = r#"{"bands":{"show_all_below":0.5,"search_prominent_below":0.2}}"#;
        assert!(refusal(bands).contains("show_all_below (0.5) must not be greater"));
        let bands = r#"{"bands":{"show_all_below":-1.0,"search_prominent_below":0.2}}"#;
        assert!(refusal(bands).contains("from 0 to 1"));
    }

    #[test]
    fn a_mix_is_made_of_the_experts_that_are_named() {
        assert_eq!(config("{}").experts(), ExpertSet::ALL);
        let some = config(r#"{"experts":["markov","server"]}"#).experts();
        let expected = [Expert::Markov, Expert::LastCall, Expert::Server];
        for expert in Expert::ALL {
            assert_eq!(some.contains(expert), expected.contains(&expert));
        }
    }
}
