//! The prediction engine: learned state, learning and prediction.

mod explain;
mod forecast_cache;
mod snapshot;

pub use snapshot::SnapshotError;

use crate::num::to_f64;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::aging::Aging;
use super::counts::ContextKind;
use super::expert::{Expert, ExpertSet, cooccurrence_with_fallback};
use super::features::{self, Feature};
use super::forecast::Forecast;
use super::gate;
use super::later_use::LaterUse;
use super::memory::PrincipalMemory;
use super::mixers::{KnownText, MixInputs, MixOutput, Mixers, WeightContexts};
use super::session_history::{SessionHistory, TextEvidence};
use super::softmax::FeatureRows;
use super::tables::{Scopes, context_keys};
use super::tool_counts::ToolCounts;
use super::view::{View, normalise};
use super::vocabulary::{ToolIx, Vocabulary};
use crate::catalog::tool::ToolRef;
use forecast_cache::{CachedForecast, ForecastCache};

/// The method that computes probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PredictionMethod {
    /// All experts, mixed by their past performance. The first step predicts whether a tool of the
    /// session is used again, the second step which of these or of the other tools.
    #[default]
    Mix,
    /// Co-occurrence in sessions; frequency of calls for tools without it.
    CooccurrenceWithFallback,
    /// One expert alone.
    Expert(Expert),
    /// The advice of a predictor outside of the engine alone; the mix of all other experts where
    /// there is none.
    Advice,
}

/// The part of the state that learns from a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearningScope {
    /// All parts.
    Everything,
    /// The weights of the experts, but no counts of tools: for evaluations that leave sessions out
    /// of the learned data.
    Weights,
    /// No part: the call is only added to the session history.
    Nothing,
}

/// The result of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaintenanceReport {
    n_contexts: usize,
}

impl MaintenanceReport {
    /// Returns the report of a predictor that holds counts for `n_contexts` contexts after its
    /// maintenance; 0 for a predictor that counts without contexts.
    #[must_use]
    pub const fn new(n_contexts: usize) -> Self {
        Self { n_contexts }
    }

    /// Returns the number of contexts in all scopes.
    #[must_use]
    pub const fn n_contexts(self) -> usize {
        self.n_contexts
    }
}

/// Predicts the next tool from the calls so far, and learns with each call.
///
/// The same calls in the same order give the same numbers, whatever happens between them.
/// Predicting changes nothing. The numbers of contexts, sessions, texts and clients are limited, so
/// that the state stays small in any case.
#[derive(Clone, Debug)]
pub struct Engine {
    method: PredictionMethod,
    experts: ExpertSet,
    state: EngineState,
    latest: ForecastCache,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EngineState {
    vocabulary: Vocabulary,
    aging: Aging,
    scopes: Scopes,
    memories: BTreeMap<u64, PrincipalMemory>,
    /// The initial mixers, for principals without own ones; never learned.
    start: Mixers,
    /// The mixers of each principal. They learn from its own calls only: otherwise one principal
    /// could manipulate the lists of others.
    mixers: BTreeMap<u64, Mixers>,
    /// The predictors of later use of each principal with a memory.
    later_use: BTreeMap<u64, LaterUse>,
}

/// Lower limit of a decayed count, in calls. Smaller counts are dropped.
const MIN_COUNT: f64 = 0.02;
impl Engine {
    /// Returns an engine without learned data. Learned counts are halved with each half-life.
    #[must_use]
    pub fn new(method: PredictionMethod, half_life_days: f64) -> Self {
        let half_life_days = if half_life_days.is_finite() {
            half_life_days.max(1e-3)
        } else {
            f64::MAX
        };
        Self {
            method,
            experts: ExpertSet::ALL,
            state: EngineState {
                vocabulary: Vocabulary::default(),
                aging: Aging::new(half_life_days),
                scopes: Scopes::default(),
                memories: BTreeMap::new(),
                start: Mixers::new(),
                mixers: BTreeMap::new(),
                later_use: BTreeMap::new(),
            },
            latest: ForecastCache::default(),
        }
    }

    /// Sets the experts of the mix; for [`PredictionMethod::Mix`]. The others are ignored, both for the
    /// choice of a tool and for the probability of a repetition.
    #[must_use]
    pub fn with_experts(mut self, experts: ExpertSet) -> Self {
        self.experts = experts;
        self
    }

    /// Returns all tools ever seen.
    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.state.vocabulary
    }

