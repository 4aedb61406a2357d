//! The configuration section `prediction`.

use riglm_domain::prediction::{
    ConfidenceBands, ConfidenceMeasure, Expert, ExpertSet, PredictionMethod, PredictorName,
    PredictorSet,
};
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

use crate::external::{ExternalRole, PredictorChoice};

/// Thresholds between the bands of confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_order"))]
pub struct BandsConfig {
    /// Every tool is shown below this confidence. Without it, only the costs of lists decide.
    #[validate(range(min = 0.0, max = 1.0, message = "expected a number from 0 to 1"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show_all_below: Option<f64>,
    /// The search tool comes first below this confidence.
    #[validate(range(min = 0.0, max = 1.0, message = "expected a number from 0 to 1"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_prominent_below: Option<f64>,
}

/// The configuration section `prediction`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct PredictionConfig {
    /// Whether recorded calls are learned.
    pub enabled: bool,
    /// Whether what is learned from one principal helps the others.
    pub shared_learning: bool,
    /// Method of predicting the next tool: a name, or a table of an external predictor.
    pub predictor: PredictorChoice,
    /// Parts of `mix`. Empty means all.
    #[validate(custom(function = "check_experts"))]
    pub experts: Vec<PredictorName>,
    /// Half-life of learned data in days.
    #[validate(range(
        min = 0.01,
        max = 36_500.0,
        message = "expected a number from 0.01 to 36500"
    ))]
    pub half_life_days: f64,
    /// Measure of confidence in a prediction.
    pub confidence: ConfidenceMeasure,
    /// Bands of confidence. The default depends on the measure: 0.6 and 0.9 for the mass, 0.3 and
    /// 0.7 for the similarity.
    #[validate(nested)]
    pub bands: Option<BandsConfig>,
}

impl PredictionConfig {
    /// Returns the experts in `mix`.
    #[must_use]
    pub fn experts(&self) -> ExpertSet {
        if self.experts.is_empty() {
            return ExpertSet::ALL;
        }
        let named = ExpertSet::from_names(&self.experts);
        if self.predictor.external().is_some() {
            named.with(Expert::External)
        } else {
            named
        }
    }

    /// Returns the method of the predictor.
    #[must_use]
    pub fn method(&self) -> PredictionMethod {
        match &self.predictor {
            PredictorChoice::Named(name) => name.method(),
            PredictorChoice::External(external) => match external.role {
                ExternalRole::Expert => PredictionMethod::Mix,
                ExternalRole::Alone => PredictionMethod::Advice,
            },
        }
    }

    /// Returns the predictor set of the section.
    #[must_use]
    pub fn predictors(&self) -> PredictorSet {
        PredictorSet::new(self.method(), self.experts())
    }

    /// Returns the section with another predictor set, and with the other values unchanged.
    #[must_use]
    pub fn with_predictors(&self, set: PredictorSet) -> Self {
        let mut names = PredictorName::ALL.iter().copied();
        let predictor = names.find(|name| name.method() == set.method());
        let is_part = |name: &PredictorName| {
            let expert = name.expert();
            expert.is_some_and(|expert| set.experts().contains(expert))
        };
        let is_whole = set.experts() == ExpertSet::ALL;
        let parts = PredictorName::ALL.iter().copied().filter(is_part);
        Self {
            predictor: PredictorChoice::Named(predictor.unwrap_or_default()),
            experts: parts.filter(|_| !is_whole).collect(),
            ..self.clone()
        }
    }

    /// Returns the name under which learned data are stored. Data that were learned with other
    /// settings have another name and are not used.
    #[must_use]
    pub fn model(&self) -> String {
        let predictor = match &self.predictor {
            PredictorChoice::Named(name) => name.to_string(),
            PredictorChoice::External(external) => external.id(),
        };
        let experts = self.experts.iter().map(|expert| expert.as_str());
        format!(
            "next tool: {predictor} {:?}, half-life {} days",
            experts.collect::<Vec<_>>(),
            self.half_life_days
        )
    }

    /// Returns the configured bands.
    #[must_use]
    pub fn bands(&self) -> ConfidenceBands {
        let usual = self.confidence.bands();
        let asked = self.bands.unwrap_or_default();
        let prominent = asked.search_prominent_below;
        let prominent = prominent.unwrap_or(usual.search_prominent_below);
        let show_all = asked.show_all_below;
        ConfidenceBands {
            // If only one threshold is configured, the default of the other must not cross it.
            show_all_below: show_all.unwrap_or(usual.show_all_below.min(prominent)),
            search_prominent_below: prominent.max(show_all.unwrap_or(0.0)),
        }
    }

    /// Returns whether every tool is shown in the lowest band.
    #[must_use]
    pub fn shows_all(&self) -> bool {
        self.bands
            .is_some_and(|bands| bands.show_all_below.is_some())
    }
}

impl Default for PredictionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            shared_learning: true,
            predictor: PredictorChoice::default(),
            experts: Vec::new(),
            half_life_days: 30.0,
            confidence: ConfidenceMeasure::Mass,
            bands: None,
        }
    }
}

