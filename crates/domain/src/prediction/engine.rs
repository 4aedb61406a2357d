//! What was learned, and what is predicted from it.

mod explain;
mod prepared;
mod snapshot;

pub use snapshot::SnapshotError;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::aging::Aging;
use super::counts::Kind;
use super::expert::{Expert, ExpertSet, cooccurrence_with_fallback};
use super::features::{self, Feature};
use super::forecast::Forecast;
use super::gate;
use super::memory::Memory;
use super::mixers::{Contexts, KnownText, Mixers, Outcome, Scene};
use super::number::real;
use super::softmax::Rows;
use super::tables::{Scopes, after};
use super::trail::{TextEvidence, Trail};
use super::view::{View, normalise};
use super::vocabulary::{Slot, Vocabulary};
use crate::tool::ToolRef;
use prepared::{Latest, Prepared};

/// How probabilities are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// All experts, mixed by what each was worth so far: first whether a tool of the session is
    /// used again, then which one of those or of the others.
    #[default]
    Mix,
    /// What is used in the same sessions, and by how often each tool is called where that says
    /// nothing.
    CooccurrenceWithFallback,
    /// One expert alone.
    Expert(Expert),
}

/// How much of what happens is learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// All of it.
    Everything,
    /// How far to trust each expert, but nothing of the tools: for evaluations that leave sessions
    /// out of what is learned.
    Weights,
    /// Nothing: the call is just added to the trail.
    Nothing,
}

/// What upkeep left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// The contexts that are known in all scopes.
    pub n_contexts: usize,
}

/// Predicts the next tool from what was called before, and learns with each call.
///
/// The same calls in the same order give the same numbers, whatever lies between them; predicting
/// changes nothing. Of the contexts, sessions, texts and parties only so many are kept that the state stays
/// small whatever happens.
#[derive(Clone, Debug)]
pub struct Engine {
    method: Method,
    experts: ExpertSet,
    state: State,
    latest: Latest,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    vocabulary: Vocabulary,
    aging: Aging,
    scopes: Scopes,
    memories: BTreeMap<u64, Memory>,
    /// How to mix for a principal of whom nothing is known; never learned.
    start: Mixers,
    /// How to mix for each principal. Nobody learns that for others: it would let one principal
    /// turn around what others are shown.
    mixers: BTreeMap<u64, Mixers>,
}

/// What is decayed to less than this is forgotten, in calls.
const LEAST: f64 = 0.02;
impl Engine {
    /// Returns an engine that learned nothing. What it learns counts half after each half-life.
    #[must_use]
    pub fn new(method: Method, half_life_days: f64) -> Self {
        let half_life_days = if half_life_days.is_finite() {
            half_life_days.max(1e-3)
        } else {
            f64::MAX
        };
        Self {
            method,
            experts: ExpertSet::ALL,
            state: State {
                vocabulary: Vocabulary::default(),
                aging: Aging::new(half_life_days),
                scopes: Scopes::default(),
                memories: BTreeMap::new(),
                start: Mixers::new(),
                mixers: BTreeMap::new(),
            },
            latest: Latest::default(),
        }
    }

    /// Mixes these experts alone; for [`Method::Mix`]. The others say nothing: neither which tool is
    /// likelier, nor whether one is used again.
    #[must_use]
    pub fn with_experts(mut self, experts: ExpertSet) -> Self {
        self.experts = experts;
        self
    }