    /// Returns the index of a tool; a new one if it was never seen. See [`Vocabulary::intern`].
    pub fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
        self.state_mut().vocabulary.intern(tool)
    }

    /// Returns the probability of each candidate to be called next. Duplicate candidates count
    /// once, indices from another vocabulary not at all.
    #[must_use]
    pub fn predict(&self, history: &SessionHistory, candidates: &[ToolIx]) -> Forecast {
        let view = self.view(history);
        let candidates = self.known_indices(candidates);
        if !self.mixes(history) {
            return self.forecast_alone(&view, &candidates);
        }
        let scene = mix_inputs(&view, &candidates, self.experts);
        let outcome = self.mixers(history).predict(&scene);
        let forecast = forecast(probabilities(&scene, &outcome));
        (self.latest).store(CachedForecast::new(history, candidates, scene, outcome));
        forecast
    }

    /// Returns the probabilities of the candidates for methods without a mix.
    fn forecast_alone(&self, view: &View<'_>, candidates: &[usize]) -> Forecast {
        let p = match self.method {
            PredictionMethod::Expert(expert) => expert.distribution(view),
            PredictionMethod::Advice => advised_distribution(view),
            PredictionMethod::Mix | PredictionMethod::CooccurrenceWithFallback => {
                cooccurrence_with_fallback(view)
            }
        };
        forecast(restrict(&p, candidates))
    }

    /// Learns that a tool was called, and adds the call to the session history. `candidates` are
    /// the tools that could have been called. An index from another vocabulary is ignored.
    pub fn learn(
        &mut self,
        history: &mut SessionHistory,
        candidates: &[ToolIx],
        called: ToolIx,
        lesson: LearningScope,
    ) {
        if called.index() >= self.state.vocabulary.len() {
            return;
        }
        // Before the counts: the weights learn from the prediction that was made without this call.
        let learns_weights = lesson != LearningScope::Nothing;
        match self.method {
            PredictionMethod::Mix if learns_weights => {
                self.learn_weights(history, candidates, called);
            }
            // The mix predicts without advice, so it learns without advice.
            PredictionMethod::Advice if learns_weights => {
                let advice = history.advice().cloned();
                history.set_advice(None);
                self.learn_weights(history, candidates, called);
                history.set_advice(advice);
            }
            _ => {}
        }
        if lesson == LearningScope::Everything {
            let state = self.state_mut();
            if let Some(now) = history.now {
                state.aging.advance(now);
            }
            if state.aging.needs_rescale() {
                state.rescale();
            }
            let weight = state.aging.weight();
            (state.scopes).learn(history, called, &state.vocabulary, weight);
        }
        history.push(called);
    }

    /// Returns the share of each candidate in the tools that the session has yet to use: how likely
    /// a tool is to be used at all in the further course of the session, relative to the others.
    /// `next` is the forecast of the next call for the same history and candidates. It is also the
    /// result for methods other than the mix, before the first ended session of the principal, and
    /// if the session has used all candidates.
    #[must_use]
    pub fn predict_later(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        next: &Forecast,
    ) -> Forecast {
        if self.method != PredictionMethod::Mix {
            return next.clone();
        }
        let principal = history.party.principal;
        let state = &self.state;
        let learned = (state.memories.get(&principal)).zip(state.later_use.get(&principal));
        let later = learned.and_then(|(memory, later_use)| {
            let candidates = self.known_indices(candidates);
            later_use.forecast(memory, &state.vocabulary, history, &candidates, next)
        });
        later.map_or_else(|| next.clone(), forecast)
    }

    /// Learns from an ended session as a whole.
    pub fn end_session(&mut self, history: &SessionHistory) {
        let state = self.state_mut();
        let memories = &mut state.memories;
        let principal = history.party.principal;
        if memories.len() < Scopes::MAX_PRINCIPALS || memories.contains_key(&principal) {
            let memory = memories.entry(principal).or_default();
            // Before the memory: the weights learn from the evidence without this session.
            let later_use = state.later_use.entry(principal).or_default();
            later_use.learn(memory, &state.vocabulary, history);
            memory.learn(history);
        }
    }

    /// Returns the learned counts of these tools in the situation of a session, in order; zeros for
    /// an index from another vocabulary.
    #[must_use]
    pub fn counts(&self, history: &SessionHistory, tools: &[ToolIx]) -> Vec<ToolCounts> {
        let view = self.view(history);
        let counts = tools.iter().map(|tool| ToolCounts::of(&view, *tool));
        counts.collect()
    }

    /// Returns the similarities of the ten nearest earlier texts of the principal, from 0 to 1, the
    /// nearest first.
    #[must_use]
    pub fn similarities(&self, history: &SessionHistory, text: &TextEvidence) -> Vec<f64> {
        let memory = self.state.memories.get(&history.party.principal);
        memory.map_or_else(Vec::new, |memory| memory.similarities(text))
    }

    /// Ages the learned data until `now`, and drops counts that have almost no weight.
    pub fn maintain(&mut self, now: Timestamp) -> MaintenanceReport {
        let state = self.state_mut();
        state.aging.advance(now);
        state.rescale();
        MaintenanceReport::new(state.scopes.n_contexts())
    }

    fn learn_weights(&mut self, history: &SessionHistory, candidates: &[ToolIx], called: ToolIx) {
        let candidates = self.known_indices(candidates);
        let latest = self.latest.take(history, &candidates);
        let CachedForecast { scene, outcome, .. } = latest.unwrap_or_else(|| {
            let scene = mix_inputs(&self.view(history), &candidates, self.experts);
            let outcome = self.mixers(history).predict(&scene);
            CachedForecast::new(history, candidates, scene, outcome)
        });
        let state = self.state_mut();
        let principal = history.party.principal;
        let is_known = state.mixers.contains_key(&principal);
        if is_known || state.mixers.len() < Scopes::MAX_PRINCIPALS {
            let mixers = (state.mixers.entry(principal)).or_insert_with(|| state.start.clone());
            mixers.learn(&scene, &outcome, called.index());
        }
    }

    /// Returns the learned state for changes. It clears the cached forecast, which a change makes
    /// invalid.
    fn state_mut(&mut self) -> &mut EngineState {
        self.latest.clear();
        &mut self.state
    }

    /// Returns whether the prediction for a session is a mix of experts.
    fn mixes(&self, history: &SessionHistory) -> bool {
        match self.method {
            PredictionMethod::Mix => true,
            PredictionMethod::Advice => history.advice().is_none(),
            PredictionMethod::CooccurrenceWithFallback | PredictionMethod::Expert(_) => false,
        }
    }

    fn mixers(&self, history: &SessionHistory) -> &Mixers {
        let own = self.state.mixers.get(&history.party.principal);
        own.unwrap_or(&self.state.start)
    }

    fn view<'a>(&'a self, history: &'a SessionHistory) -> View<'a> {
        let state = &self.state;
        View::new(
            &state.vocabulary,
            &state.scopes,
            state.memories.get(&history.party.principal),
            state.aging.scale(),
            history,
        )
    }

    #[cfg(test)]
    pub(super) fn later_use_of(&self, principal: u64) -> Option<&LaterUse> {
        self.state.later_use.get(&principal)
    }

    /// Returns the indices that are in the vocabulary, ascending and without duplicates.
    fn known_indices(&self, candidates: &[ToolIx]) -> Vec<usize> {
        let n = self.state.vocabulary.len();
        let known = candidates.iter().map(|slot| slot.index());
        let mut known: Vec<usize> = known.filter(|slot| *slot < n).collect();
        known.sort_unstable();
        known.dedup();
        known
    }
}

