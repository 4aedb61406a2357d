//! Learning from recorded calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use riglm_adapters_http::{Learning as ControlLearning, LearningCondition, LearningHealth};
use riglm_adapters_prediction::external::{ExternalConfig, external_predictor_from};
use riglm_adapters_prediction::{PredictionConfig, predictor_from};
use riglm_adapters_storage::Store;
use riglm_app::clock::SystemClock;
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::{
    ArmPredictor, ExternalAdviser, LearningIsolation, LearningStores, LearningTask,
    LivePredictions, NextTools, NextToolsOptions, PrincipalPredictors,
};
use riglm_domain::privacy::principal::Principal;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::extensions::{Extensions, MakeLearner, PredictorFactory};
use super::foundation::Foundation;
use crate::config::Config;

/// The interval for checking whether a new predictor has learned the recorded calls.
const READY_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A predictor, and the task that trains it.
pub(super) type BuiltPredictor = (Arc<NextTools>, LearningTask);

/// Builds predictors from the configuration and trains the one in use. A change of the configuration
/// replaces it while the proxy runs.
pub(super) struct PredictorRunner {
    extensions: Extensions,
    store: Option<Arc<Store>>,
    experiments: Option<Arc<Experiments>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    predictions: LivePredictions,
    trainings: Mutex<Trainings>,
}

/// The predictors in training: the one in use, and one that is to replace it.
#[derive(Default)]
struct Trainings {
    in_use: Option<Training>,
    next: Option<Training>,
}

struct Training {
    next_tools: Arc<NextTools>,
    stop: CancellationToken,
}

impl Trainings {
    /// Ends all trainings.
    fn end(&mut self) {
        for training in [self.in_use.take(), self.next.take()].into_iter().flatten() {
            training.stop.cancel();
        }
    }
}

impl PredictorRunner {
    /// Creates the runner of a proxy. Nothing is predicted yet.
    pub(super) fn new(base: &Foundation<'_>, experiments: Option<&Arc<Experiments>>) -> Arc<Self> {
        Arc::new(Self {
            extensions: base.extensions.clone(),
            store: base.store(),
            experiments: experiments.cloned(),
            stop: base.stop.clone(),
            tasks: base.tasks.clone(),
            predictions: LivePredictions::default(),
            trainings: Mutex::default(),
        })
    }

    /// Returns the predictions in use, now and after changes of the configuration.
    pub(super) fn predictions(&self) -> &LivePredictions {
        &self.predictions
    }

    /// Builds the predictor of a configuration; `None` if prediction is off or nothing is stored.
    ///
    /// # Errors
    ///
    /// Returns the error of an external predictor that cannot be used.
    pub(super) fn build(&self, all: &Config) -> anyhow::Result<Option<BuiltPredictor>> {
        let config = &all.prediction;
        let is_external =
            self.extensions.external_predictor.is_some() || config.predictor.external().is_some();
        if is_external && !config.shared_learning {
            anyhow::bail!(
                "prediction.shared_learning = false cannot be combined with an external predictor, \
                 which learns from the calls of all principals"
            );
        }
        let Some(store) = self.store.clone().filter(|_| config.enabled) else {
            return Ok(None);
        };
        let experiments = self.experiments.as_ref();
        let options = next_tools_options(config);
        let PredictorFactory { model, make } = predictor_factory(config, &self.extensions);
        let of_principals = principal_predictors(all, &model, &make);
        let next_tools = NextTools::new(make(), options)
            .with_principals(of_principals)
            .with_arms(arm_predictors(config, experiments), experiments.cloned())
            .with_external(adviser(config, &self.extensions)?);
        let next_tools = match self.predictions.get() {
            Some(before) => next_tools.with_sessions_of(&before),
            None => next_tools,
        };
        let next_tools = Arc::new(next_tools);
        let stores = LearningStores::of(&store);
        let clock = self.extensions.clock.clone();
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let make = move || make();
        let task = LearningTask::new(stores, clock, Arc::clone(&next_tools), model, make);
        let task = match &self.extensions.learning_turns {
            Some(turns) => task.with_turns(Arc::clone(turns)),
            None => task,
        };
        Ok(Some((next_tools, task)))
    }

    /// Replaces the predictor in use; `None` switches predictions off. An earlier predictor stays in
    /// use until the new one has learned the recorded calls.
    pub(super) fn replace(self: &Arc<Self>, built: Option<BuiltPredictor>) {
        let mut trainings = self.trainings.lock();
        let Some((next_tools, task)) = built else {
            trainings.end();
            self.predictions.set(None);
            return;
        };
        let stop = self.stop.child_token();
        self.tasks.spawn(task.run(stop.clone()));
        let training = Training {
            next_tools: Arc::clone(&next_tools),
            stop: stop.clone(),
        };
        if let Some(unused) = trainings.next.take() {
            unused.stop.cancel();
        }
        if trainings.in_use.is_none() {
            trainings.in_use = Some(training);
            self.predictions.set(Some(next_tools));
            return;
        }
        trainings.next = Some(training);
        let runner = Arc::clone(self);
        self.tasks.spawn(stop.run_until_cancelled_owned(async move {
            while !next_tools.is_ready() {
                sleep(READY_CHECK_INTERVAL).await;
            }
            runner.put_in_use(&next_tools);
        }));
    }

    /// Uses a predictor that has learned, unless another change has replaced it meanwhile.
    fn put_in_use(&self, next_tools: &Arc<NextTools>) {
        let mut trainings = self.trainings.lock();
        let is_next = |next: &mut Training| Arc::ptr_eq(&next.next_tools, next_tools);
        let Some(next) = trainings.next.take_if(is_next) else {
            return;
        };
        if let Some(before) = trainings.in_use.replace(next) {
            before.stop.cancel();
        }
        self.predictions.set(Some(Arc::clone(next_tools)));
        tracing::info!("the new predictor is in use");
    }

    /// Replaces the options for confidence; returns whether they changed for the predictor in use.
    pub(super) fn set_options(&self, config: &PredictionConfig) -> bool {
        let options = next_tools_options(config);
        let trainings = self.trainings.lock();
        if let Some(next) = &trainings.next {
            next.next_tools.set_options(options);
        }
        let in_use = trainings.in_use.as_ref();
        in_use.is_some_and(|in_use| in_use.next_tools.set_options(options))
    }
}

impl fmt::Debug for PredictorRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredictorRunner")
            .field("predictions", &self.predictions)
            .finish_non_exhaustive()
    }
}

/// Returns whether two configurations need different predictors. The options for confidence may
/// differ.
pub(super) fn needs_other_predictor(before: &PredictionConfig, now: &PredictionConfig) -> bool {
    let with_options_of_now = PredictionConfig {
        confidence: now.confidence,
        bands: now.bands,
        ..before.clone()
    };
    with_options_of_now != *now
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

fn next_tools_options(config: &PredictionConfig) -> NextToolsOptions {
    NextToolsOptions {
        measure: config.confidence,
        bands: config.bands(),
        shows_all: config.shows_all(),
    }
}

/// Returns the source of the health of the learning.
pub(super) fn learning_state(predictions: LivePredictions) -> ControlLearning {
    Arc::new(move || match predictions.get() {
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
