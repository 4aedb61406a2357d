//! The subsections `recommend.experiments.NAME`: A/B experiments.

use std::collections::BTreeMap;
use std::time::Duration;

use riglm_adapters_prediction::{FilteringConfig, PredictionConfig, PredictorName, predictor_set};
use riglm_adapters_storage::RecordingMode;
use riglm_discovery::learning::MAX_ARM_PREDICTORS;
use riglm_domain::experiment::{
    ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan, FusionRule, PlanError, check_plans,
};
use riglm_domain::prediction::PredictorSet;
use riglm_domain::selection::ListPolicyName;
use serde::Deserialize;

use super::WeightsConfig;
use crate::config::search::Fusion;
use crate::config::validation::Refusal;
use crate::config::{SearchConfig, tree::join};

const SECTION: &str = "recommend.experiments";

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
    pub weights: Option<WeightsConfig>,
    /// The fusion of scores in searches.
    #[serde(default)]
    pub fusion: Option<Fusion>,
    /// The list policy.
    #[serde(default)]
    pub policy: Option<ListPolicyName>,
    /// The predictors of next calls: a single one, or several for a mix.
    #[serde(default)]
    pub predictors: Option<Vec<PredictorName>>,
}

/// The sections that experiments refer to.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct ReferencedSections<'a> {
    pub(in crate::config) search: &'a SearchConfig,
    pub(in crate::config) filtering: &'a FilteringConfig,
    pub(in crate::config) prediction: &'a PredictionConfig,
    pub(in crate::config) recording: RecordingMode,
}

/// Returns the experiments of the sections, by name.
pub(in crate::config) fn plans(
    experiments: &BTreeMap<String, ExperimentConfig>,
    around: ReferencedSections<'_>,
) -> Result<Vec<ExperimentPlan>, Refusal> {
    let all = experiments.iter();
    let all = all.map(|(name, experiment)| experiment.plan(name, around));
    let plans = all.collect::<Result<Vec<_>, Refusal>>()?;
    check_plans(&plans).map_err(|PlanError { key, fault }| Refusal {
        key: join(SECTION, &key),
        reason: fault.to_string(),
    })?;
    Ok(plans)
}

impl ExperimentConfig {
    fn plan(&self, name: &str, around: ReferencedSections<'_>) -> Result<ExperimentPlan, Refusal> {
        if self.enabled && around.recording == RecordingMode::Off {
            return Err(Refusal {
                key: format!("{SECTION}.{name}.enabled"),
                reason: "an experiment needs recorded calls, but recording.mode is off".into(),
            });
        }
        let arms = self.arms.iter();
        let arms = arms.map(|(arm, config)| config.plan((name, arm), around));
        let arms = arms.collect::<Result<Vec<_>, Refusal>>()?;
        if let Some(arm) = first_excess_arm(&arms, around.prediction.predictors()) {
            return Err(Refusal {
                key: format!("{SECTION}.{name}.arms.{arm}.predictors"),
                reason: format!(
                    "the arms have more than {MAX_ARM_PREDICTORS} predictors in addition to the \
                     one of section prediction; each learns from every call"
                ),
            });
        }
        Ok(ExperimentPlan {
            name: name.into(),
            is_running: self.enabled,
            unit: self.unit,
            metric: self.metric,
            alpha: self.alpha,
            window: self.window,
            control: self.control.clone(),
            arms,
        })
    }
}

impl ArmConfig {
    fn plan(
        &self,
        (name, arm): (&str, &str),
        around: ReferencedSections<'_>,
    ) -> Result<ArmPlan, Refusal> {
        let refusal = |key: &str, reason: String| Refusal {
            key: format!("{SECTION}.{name}.arms.{arm}.{key}"),
            reason,
        };
        let weights = self.weights.map(|weights| weights.weights()).transpose();
        if let Some(reason) = self
            .policy
            .and_then(|policy| policy_problem(policy, around.filtering))
        {
            return Err(refusal("policy", reason.into()));
        }
        let predictors = self.predictors.as_deref().map(|names| {
            let set = predictor_set(names).map_err(|error| error.to_string());
            set.and_then(|set| {
                predictors_problem(around).map_or(Ok(set), |reason| Err(reason.into()))
            })
        });
        let predictors = predictors.transpose();
        Ok(ArmPlan {
            name: arm.into(),
            share: self.share,
            weights: weights.map_err(|error| refusal("weights", error.to_string()))?,
            fusion: self.fusion.map(|fusion| match fusion {
                Fusion::Score => FusionRule::Score,
                Fusion::Rrf => FusionRule::ReciprocalRank(around.search.rrf.fusion()),
            }),
            policy: self.policy,
            predictors: predictors.map_err(|reason| refusal("predictors", reason))?,
        })
    }
}

/// Returns the name of the first arm that exceeds the limit of predictors in addition to `general`.
fn first_excess_arm(arms: &[ArmPlan], general: PredictorSet) -> Option<&str> {
    let mut kept: Vec<PredictorSet> = Vec::new();
    for arm in arms {
        let other = arm.predictors.filter(|set| *set != general);
        let Some(set) = other.filter(|set| !kept.contains(set)) else {
            continue;
        };
        if kept.len() == MAX_ARM_PREDICTORS {
            return Some(&arm.name);
        }
        kept.push(set);
    }
    None
}

/// Returns the reason if predictors have no effect.
fn predictors_problem(around: ReferencedSections<'_>) -> Option<&'static str> {
    let is_searched = around.search.enabled && around.filtering.may_hide();
    if !around.prediction.enabled {
        Some("predictors need prediction.enabled = true")
    } else if !around.filtering.uses_predictions() && !is_searched {
        Some(
            "predictors need filtering.strategy = \"prediction\", or search.enabled = true with \
             another strategy that hides tools",
        )
    } else {
        None
    }
}

/// Returns the reason if lists cannot have a policy.
fn policy_problem(policy: ListPolicyName, filtering: &FilteringConfig) -> Option<&'static str> {
    let needs = |patterns: &[String]| patterns.is_empty();
    if !filtering.uses_predictions() {
        Some("a policy needs filtering.strategy = \"prediction\"")
    } else if policy == ListPolicyName::Allowlist && needs(&filtering.allow) {
        Some("this policy needs at least one pattern in filtering.allow")
    } else if policy == ListPolicyName::Denylist && needs(&filtering.deny) {
        Some("this policy needs at least one pattern in filtering.deny")
    } else {
        None
    }
}