fn check_order(bands: &BandsConfig) -> Result<(), ValidationError> {
    let (Some(show_all), Some(prominent)) = (bands.show_all_below, bands.search_prominent_below)
    else {
        return Ok(());
    };
    if show_all <= prominent {
        return Ok(());
    }
    let text = format!(
        "show_all_below ({show_all}) must not be greater than search_prominent_below ({prominent})"
    );
    Err(ValidationError::new("show_all_below").with_message(text.into()))
}

fn check_experts(experts: &[PredictorName]) -> Result<(), ValidationError> {
    match experts.iter().find(|name| name.expert().is_none()) {
        None => Ok(()),
        Some(name) => Err(ValidationError::new("experts").with_message(
            format!("{name} combines several predictors, so it cannot be an expert").into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::prediction::{Expert, PredictorSetError};

    use super::*;

    fn config(json: &str) -> PredictionConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn default_bands_follow_the_confidence_measure() {
        assert_eq!(config("{}").bands(), ConfidenceBands::MASS);
        assert_eq!(
            config(r#"{"confidence":"similarity"}"#).bands(),
            ConfidenceBands::SIMILARITY
        );
        let set = r#"{"bands":{"show_all_below":0.1,"search_prominent_below":0.2}}"#;
        assert!((config(set).bands().search_prominent_below - 0.2).abs() < 1e-12);
    }

    #[test]
    fn an_invalid_configuration_is_refused() {
        let refusal = |json: &str| config(json).validate().unwrap_err().to_string();
        assert!(config("{}").validate().is_ok());
        assert!(refusal(r#"{"half_life_days":0.0}"#).contains("from 0.01 to 36500"));
        assert!(refusal(r#"{"experts":["mix"]}"#).contains("cannot be an expert"));
        let bands = r#"{"bands":{"show_all_below":0.5,"search_prominent_below":0.2}}"#;
        assert!(refusal(bands).contains("show_all_below (0.5) must not be greater"));
        let bands = r#"{"bands":{"show_all_below":-1.0,"search_prominent_below":0.2}}"#;
        assert!(refusal(bands).contains("from 0 to 1"));
    }

    #[test]
    fn a_single_name_is_a_predictor_and_several_a_mix() {
        use PredictorName::{Cooccurrence, Frequency, Markov, Mix, Server};
        let section = PredictionConfig::default();
        for &name in PredictorName::ALL {
            let set = PredictorSet::from_names(&[name]).unwrap();
            let of_arm = section.with_predictors(set);
            assert_eq!(of_arm.predictor, PredictorChoice::Named(name));
            assert!(of_arm.experts.is_empty());
            assert_eq!(of_arm.predictors(), set);
        }
        assert_eq!(PredictorSet::from_names(&[Mix]), Ok(section.predictors()));
        let mixed = PredictorSet::from_names(&[Server, Markov]).unwrap();
        assert_eq!(PredictorSet::from_names(&[Markov, Server]), Ok(mixed));
        let of_arm = section.with_predictors(mixed);
        assert_eq!(
            (of_arm.predictor.clone(), &*of_arm.experts),
            (PredictorChoice::Named(Mix), &[Markov, Server][..])
        );
        assert_eq!(of_arm.predictors(), mixed);
        assert_eq!(PredictorSet::from_names(&[]), Err(PredictorSetError::Empty));
        let twice = PredictorSet::from_names(&[Server, Markov, Server]);
        assert_eq!(twice, Err(PredictorSetError::Twice(Server)));
        for whole in [Mix, Cooccurrence] {
            let refused = PredictorSet::from_names(&[Frequency, whole]);
            assert_eq!(refused, Err(PredictorSetError::NoPart(whole)));
        }
        // The names of all parts are the whole mix.
        let parts = PredictorName::ALL.iter().copied();
        let parts: Vec<_> = parts.filter(|name| name.expert().is_some()).collect();
        assert_eq!(PredictorSet::from_names(&parts), Ok(section.predictors()));
    }

    #[test]
    fn different_learning_settings_have_different_model_names() {
        let models: Vec<String> = [
            "{}",
            r#"{"half_life_days":7}"#,
            r#"{"predictor":"markov"}"#,
            r#"{"experts":["markov","server"]}"#,
            r#"{"experts":["markov"]}"#,
            r#"{"predictor":{"command":["a"]}}"#,
            r#"{"predictor":{"command":["b"]}}"#,
            r#"{"predictor":{"command":["b"],"role":"alone"}}"#,
        ]
        .map(|json| config(json).model())
        .to_vec();
        for (at, model) in models.iter().enumerate() {
            assert!(!models[..at].contains(model), "{model}");
        }
        // The measure of confidence has no influence on learned data.
        assert_eq!(config(r#"{"confidence":"similarity"}"#).model(), models[0]);
    }

    #[test]
    fn a_mix_has_the_configured_experts() {
        assert_eq!(config("{}").experts(), ExpertSet::ALL);
        let some = config(r#"{"experts":["markov","server"]}"#).experts();
        let expected = [Expert::Markov, Expert::LastCall, Expert::Server];
        for &expert in Expert::ALL {
            assert_eq!(some.contains(expert), expected.contains(&expert));
        }
    }
}