    /// Returns the tools that were ever seen.
    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.state.vocabulary
    }

    /// Returns the slot of a tool, a new one where it was never seen; see [`Vocabulary::intern`].
    pub fn intern(&mut self, tool: &ToolRef) -> Option<Slot> {
        self.state_mut().vocabulary.intern(tool)
    }

    /// Returns how likely each candidate is to be called next. Candidates that occur twice count
    /// once, slots of another vocabulary not at all.
    #[must_use]
    pub fn predict(&self, trail: &Trail, candidates: &[Slot]) -> Forecast {
        let view = self.view(trail);
        let candidates = self.known(candidates);
        if self.method != Method::Mix {
            return self.forecast_alone(&view, &candidates);
        }
        let scene = scene(&view, &candidates, self.experts);
        let outcome = self.mixers(trail).predict(&scene);
        let forecast = forecast(probabilities(&scene, &outcome));
        (self.latest).keep(Prepared::new(trail, candidates, scene, outcome));
        forecast
    }

    /// Returns how likely each candidate is where nothing is mixed.
    fn forecast_alone(&self, view: &View<'_>, candidates: &[usize]) -> Forecast {
        let p = match self.method {
            Method::Expert(expert) => expert.distribution(view),
            Method::Mix | Method::CooccurrenceWithFallback => cooccurrence_with_fallback(view),
        };
        forecast(restricted(&p, candidates))
    }

    /// Learns that a tool was called, and adds the call to the trail. The candidates are those
    /// that it was chosen from. A slot of another vocabulary is left out.
    pub fn learn(&mut self, trail: &mut Trail, candidates: &[Slot], called: Slot, lesson: Lesson) {
        if called.index() >= self.state.vocabulary.len() {
            return;
        }
        if lesson != Lesson::Nothing && self.method == Method::Mix {
            self.learn_weights(trail, candidates, called);
        }
        if lesson == Lesson::Everything {
            let state = self.state_mut();
            if let Some(now) = trail.now {
                state.aging.advance(now);
            }
            if state.aging.is_due() {
                state.rescale();
            }
            let weight = state.aging.weight();
            (state.scopes).learn(trail, called, &state.vocabulary, weight);
        }
        trail.push(called);
    }

    /// Learns from the whole of a session that is over.
    pub fn end_session(&mut self, trail: &Trail) {
        let memories = &mut self.state_mut().memories;
        let principal = trail.party.principal;
        if memories.len() < Scopes::MAX_PRINCIPALS || memories.contains_key(&principal) {
            memories.entry(principal).or_default().learn(trail);
        }
    }

    /// Returns how near the ten nearest earlier texts of the principal are, from 0 to 1, the
    /// nearest first.
    #[must_use]
    pub fn similarities(&self, trail: &Trail, text: &TextEvidence) -> Vec<f64> {
        let memory = self.state.memories.get(&trail.party.principal);
        memory.map_or_else(Vec::new, |memory| memory.similarities(text))
    }

    /// Lets what was learned age until now, and forgets what counts almost nothing any more.
    pub fn upkeep(&mut self, now: Timestamp) -> Upkeep {
        let state = self.state_mut();
        state.aging.advance(now);
        state.rescale();
        Upkeep {
            n_contexts: state.scopes.n_contexts(),
        }
    }

    fn learn_weights(&mut self, trail: &Trail, candidates: &[Slot], called: Slot) {
        let candidates = self.known(candidates);
        let latest = self.latest.take(trail, &candidates);
        let Prepared { scene, outcome, .. } = latest.unwrap_or_else(|| {
            let scene = scene(&self.view(trail), &candidates, self.experts);
            let outcome = self.mixers(trail).predict(&scene);
            Prepared::new(trail, candidates, scene, outcome)
        });
        let state = self.state_mut();
        let principal = trail.party.principal;
        let is_known = state.mixers.contains_key(&principal);
        if is_known || state.mixers.len() < Scopes::MAX_PRINCIPALS {
            let mixers = (state.mixers.entry(principal)).or_insert_with(|| state.start.clone());
            mixers.learn(&scene, &outcome, called.index());
        }
    }

    /// Returns what was learned, to change it.
    fn state_mut(&mut self) -> &mut State {
        self.latest.clear();
        &mut self.state
    }

    fn mixers(&self, trail: &Trail) -> &Mixers {
        let own = self.state.mixers.get(&trail.party.principal);
        own.unwrap_or(&self.state.start)
    }

    fn view<'a>(&'a self, trail: &'a Trail) -> View<'a> {
        let state = &self.state;
        View::new(
            &state.vocabulary,
            &state.scopes,
            state.memories.get(&trail.party.principal),
            state.aging.scale(),
            trail,
        )
    }

    /// Returns the slots that are known, ascending and each once.
    fn known(&self, candidates: &[Slot]) -> Vec<usize> {
        let n = self.state.vocabulary.len();
        let known = candidates.iter().map(|slot| slot.index());
        let mut known: Vec<usize> = known.filter(|slot| *slot < n).collect();
        known.sort_unstable();
        known.dedup();
        known
    }
}

impl State {
    /// Writes all weights anew, so that those of now are one.
    fn rescale(&mut self) {
        let scale = self.aging.scale();
        self.scopes.rescale(scale, LEAST);
        self.aging.restart();
    }
}

