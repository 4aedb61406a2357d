//! The configuration subsections `recommend.experiments.NAME`.

use std::collections::BTreeMap;
use std::time::Duration;

use riglm_domain::experiment::{AssignmentUnit, ExperimentMetric};
use riglm_domain::prediction::PredictorName;
use riglm_domain::recommendation::FactorWeights;
use riglm_domain::selection::ListPolicyName;
use serde::Deserialize;

use crate::search::FusionMethod;

/// The subsection `recommend.experiments.NAME`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExperimentConfig {
    /// Whether the experiment runs.
    pub enabled: bool,
    /// The unit of assignment to an arm.
    pub unit: AssignmentUnit,
    /// The metric that is compared.
    pub metric: ExperimentMetric,
    /// The significance level: the probability of a verdict `better` or `worse` although the arms
    /// do not differ.
    pub alpha: f64,
    /// The observation window of a unit.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// The arm that the others are compared with.
    pub control: String,
    /// The arms by name.
    pub arms: BTreeMap<String, ArmConfig>,
}

impl Default for ExperimentConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            unit: AssignmentUnit::default(),
            metric: ExperimentMetric::default(),
            alpha: 0.05,
            window: Duration::from_hours(24),
            control: "control".into(),
            arms: BTreeMap::new(),
        }
    }
}

/// The subsection `recommend.experiments.NAME.arms.NAME`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmConfig {
    /// The share of all units that belong to the arm.
    pub share: f64,
    /// The weights of the factors of a recommendation.
    #[serde(default)]
    pub weights: Option<FactorWeights>,
    /// The fusion of scores in searches.
    #[serde(default)]
    pub fusion: Option<FusionMethod>,
    /// The list policy.
    #[serde(default)]
    pub policy: Option<ListPolicyName>,
    /// The predictors of next calls: a single one, or several for a mix.
    #[serde(default)]
    pub predictors: Option<Vec<PredictorName>>,
}
