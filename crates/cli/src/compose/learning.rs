//! Learning from recorded calls.

use std::sync::Arc;

use anyhow::Context as _;
use riglm_adapters_http::{Learning as ControlLearning, LearningCondition, LearningHealth};
use riglm_adapters_prediction::external::{ExternalConfig, external_predictor_from};
use riglm_adapters_prediction::{PredictionConfig, predictor_from};
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::{
    ArmPredictor, ExternalAdviser, LearningIsolation, LearningStores, LearningTask, NextTools,
    NextToolsOptions, PrincipalPredictors,
};
use riglm_domain::privacy::principal::Principal;

use super::extensions::{Extensions, MakeLearner, PredictorFactory};
use super::foundation::Foundation;
use crate::config::Config;

/// Returns the predictor, and the task that trains it; `None` if prediction is off or nothing is
/// stored.
///
/// # Errors
///
/// Returns the error of an external predictor that cannot be used.
pub(super) fn learning_from(
    base: &Foundation<'_>,
    experiments: Option<&Arc<Experiments>>,
) -> anyhow::Result<Option<(Arc<NextTools>, LearningTask)>> {
    let config = &base.config.prediction;
    if base.extensions.external_predictor.is_some() && !config.shared_learning {
        anyhow::bail!(
            "prediction.shared_learning = false cannot be combined with an external predictor, \
             which learns from the calls of all principals"
        );
    }
    let Some(store) = base.store().filter(|_| config.enabled) else {
        return Ok(None);
    };
    let options = next_tools_options(config);
    let PredictorFactory { model, make } = predictor_factory(config, &base.extensions);
    let of_principals = principal_predictors(base.config, &model, &make);
    let next_tools = NextTools::new(make(), options)
        .with_principals(of_principals)
        .with_arms(arm_predictors(config, experiments), experiments.cloned())
        .with_external(adviser(config, &base.extensions)?);
    let next_tools = Arc::new(next_tools);
    let stores = LearningStores {
        calls: Arc::clone(&store) as _,
        contexts: Arc::clone(&store) as _,
        tools: Arc::clone(&store) as _,
        activities: Arc::clone(&store) as _,
        snapshots: Arc::clone(&store) as _,
        changes: store,
    };
    let clock = Arc::clone(&base.clock);
    let make = move || make();
    let task = LearningTask::new(stores, clock, Arc::clone(&next_tools), model, make);
    Ok(Some((next_tools, task)))
}

/// Returns the isolation of principals that the section configures.
pub(super) fn isolation(config: &PredictionConfig) -> LearningIsolation {
    if config.shared_learning {
        LearningIsolation::Shared
    } else {
        LearningIsolation::PerPrincipal
    }
}

/// Returns the factory of the predictors of principals; `None` if they share one. The principals
/// with a key are expected, or the only one if there are no keys.
fn principal_predictors(
    config: &Config,
    model: &str,
    make: &Arc<MakeLearner>,
) -> Option<PrincipalPredictors> {
    if isolation(&config.prediction) == LearningIsolation::Shared {
        return None;
    }
    let mut expected: Vec<Principal> = config.keys.principals().cloned().collect();
    if expected.is_empty() {
        expected.push(Principal::local());
    }
    Some(PrincipalPredictors {
        model: model.to_owned(),
        make: Arc::clone(make),
        expected,
    })
}

/// Returns the factory of the default predictor.
fn predictor_factory(config: &PredictionConfig, extensions: &Extensions) -> PredictorFactory {
    if let Some(factory) = &extensions.predictor {
        return factory.clone();
    }
    let external = extensions.external_predictor.as_ref();
    let external = external.map(|external| format!(", external {}", external.name()));
    let model = format!("{}{}", config.model(), external.unwrap_or_default());
    let config = config.clone();
    PredictorFactory {
        model,
        make: Arc::new(move || predictor_from(&config)),
    }
}

/// Returns the external predictor: that of the extensions, else the configured one.
fn adviser(
    config: &PredictionConfig,
    extensions: &Extensions,
) -> anyhow::Result<Option<ExternalAdviser>> {
    let configured = config.predictor.external();
    let predictor = match (&extensions.external_predictor, configured) {
        (Some(given), _) => Arc::clone(given),
        (None, Some(external)) => {
            external_predictor_from(external).context("prediction.predictor")?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(ExternalAdviser {
        predictor,
        deadline: configured.map_or(ExternalConfig::DEADLINE, |external| external.deadline),
        sends_text: configured.is_some_and(|external| external.send_text),
    }))
}

/// Returns the predictors of experiment arms that differ from that of the configuration.
fn arm_predictors(
    config: &PredictionConfig,
    experiments: Option<&Arc<Experiments>>,
) -> Vec<ArmPredictor> {
    let named = experiments.map_or_else(Vec::new, |experiments| experiments.predictors());
    let others = named.into_iter().filter(|set| *set != config.predictors());
    let predictor = |set| {
        let of_arm = config.with_predictors(set);
        ArmPredictor {
            set,
            model: of_arm.model(),
            make: Arc::new(move || predictor_from(&of_arm)),
        }
    };
    others.map(predictor).collect()
}

/// Returns the options for the confidence in predictions.
pub(super) fn next_tools_options(config: &PredictionConfig) -> NextToolsOptions {
    NextToolsOptions {
        measure: config.confidence,
        bands: config.bands(),
        shows_all: config.shows_all(),
    }
}

/// Returns the source of the health of the learning.
pub(super) fn learning_state(next_tools: Option<Arc<NextTools>>) -> ControlLearning {
    Arc::new(move || match &next_tools {
        None => LearningHealth {
            condition: LearningCondition::Off,
            learned_calls: 0,
            failures: 0,
        },
        Some(next_tools) => LearningHealth {
            condition: if next_tools.is_delayed() {
                LearningCondition::Delayed
            } else if next_tools.is_ready() {
                LearningCondition::Ok
            } else {
                LearningCondition::Starting
            },
            learned_calls: next_tools.n_learned(),
            failures: next_tools.n_failed(),
        },
    })
}