impl EngineState {
    /// Rescales all weights, so that the current weight is 1.
    fn rescale(&mut self) {
        let scale = self.aging.scale();
        self.scopes.rescale(scale, MIN_COUNT);
        self.aging.reset_epoch();
    }
}

/// The share of an expert's distribution that is spread evenly over all tools, so that none is
/// ruled out.
const UNIFORM_SHARE: f64 = 0.001;

/// Returns the inputs of the mix for the candidates: the outputs of experts and features.
fn mix_inputs(view: &View<'_>, candidates: &[usize], experts: ExpertSet) -> MixInputs {
    let history = view.history;
    let mut is_used = vec![false; view.n()];
    for used in &history.used {
        if let Some(is_used) = is_used.get_mut(used.slot.index()) {
            *is_used = true;
        }
    }
    let (used, new): (Vec<usize>, Vec<usize>) = candidates.iter().partition(|slot| is_used[**slot]);
    let n_experts = Expert::ALL.len();
    let mut new_rows = FeatureRows::new(new.len(), n_experts + Feature::ALL.len());
    let mut used_rows = FeatureRows::new(used.len(), n_experts);
    let mut masses = Vec::with_capacity(Expert::ALL.len());
    let has_text = experts.contains(Expert::Text)
        && history.text().is_some_and(|text| !text.scores.is_empty());
    let mut fits = None;
    let mut task = vec![0.0; view.n()];
    for &expert in Expert::ALL {
        if !experts.contains(expert) || !expert.has_evidence(history) {
            // An expert outside the mix, or without evidence, gives log-odds of 0 and equal logarithms: no evidence.
            masses.push(0.5);
            new_rows.push(new.iter().map(|_| 0.0));
            used_rows.push(used.iter().map(|_| 0.0));
            continue;
        }
        let p = expert.distribution(view);
        let mass = |slots: &[usize]| slots.iter().map(|slot| p[*slot]).sum::<f64>();
        let (again, first) = (mass(&used), mass(&new));
        masses.push(again / (again + first).max(f64::MIN_POSITIVE));
        let floor = UNIFORM_SHARE / to_f64(p.len().max(1));
        let logarithm = |slot: &usize| ((1.0 - UNIFORM_SHARE) * p[*slot] + floor).ln();
        new_rows.push(new.iter().map(logarithm));
        if expert.knows_task(history) {
            for slot in &new {
                task[*slot] += p[*slot] / first.max(f64::MIN_POSITIVE);
            }
        }
        used_rows.push(used.iter().map(logarithm));
        if expert == Expert::Text && has_text {
            fits = Some(p.iter().map(|p| p.ln()).collect());
        }
    }
    features::push_features(view, fits, &task, &new, &mut new_rows);
    MixInputs {
        contexts: contexts(view, known_text(view, has_text)),
        gate_inputs: gate::inputs(view, &masses),
        new,
        new_rows,
        used,
        used_rows,
    }
}

