//! Driver of the replay: runs predictors and list policies over a stream of sessions.

use std::sync::Arc;

use crate::simulation::{
    BestFixed, CallForecasts, ListMetrics, ListSimulation, SimulatedOptions, SimulatedPolicy,
    SimulatedSession, fixed_sizes,
};
use crate::{CatalogForecast, ColdStarts, PredictionMetrics};
use riglm_domain::selection::{ListBounds, TopicWords};

use super::folds::{N_FOLDS, fold_of};
use super::forecaster::{CallScores, Forecaster, PlayOptions, ReplayedPredictor, play};
use super::list_catalog::ListCatalog;
use super::replay_texts::ReplayTexts;
use super::session::{ReplayCatalog, ReplaySession, SessionSource};

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The predictors to evaluate.
    pub predictors: Vec<ReplayedPredictor>,
    /// The list policies to evaluate, on the predictions of the first predictor.
    pub policies: Vec<SimulatedPolicy>,
    /// Options of the simulated lists, with their prices.
    pub lists: SimulatedOptions,
    /// Vocabulary for recognizing the topic of a session.
    pub words: TopicWords,
    /// Whether predictors see queries and turns.
    pub with_query: bool,
    /// Whether the task of a predicted session is held out (cross-validation): each fifth of the
    /// tasks is predicted from the sessions of all other tasks. Thresholds of policies and mixing
    /// weights continue to adapt.
    pub unseen_tasks: bool,
}

/// Results of a replay.
#[derive(Debug)]
pub struct ReplayReport {
    /// The number of predicted sessions.
    pub n_sessions: u64,
    /// The number of their calls.
    pub n_calls: u64,
    /// The number of calls that are the first of their tool in their session.
    pub n_first_uses: u64,
    /// Results of the predictors, in the order of the options.
    pub predictors: Vec<PredictorReport>,
    /// Results of the policies, in the order of the options.
    pub policies: Vec<(SimulatedPolicy, ListMetrics)>,
    /// Result of the default policy of the proxy.
    pub live: ListMetrics,
    /// The fixed list size with the lowest cost in hindsight, among the sizes with the same search
    /// answers as the proxy. `None` without calls.
    pub best_fixed: Option<BestFixed>,
}

impl ReplayReport {
    /// Returns the relative extra cost of the default policy over the best fixed list size, or
    /// `None` without calls.
    #[must_use]
    pub fn regret(&self) -> Option<f64> {
        let best = self.best_fixed?.weighed_cost;
        (best > 0.0).then(|| self.live.weighed_cost / best - 1.0)
    }
}

/// Results of a predictor.
#[derive(Debug)]
pub struct PredictorReport {
    /// Name of the predictor.
    pub name: &'static str,
    /// Metrics.
    pub metrics: PredictionMetrics,
    /// Cold starts: predictions that are not sufficient for filtering.
    pub cold_starts: ColdStarts,
}

/// Replays all sessions. `texts` are those of the catalog and of the sessions. `progress` gets the
/// present step and the number of finished sessions.
///
/// # Errors
///
/// Returns the error of the source.
pub async fn replay<S: SessionSource>(
    catalog: &ReplayCatalog,
    texts: &Arc<ReplayTexts>,
    source: &mut S,
    options: &ReplayOptions,
    progress: &(dyn Fn(&str, u64) + Sync),
) -> Result<ReplayReport, S::Error> {
    let mut measured = Measurements::new(catalog, options);
    if options.unseen_tasks {
        let mut folds = [(); N_FOLDS].map(|()| Ensemble::without_training(catalog, texts, options));
        let mut n_learned = 0;
        while let Some(session) = source.next().await? {
            let own = fold_of(&session);
            for (fold, ensemble) in folds.iter_mut().enumerate() {
                if fold != own {
                    ensemble.play(&session, true, None);
                }
            }
            n_learned += 1;
            progress("learned", n_learned);
        }
        source.restart().await?;
        while let Some(session) = source.next().await? {
            let ensemble = &mut folds[fold_of(&session)];
            ensemble.play(&session, false, Some(&mut measured));
            progress("predicted", measured.n_sessions);
        }
    } else {
        let mut ensemble = Ensemble::without_training(catalog, texts, options);
        while let Some(session) = source.next().await? {
            ensemble.play(&session, true, Some(&mut measured));
            progress("predicted", measured.n_sessions);
        }
    }
    Ok(measured.report())
}

/// All predictors, trained on the same sessions.
struct Ensemble {
    forecasters: Vec<Box<dyn Forecaster>>,
    with_query: bool,
    scores: Vec<f64>,
}

impl Ensemble {
    fn without_training(
        catalog: &ReplayCatalog,
        texts: &Arc<ReplayTexts>,
        options: &ReplayOptions,
    ) -> Self {
        let predictors = options.predictors.iter();
        Self {
            forecasters: predictors
                .map(|one| one.new_forecaster(catalog, texts))
                .collect(),
            with_query: options.with_query,
            scores: vec![0.0; catalog.tools.len()],
        }
    }

