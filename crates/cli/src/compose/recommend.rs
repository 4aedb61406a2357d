//! The recommender.

use std::sync::Arc;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_storage::Store;
use riglm_app::clock::SystemClock;
use riglm_app::tracking::Recorder;
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::{LearningIsolation, LivePredictions};
use riglm_discovery::recommend::{
    RecommendStores, RecommendationLog, Recommender, RecommenderParts, UnrecordedRecommendations,
};
use riglm_discovery::search::{Escalation, SearchParts, ToolSearch};
use riglm_discovery::weight_tuning::WeightSource;
use riglm_ports::clock::Clock;
use riglm_ports::observer::NoObserver;

use super::foundation::Foundation;
use super::learning::isolation;
use super::search::{encoders, stores_of};
use crate::config::Config;

/// Builds the recommender; `None` if it is off.
pub(super) fn recommender_from(
    base: &Foundation<'_>,
    search: &Arc<ToolSearch>,
    recorder: &Arc<Recorder>,
    weights: &Arc<WeightSource>,
    experiments: Option<&Arc<Experiments>>,
) -> anyhow::Result<Option<Arc<Recommender>>> {
    let config = base.config;
    if !config.recommend.enabled {
        return Ok(None);
    }
    let store = base.store().map(|store| store as Arc<dyn RecommendStores>);
    let parts = RecommenderParts {
        search: Arc::clone(search),
        store,
        log: Arc::clone(recorder) as Arc<dyn RecommendationLog>,
        observer: base.observer(),
        clock: Arc::clone(&base.clock),
        config: config.recommend.clone(),
        lexicon: config.lexicon()?,
        weights: Arc::clone(weights),
        experiments: experiments.cloned(),
        isolation: isolation(&config.prediction),
    };
    Ok(Some(Arc::new(Recommender::new(parts))))
}

/// Creates a search and a recommender over a store, without recording.
///
/// # Errors
///
/// Returns the error of an unusable configuration or of the store.
pub async fn recommender_over(
    config: &Config,
    store: &Arc<Store>,
) -> anyhow::Result<(Arc<ToolSearch>, Recommender)> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let search = Arc::new(ToolSearch::new(SearchParts {
        encoders: encoders(config)?,
        stores: Some(stores_of(store)),
        predictions: LivePredictions::default(),
        counter: Arc::new(O200kTokenCounter),
        clock: Arc::clone(&clock),
        rules: config.search.rules()?,
        escalation: Escalation::default(),
        experiments: None,
    }));
    let weights = Arc::new(WeightSource::new(config.recommend.weights));
    if isolation(&config.prediction) == LearningIsolation::Shared {
        weights.read(&**store).await?;
    }
    let recommender = Recommender::new(RecommenderParts {
        search: Arc::clone(&search),
        store: Some(Arc::clone(store) as Arc<dyn RecommendStores>),
        log: Arc::new(UnrecordedRecommendations::default()),
        observer: Arc::new(NoObserver),
        clock,
        config: config.recommend.clone(),
        lexicon: config.lexicon()?,
        weights,
        experiments: None,
        isolation: isolation(&config.prediction),
    });
    Ok((search, recommender))
}