/// Returns the advice of a session as a distribution in which no tool is ruled out.
fn advised_distribution(view: &View<'_>) -> Vec<f64> {
    let mut p = Expert::External.distribution(view);
    let floor = UNIFORM_SHARE / to_f64(p.len().max(1));
    for value in &mut p {
        *value = (1.0 - UNIFORM_SHARE) * *value + floor;
    }
    p
}

/// Returns the candidates with their probabilities.
fn probabilities(scene: &MixInputs, outcome: &MixOutput) -> Vec<(usize, f64)> {
    let first = scene.new.iter().zip(&outcome.first.log_p);
    let again = scene.used.iter().zip(&outcome.again.log_p);
    first
        .map(|(slot, l)| (*slot, (1.0 - outcome.repeat) * l.exp()))
        .chain(again.map(|(slot, l)| (*slot, outcome.repeat * l.exp())))
        .collect()
}

fn forecast(p: Vec<(usize, f64)>) -> Forecast {
    let named = p.into_iter().filter_map(|(slot, p)| {
        let slot = ToolIx(u32::try_from(slot).ok()?);
        Some((slot, p))
    });
    Forecast::from_distribution(named.collect())
}

/// Returns the distribution restricted to the candidates.
fn restrict(p: &[f64], candidates: &[usize]) -> Vec<(usize, f64)> {
    let mut values: Vec<f64> = candidates.iter().map(|slot| p[*slot]).collect();
    normalise(&mut values);
    candidates.iter().copied().zip(values).collect()
}

/// Returns the kind of knowledge about the text of a session; `fits` is whether scores of tools are
/// known.
fn known_text(view: &View<'_>, fits: bool) -> KnownText {
    match view.history.text() {
        _ if fits => KnownText::Fits,
        Some(_) => KnownText::Likeness,
        None => KnownText::Nothing,
    }
}

fn contexts(view: &View<'_>, text: KnownText) -> WeightContexts {
    let history = view.history;
    let place = match history.n_calls() {
        0 => 0,
        1..4 => 1,
        _ => 2,
    };
    let mut knowledge = 0;
    for (order, key) in (0..).zip(context_keys(ContextKind::Workflow, &history.changes)) {
        let total = view.total(key);
        let much = match total {
            _ if total >= 6.0 => 2,
            _ if total >= 2.0 => 1,
            _ => 0,
        };
        if total >= 0.5 {
            knowledge = 1 + 3 * order + much;
        }
    }
    let last = history.last();
    let server = last.and_then(|last| view.vocabulary.server(last));
    let n_used = u64::try_from(history.used.len()).unwrap_or(u64::MAX);
    let tool = last.map(|slot| slot.0);
    WeightContexts::new(place, text, server, tool, n_used, knowledge)
}