/// The share of an expert that goes to all tools evenly: none is ruled out.
const FLOOR: f64 = 0.001;

/// Returns what the experts and features say of the candidates.
fn scene(view: &View<'_>, candidates: &[usize], experts: ExpertSet) -> Scene {
    let trail = view.trail;
    let mut is_used = vec![false; view.n()];
    for used in &trail.used {
        if let Some(is_used) = is_used.get_mut(used.slot.index()) {
            *is_used = true;
        }
    }
    let (used, new): (Vec<usize>, Vec<usize>) = candidates.iter().partition(|slot| is_used[**slot]);
    let n_experts = Expert::ALL.len();
    let mut new_rows = Rows::new(new.len(), n_experts + Feature::ALL.len());
    let mut used_rows = Rows::new(used.len(), n_experts);
    let mut masses = Vec::with_capacity(Expert::ALL.len());
    let has_text =
        experts.contains(Expert::Text) && trail.text().is_some_and(|text| !text.scores.is_empty());
    let mut fits = None;
    for expert in Expert::ALL {
        if !experts.contains(expert) {
            masses.push(0.5);
            new_rows.push(new.iter().map(|_| 0.0));
            used_rows.push(used.iter().map(|_| 0.0));
            continue;
        }
        let p = expert.distribution(view);
        let mass = |slots: &[usize]| slots.iter().map(|slot| p[*slot]).sum::<f64>();
        let (again, first) = (mass(&used), mass(&new));
        masses.push(again / (again + first).max(f64::MIN_POSITIVE));
        let floor = FLOOR / real(p.len().max(1));
        let logarithm = |slot: &usize| ((1.0 - FLOOR) * p[*slot] + floor).ln();
        new_rows.push(new.iter().map(logarithm));
        used_rows.push(used.iter().map(logarithm));
        if expert == Expert::Text && has_text {
            fits = Some(p.iter().map(|p| p.ln()).collect());
        }
    }
    features::push(view, fits, &new, &mut new_rows);
    Scene {
        contexts: contexts(view, known_text(view, has_text)),
        gate_inputs: gate::inputs(view, &masses),
        new,
        new_rows,
        used,
        used_rows,
    }
}

/// Returns the candidates with their probabilities.
fn probabilities(scene: &Scene, outcome: &Outcome) -> Vec<(usize, f64)> {
    let first = scene.new.iter().zip(&outcome.first.log_p);
    let again = scene.used.iter().zip(&outcome.again.log_p);
    first
        .map(|(slot, l)| (*slot, (1.0 - outcome.repeat) * l.exp()))
        .chain(again.map(|(slot, l)| (*slot, outcome.repeat * l.exp())))
        .collect()
}

fn forecast(p: Vec<(usize, f64)>) -> Forecast {
    let named = p.into_iter().filter_map(|(slot, p)| {
        let slot = Slot(u32::try_from(slot).ok()?);
        Some((slot, p))
    });
    Forecast::new(named.collect())
}

/// Returns a distribution over the candidates alone.
fn restricted(p: &[f64], candidates: &[usize]) -> Vec<(usize, f64)> {
    let mut values: Vec<f64> = candidates.iter().map(|slot| p[*slot]).collect();
    normalise(&mut values);
    candidates.iter().copied().zip(values).collect()
}

/// Returns what is known of the text of a session; `fits` says whether it is known how well tools fit.
fn known_text(view: &View<'_>, fits: bool) -> KnownText {
    match view.trail.text() {
        _ if fits => KnownText::Fits,
        Some(_) => KnownText::Likeness,
        None => KnownText::Nothing,
    }
}

fn contexts(view: &View<'_>, text: KnownText) -> Contexts {
    let trail = view.trail;
    let place = match trail.n_calls() {
        0 => 0,
        1..4 => 1,
        _ => 2,
    };
    let mut knowledge = 0;
    for (order, key) in (0..).zip(after(Kind::Workflow, &trail.changes)) {
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
    let last = trail.last();
    let server = last.and_then(|last| view.vocabulary.server(last));
    let n_used = u64::try_from(trail.used.len()).unwrap_or(u64::MAX);
    let tool = last.map(|slot| slot.0);
    Contexts::new(place, text, (server, tool), n_used, knowledge)
}
