//! The plans of the A/B experiments in `recommend.experiments`, checked against the sections that
//! they refer to.

use std::collections::BTreeMap;

use riglm_adapters_prediction::PredictionConfig;
use riglm_adapters_storage::RecordingMode;
use riglm_app::selection::FilteringConfig;
use riglm_discovery::experiments::{ArmConfig, ExperimentConfig};
use riglm_discovery::learning::MAX_ARM_PREDICTORS;
use riglm_discovery::search::FusionMethod;
use riglm_domain::experiment::{ArmPlan, ExperimentPlan, FusionRule, PlanError, check_plans};
use riglm_domain::prediction::{NamePattern, PredictorSet};
use riglm_domain::selection::ListPolicyName;

use super::SearchConfig;
use super::tree::join;
use super::validation::Refusal;

const SECTION: &str = "recommend.experiments";

/// The sections that experiments refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReferencedSections<'a> {
    pub(super) search: &'a SearchConfig,
    pub(super) filtering: &'a FilteringConfig,
    pub(super) prediction: &'a PredictionConfig,
    pub(super) recording: RecordingMode,
}

/// Returns the experiments of the sections, by name.
pub(super) fn plans(
    experiments: &BTreeMap<String, ExperimentConfig>,
    around: ReferencedSections<'_>,
) -> Result<Vec<ExperimentPlan>, Refusal> {
    let all = experiments.iter();
    let all = all.map(|(name, experiment)| plan_of(experiment, name, around));
    let plans = all.collect::<Result<Vec<_>, Refusal>>()?;
    check_plans(&plans).map_err(|PlanError { key, fault }| Refusal {
        key: join(SECTION, &key),
        reason: fault.to_string(),
    })?;
    Ok(plans)
}

fn plan_of(
    config: &ExperimentConfig,
    name: &str,
    around: ReferencedSections<'_>,
) -> Result<ExperimentPlan, Refusal> {
    if config.enabled && around.recording == RecordingMode::Off {
        return Err(Refusal {
            key: format!("{SECTION}.{name}.enabled"),
            reason: "an experiment needs recorded calls, but recording.mode is off".into(),
        });
    }
    let arms = config.arms.iter().map(|(arm, config)| {
        let section = format!("{SECTION}.{name}.arms.{arm}");
        arm_plan_of(config, arm, around).map_err(|Refusal { key, reason }| Refusal {
            key: join(&section, &key),
            reason,
        })
    });
    let arms = arms.collect::<Result<Vec<_>, Refusal>>()?;
    if let Some(arm) = first_excess_arm(&arms, around.prediction.predictors()) {
        return Err(Refusal {
            key: format!("{SECTION}.{name}.arms.{arm}.predictors"),
            reason: format!(
                "the arms have more than {MAX_ARM_PREDICTORS} predictors in addition to the one \
                 of section prediction; each learns from every call"
            ),
        });
    }
    Ok(ExperimentPlan {
        name: name.into(),
        is_running: config.enabled,
        unit: config.unit,
        metric: config.metric,
        alpha: config.alpha,
        window: config.window,
        control: config.control.clone(),
        arms,
    })
}

/// Returns the plan of an arm. A refusal has the key within the arm.
fn arm_plan_of(
    config: &ArmConfig,
    arm: &str,
    around: ReferencedSections<'_>,
) -> Result<ArmPlan, Refusal> {
    let refusal = |key: &str, reason: String| Refusal {
        key: key.into(),
        reason,
    };
    let policy = config.policy;
    if let Some(reason) = policy.and_then(|policy| policy_problem(policy, around.filtering)) {
        return Err(refusal("policy", reason.into()));
    }
    let predictors = config.predictors.as_deref().map(|names| {
        let set = PredictorSet::from_names(names).map_err(|error| error.to_string());
        set.and_then(|set| predictors_problem(around).map_or(Ok(set), |reason| Err(reason.into())))
    });
    let predictors = predictors.transpose();
    Ok(ArmPlan {
        name: arm.into(),
        share: config.share,
        weights: config.weights,
        fusion: config.fusion.map(|fusion| match fusion {
            FusionMethod::Score => FusionRule::Score,
            FusionMethod::Rrf => FusionRule::ReciprocalRank(around.search.rrf.fusion()),
        }),
        policy,
        predictors: predictors.map_err(|reason| refusal("predictors", reason))?,
    })
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
    } else if !around.prediction.shared_learning {
        Some(
            "predictors need prediction.shared_learning = true: without it, each principal has its own",
        )
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
    let needs = |patterns: &[NamePattern]| patterns.is_empty();
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
