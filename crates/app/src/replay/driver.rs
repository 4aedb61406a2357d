//! Predictors and policies over a stream of sessions.

use riglm_domain::evaluation::replay::{
    BestFixed, ListMetrics, ListSimulation, SimulatedOptions, SimulatedPolicy, SimulatedSession,
    fixed_sizes,
};
use riglm_domain::evaluation::{ColdStarts, Forecast, PredictionMetrics};
use riglm_domain::listing::{ListBounds, TopicWords};

use super::folds::{N_FOLDS, fold_of};
use super::forecaster::{Forecaster, ReplayedPredictor, play};
use super::listed::ListedCatalog;
use super::session::{ReplayCatalog, ReplaySession, SessionSource};

/// How sessions are replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The predictors that are measured.
    pub predictors: Vec<ReplayedPredictor>,
    /// The policies that make lists of what the first predictor predicts.
    pub policies: Vec<SimulatedPolicy>,
    /// Options of the lists that are made of predictions, with their prices.
    pub lists: SimulatedOptions,
    /// By which words it is told what sessions say that they do.
    pub words: TopicWords,
    /// Whether predictors see what was asked for.
    pub with_query: bool,
    /// Whether nothing is known of the task of a session that is predicted: each fifth of the
    /// tasks is predicted by what was learned from the sessions of all others. What is steered by
    /// what happened, thresholds of policies and mixing weights, goes on adapting.
    pub unseen_tasks: bool,
}

/// What was measured.
#[derive(Debug)]
pub struct ReplayReport {
    /// How many sessions were predicted.
    pub n_sessions: u64,
    /// How many calls they had.
    pub n_calls: u64,
    /// How many of them were the first ones of their tool in their session.
    pub n_first_uses: u64,
    /// The predictors, in the order in which they were asked for.
    pub predictors: Vec<PredictorReport>,
    /// The policies, in the order in which they were asked for.
    pub policies: Vec<(SimulatedPolicy, ListMetrics)>,
    /// The policy that the proxy has by default.
    pub live: ListMetrics,
    /// The list of a fixed length that would have cost least, of the answers of whose searches the
    /// proxy makes the same; `None` without calls.
    pub best_fixed: Option<BestFixed>,
}

impl ReplayReport {
    /// Returns by which share the policy that the proxy has by default cost more than the list of a
    /// fixed length that would have cost least; `None` without calls.
    #[must_use]
    pub fn regret(&self) -> Option<f64> {
        let best = self.best_fixed?.weighed_cost;
        (best > 0.0).then(|| self.live.weighed_cost / best - 1.0)
    }
}

/// How good a predictor was.
#[derive(Debug)]
pub struct PredictorReport {
    /// Its name.
    pub name: &'static str,
    /// How good it was.
    pub metrics: PredictionMetrics,
    /// How often it knew too little to filter by.
    pub cold_starts: ColdStarts,
}

/// Replays all sessions. `progress` is told what is being done and with how many sessions that
/// is done.
///
/// # Errors
///
/// Returns the error of the source.
pub async fn replay<S: SessionSource>(
    catalog: &ReplayCatalog,
    source: &mut S,
    options: &ReplayOptions,
    progress: &(dyn Fn(&str, u64) + Sync),
) -> Result<ReplayReport, S::Error> {
    let mut measured = Measured::new(catalog, options);
    if options.unseen_tasks {
        let mut folds = [(); N_FOLDS].map(|()| Ensemble::untrained(catalog, options));
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
        let mut ensemble = Ensemble::untrained(catalog, options);
        while let Some(session) = source.next().await? {
            ensemble.play(&session, true, Some(&mut measured));
            progress("predicted", measured.n_sessions);
        }
    }
    Ok(measured.report())
}

/// All predictors with what they have learned from the same sessions.
struct Ensemble {
    forecasters: Vec<Box<dyn Forecaster>>,
    with_query: bool,
    scores: Vec<f64>,
}

impl Ensemble {
    fn untrained(catalog: &ReplayCatalog, options: &ReplayOptions) -> Self {
        let predictors = options.predictors.iter();
        Self {
            forecasters: predictors.map(|one| one.untrained(catalog)).collect(),
            with_query: options.with_query,
            scores: vec![0.0; catalog.tools.len()],
        }
    }

    fn play(
        &mut self,
        session: &ReplaySession,
        learns: bool,
        mut measured: Option<&mut Measured<'_>>,
    ) {
        if session.calls.is_empty() {
            return;
        }
        if let Some(measured) = &mut measured {
            measured.begin_session(session);
        }
        for (predictor, forecaster) in self.forecasters.iter_mut().enumerate() {
            let measure = |position: usize, scores: &[f64]| {
                if let Some(measured) = &mut measured {
                    measured.add(predictor, session, position, scores);
                }
            };
            let (with_query, scores) = (self.with_query, &mut self.scores);
            play(
                &mut **forecaster,
                session,
                with_query,
                learns,
                scores,
                measure,
            );
        }
    }
}

/// What is measured of all predictors and policies.
struct Measured<'a> {
    options: &'a ReplayOptions,
    metrics: Vec<(PredictionMetrics, ColdStarts)>,
    catalog: ListedCatalog<'a>,
    policies: Vec<ListSimulation>,
    live: ListSimulation,
    /// Lists of a fixed length.
    fixed: Vec<(usize, ListSimulation)>,
    session: Option<SimulatedSession>,
    forecast: Forecast,
    /// For each call of the session whether it is the first one of its tool.
    first_uses: Vec<bool>,
    is_used: Vec<bool>,
    n_sessions: u64,
    n_calls: u64,
    n_first_uses: u64,
}

impl<'a> Measured<'a> {
    fn new(catalog: &'a ReplayCatalog, options: &'a ReplayOptions) -> Self {
        let n_tools = catalog.tools.len();
        let tokens_per_tool = options.lists.prices.model.tokens_per_tool;
        let catalog = ListedCatalog::new(catalog, tokens_per_tool, &options.words);
        let lists = &options.lists;
        let simulated = |policy: SimulatedPolicy, lists: &SimulatedOptions| {
            ListSimulation::new(policy, catalog.simulated(), lists)
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
            forecast: Forecast::default(),
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

    fn add(&mut self, predictor: usize, session: &ReplaySession, position: usize, scores: &[f64]) {
        self.forecast.fill(scores);
        let called = session.calls[position].tool;
        let is_first_use = self.first_uses[position];
        let (metrics, cold_starts) = &mut self.metrics[predictor];
        metrics.add(&self.forecast, called, is_first_use);
        cold_starts.add(&self.forecast, position == 0);
        if predictor == 0 {
            let begins = self.session.as_ref().filter(|_| position == 0);
            let fixed = self.fixed.iter_mut().map(|(_, simulation)| simulation);
            let all = self.policies.iter_mut().chain(fixed);
            for policy in all.chain([&mut self.live]) {
                policy.add(&self.forecast, called, begins);
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