    fn play(
        &mut self,
        session: &ReplaySession,
        learns: bool,
        mut measured: Option<&mut Measurements<'_>>,
    ) {
        if session.calls.is_empty() {
            return;
        }
        if let Some(measured) = &mut measured {
            measured.begin_session(session);
        }
        for (predictor, forecaster) in self.forecasters.iter_mut().enumerate() {
            let measure = |position: usize, scores: &CallScores<'_>| {
                if let Some(measured) = &mut measured {
                    measured.add(predictor, session, position, scores);
                }
            };
            let options = PlayOptions {
                with_query: self.with_query,
                learns,
                // All policies see the predictions of the first predictor only.
                for_lists: predictor == 0,
            };
            play(
                &mut **forecaster,
                session,
                options,
                &mut self.scores,
                measure,
            );
        }
    }
}

/// Running results of all predictors and policies.
struct Measurements<'a> {
    options: &'a ReplayOptions,
    metrics: Vec<(PredictionMetrics, ColdStarts)>,
    catalog: ListCatalog<'a>,
    policies: Vec<ListSimulation>,
    live: ListSimulation,
    /// Simulations of lists with a fixed size.
    fixed: Vec<(usize, ListSimulation)>,
    session: Option<SimulatedSession>,
    forecast: CatalogForecast,
    at_start: CatalogForecast,
    after_search: CatalogForecast,
    /// For each call of the session, whether it is the first of its tool.
    first_uses: Vec<bool>,
    is_used: Vec<bool>,
    n_sessions: u64,
    n_calls: u64,
    n_first_uses: u64,
}

impl<'a> Measurements<'a> {
    fn new(catalog: &'a ReplayCatalog, options: &'a ReplayOptions) -> Self {
        let n_tools = catalog.tools.len();
        let tokens_per_tool = options.lists.prices.model.tokens_per_tool;
        let catalog = ListCatalog::new(catalog, tokens_per_tool, &options.words);
        let lists = &options.lists;
        let simulated = |policy: SimulatedPolicy, lists: &SimulatedOptions| {
            ListSimulation::new(policy, catalog.simulation_catalog(), lists)
        };
        let of_length = |max_tools: usize| {
            let bounds = ListBounds {
                min_tools: lists.bounds.min_tools.min(max_tools),
                max_tools,
                ..lists.bounds
            };
            let lists = SimulatedOptions { bounds, ..*lists };
            (max_tools, simulated(SimulatedPolicy::StaticInline, &lists))
        };
        let policies = options.policies.iter();
        let sizes = fixed_sizes(n_tools, lists.bounds.max_tools).into_iter();
        Self {
            options,
            metrics: vec![Default::default(); options.predictors.len()],
            policies: policies.map(|policy| simulated(*policy, lists)).collect(),
            live: simulated(SimulatedPolicy::Live, lists),
            fixed: sizes.map(of_length).collect(),
            catalog,
            session: None,
            forecast: CatalogForecast::default(),
            at_start: CatalogForecast::default(),
            after_search: CatalogForecast::default(),
            first_uses: Vec::new(),
            is_used: vec![false; n_tools],
            n_sessions: 0,
            n_calls: 0,
            n_first_uses: 0,
        }
    }

    fn begin_session(&mut self, session: &ReplaySession) {
        self.first_uses.clear();
        self.is_used.fill(false);
        for call in &session.calls {
            let used = self.is_used.get_mut(call.tool);
            let is_first = used.is_some_and(|used| !std::mem::replace(used, true));
            self.first_uses.push(is_first);
            self.n_first_uses += u64::from(is_first);
        }
        self.session = Some(self.catalog.session(session, self.options.with_query));
        self.n_sessions += 1;
        self.n_calls += session.calls.len() as u64;
    }

    fn add(
        &mut self,
        predictor: usize,
        session: &ReplaySession,
        position: usize,
        scores: &CallScores<'_>,
    ) {
        self.forecast.set_scores(scores.next);
        let called = session.calls[position].tool;
        let is_first_use = self.first_uses[position];
        let (metrics, cold_starts) = &mut self.metrics[predictor];
        metrics.add(&self.forecast, called, is_first_use);
        cold_starts.add(&self.forecast, position == 0);
        if predictor == 0 {
            let begins = self.session.as_ref().filter(|_| position == 0);
            self.at_start
                .set_scores(scores.start.unwrap_or(scores.next));
            (self.after_search).set_scores(scores.found.unwrap_or(scores.next));
            let forecasts = CallForecasts {
                next: &self.forecast,
                at_start: &self.at_start,
                after_search: &self.after_search,
            };
            let fixed = self.fixed.iter_mut().map(|(_, simulation)| simulation);
            let all = self.policies.iter_mut().chain(fixed);
            for policy in all.chain([&mut self.live]) {
                policy.add_call(&forecasts, called, begins);
            }
        }
    }

    fn report(self) -> ReplayReport {
        let predictors = self.options.predictors.iter().zip(self.metrics);
        let policies = self.options.policies.iter().zip(&self.policies);
        let fixed = self.fixed.iter().map(|(max_tools, simulation)| BestFixed {
            max_tools: *max_tools,
            weighed_cost: simulation.metrics().weighed_cost,
        });
        let best = fixed.min_by(|a, b| a.weighed_cost.total_cmp(&b.weighed_cost));
        ReplayReport {
            live: self.live.metrics(),
            best_fixed: best.filter(|_| self.n_calls > 0),
            n_sessions: self.n_sessions,
            n_calls: self.n_calls,
            n_first_uses: self.n_first_uses,
            predictors: predictors
                .map(|(predictor, (metrics, cold_starts))| PredictorReport {
                    name: predictor.name(),
                    metrics,
                    cold_starts,
                })
                .collect(),
            policies: policies
                .map(|(policy, simulation)| (*policy, simulation.metrics()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
