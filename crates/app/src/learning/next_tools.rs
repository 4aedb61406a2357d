//! Which tools a session needs next.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLockReadGuard};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use riglm_domain::embedding::Embedding;
use riglm_domain::experiment::Lever;
use riglm_domain::invocation::CallSession;
use riglm_domain::listing::{SessionOutlook, SessionShape};
use riglm_domain::prediction::{
    Band, Bands, Confidence, ConfidenceMeasure, Explanation, Party, Slot, TextEvidence, Trail,
};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_ports::predictor::Predictor;

use super::arms::{ArmPredictor, MAX_ARM_PREDICTORS, OfArms};
use super::learner::{Learner, Origin};
use super::session_calls::{CallKey, SessionCalls};
use super::shared_learner::SharedLearner;
use crate::experiments::{AssignedArm, Experiments, Participant};

/// How predictions are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextToolsOptions {
    /// How the confidence is made.
    pub measure: ConfidenceMeasure,
    /// Where its bands begin.
    pub bands: Bands,
    /// Whether everything is shown in the lowest band.
    pub shows_all: bool,
}

/// A text that says what a session is doing.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The text. Only keys of its words are kept.
    pub text: &'a str,
    /// How well tools fit it, by their positions among those that are asked about: the larger the
    /// better, on any scale.
    pub fits: &'a [(usize, f64)],
    /// Its vector, of unit length, where an encoder was there.
    pub vector: Option<&'a Embedding>,
}

/// A session whose next tools are asked for.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a> {
    /// The session.
    pub session: CallSession,
    /// Whose it is.
    pub principal: &'a Principal,
    /// The name that the client gives itself.
    pub client: &'a str,
    /// What is being done, where that is known.
    pub intent: Option<Intent<'a>>,
    /// The moment that it is asked for.
    pub now: Timestamp,
}

impl SessionView<'_> {
    /// Returns who takes part in experiments with what is predicted.
    fn participant(&self) -> Participant<'_> {
        Participant::of(self.principal, self.session)
    }
}

/// Why a prediction is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The predictor failed.
    Failed,
}

/// A tool that may be needed next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextTool {
    /// Its position among the tools that were asked about.
    pub position: usize,
    /// The probability that it is called next.
    pub probability: f64,
}

/// Which tools a session needs next.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The tools, the most likely first. Tools for which the predictor has no room are not among
    /// them.
    pub ranked: Vec<NextTool>,
    /// Why this is no prediction; all tools are as likely then, in the order in which they were
    /// asked about.
    pub fallback: Option<Fallback>,
    similarities: Vec<f64>,
    options: NextToolsOptions,
}

impl Prediction {
    /// Returns how far a list of the `max_tools` most likely tools is to be trusted. What is no
    /// prediction is not.
    #[must_use]
    pub fn confidence(&self, max_tools: usize) -> Confidence {
        let NextToolsOptions { measure, bands, .. } = self.options;
        let value = match measure {
            _ if self.fallback.is_some() => 0.0,
            ConfidenceMeasure::Mass => {
                let shown = self.ranked.iter().take(max_tools);
                shown.map(|tool| tool.probability).sum::<f64>().min(1.0)
            }
            ConfidenceMeasure::Similarity => {
                let n_used = self.similarities.len();
                return Confidence::of_similarity(&self.similarities, n_used, bands);
            }
        };
        Confidence {
            value,
            band: bands.of(value),
        }
    }
}

impl Prediction {
    /// Returns whether the operator wants everything shown by how little the best `max_tools` are to be
    /// trusted.
    #[must_use]
    pub fn shows_all(&self, max_tools: usize) -> bool {
        self.options.shows_all && self.confidence(max_tools).band == Band::ShowAll
    }
}

/// Predicts the next tools of sessions from what was learned, and from what they called so far.
///
/// Who is in an arm of an experiment with predictors has that of the arm, from the moment at which
/// all of them learned what was recorded before: until then, and outside of experiments, it is that
/// of everybody.
///
/// A prediction takes well under a millisecond for hundreds of tools, and waits for no store.
#[derive(Debug)]
pub struct NextTools {
    /// What everybody has who is in no arm with another one.
    learner: SharedLearner,
    of_arms: Vec<OfArms>,
    experiments: Option<Arc<Experiments>>,
    sessions: SessionCalls,
    options: ArcSwap<NextToolsOptions>,
    is_ready: AtomicBool,
    is_delayed: AtomicBool,
    n_failed: AtomicU64,
    was_warned: AtomicBool,
}

impl NextTools {
    /// Returns predictions by a predictor that learned nothing yet.
    #[must_use]
    pub fn new(predictor: Box<dyn Predictor>, options: NextToolsOptions) -> Self {
        Self {
            learner: SharedLearner::new(Learner::new(predictor, Origin::default())),
            of_arms: Vec::new(),
            experiments: None,
            sessions: SessionCalls::default(),
            options: ArcSwap::from_pointee(options),
            is_ready: AtomicBool::new(false),
            is_delayed: AtomicBool::new(false),
            n_failed: AtomicU64::new(0),
            was_warned: AtomicBool::new(false),
        }
    }

    /// Has those who are in arms of these experiments have the predictors of their arms, at most
    /// [`MAX_ARM_PREDICTORS`]. An arm whose predictors are not among them has that of everybody.
    #[must_use]
    pub fn with_arms(
        self,
        predictors: Vec<ArmPredictor>,
        experiments: Option<Arc<Experiments>>,
    ) -> Self {
        let predictors = predictors.into_iter().take(MAX_ARM_PREDICTORS);
        Self {
            of_arms: predictors.map(OfArms::new).collect(),
            experiments,
            ..self
        }
    }

    /// Has predictions judged in another way from now on; returns whether it is another one.
    pub fn set_options(&self, options: NextToolsOptions) -> bool {
        *self.options.swap(Arc::new(options)) != options
    }

    /// Notes that a session calls a tool: predictions for it follow at once.
    pub fn called(&self, session: CallSession, tool: &ToolRef, at: Timestamp) {
        self.sessions.called(session, tool, at);
    }

    /// Returns by the number of which predictor it is predicted for somebody now: 0 is that of
    /// everybody.
    #[must_use]
    pub(crate) fn predictor_of(&self, who: Participant<'_>) -> usize {
        let arm = self
            .compared()
            .and_then(|all| all.arm(who, Lever::Predictors));
        let set = arm.as_ref().and_then(AssignedArm::predictors);
        let place = set.and_then(|set| self.of_arms.iter().position(|of| of.how.set == set));
        place.map_or(0, |place| place + 1)
    }

    /// Notes that something is shown by what was predicted for who asks: from now on it makes a
    /// difference which predictor they have.
    pub fn exposed(&self, view: &SessionView<'_>) {
        if let Some(experiments) = self.compared() {
            let _ = experiments.exposed(view.participant(), Lever::Predictors);
        }
    }

    /// Returns the experiments, once no arm is behind: units of all arms begin together.
    fn compared(&self) -> Option<&Experiments> {
        let experiments = self.experiments.as_deref()?;
        let is_ready = self.is_ready() && self.of_arms.iter().all(OfArms::is_ready);
        is_ready.then_some(experiments)
    }

    /// Returns which of the tools a session needs next. Never fails: see [`Prediction::fallback`].
    #[must_use]
    pub fn predict(&self, view: &SessionView<'_>, tools: &[ToolRef]) -> Prediction {
        let options = **self.options.load();
        let predicted = self.with_trail(view, tools, |predictor, trail, slots| {
            let candidates = known(slots);
            let forecast = predictor.predict(trail, &candidates);
            let ranked = forecast.ranked();
            let is_sound = ranked.iter().all(|(_, p)| p.is_finite() && *p >= 0.0);
            let similarities = match options.measure {
                ConfidenceMeasure::Mass => Vec::new(),
                ConfidenceMeasure::Similarity => trail
                    .text()
                    .map_or_else(Vec::new, |text| predictor.similarities(trail, text)),
            };
            is_sound.then(|| (by_position(ranked, slots), similarities))
        });
        if let Some((ranked, similarities)) = predicted {
            return Prediction {
                ranked,
                fallback: None,
                similarities,
                options,
            };
        }
        let probability = 1.0 / u32::try_from(tools.len().max(1)).map_or(f64::MAX, f64::from);
        let even = |position| NextTool {
            position,
            probability,
        };
        Prediction {
            ranked: (0..tools.len()).map(even).collect(),
            fallback: Some(Fallback::Failed),
            similarities: Vec::new(),
            options,
        }
    }

    /// Returns the expectation of a session before it begins, by the sessions that are over: of
    /// its client, or of any client of its principal where the list `is_shared`. `shape` is assumed
    /// before any.
    #[must_use]
    pub fn outlook(
        &self,
        view: &SessionView<'_>,
        is_shared: bool,
        shape: &SessionShape,
    ) -> SessionOutlook {
        let party = Party::new(view.principal, view.client);
        let learner = self.learner_of(view).read();
        learner.sizes().outlook(party, is_shared, shape)
    }

    /// Returns the share that each tool has of the uses in earlier sessions of who asks, by its position.
    #[must_use]
    pub fn session_use(&self, view: &SessionView<'_>, tools: &[ToolRef]) -> Vec<f64> {
        let learner = self.learner_of(view).read();
        let shares = (learner.session_use()).shares(Party::new(view.principal, view.client));
        let vocabulary = learner.predictor().vocabulary();
        let share = |tool| shares.get(&vocabulary.slot(tool)?).copied();
        tools
            .iter()
            .map(|tool| share(tool).unwrap_or(0.0))
            .collect()
    }

    /// Returns the probability that a client looks for a hidden tool that it needs, by what it did so far;
    /// `None` before any session.
    #[must_use]
    pub fn seeks(&self, principal: &Principal, client: &str) -> Option<f64> {
        let party = Party::new(principal, client);
        let learner = self.learner.read();
        let outlook = (learner.sizes()).outlook(party, false, &SessionShape::TYPICAL);
        outlook.is_learned().then_some(outlook.seeks)
    }

    /// Returns the share of the needed hidden tools that clients looked for, of everybody; `None` where
    /// none was needed yet.
    #[must_use]
    pub fn share_sought(&self) -> Option<f64> {
        self.learner.read().sizes().share_sought()
    }

    /// Returns whether predictions were taught what texts mean: most of the recent sessions said what
    /// they do.
    #[must_use]
    pub fn knows_texts(&self, view: &SessionView<'_>) -> bool {
        self.learner_of(view).read().sizes().knows_texts()
    }

    /// Returns why the tools at these positions are as likely as they are; `None` for those of
    /// which nothing can be said.
    #[must_use]
    pub fn explain(
        &self,
        view: &SessionView<'_>,
        tools: &[ToolRef],
        positions: &[usize],
    ) -> Vec<Option<Explanation>> {
        let explained = self.with_trail(view, tools, |predictor, trail, slots| {
            let candidates = known(slots);
            let wanted = positions.iter().map(|at| slots.get(*at).copied().flatten());
            let wanted: Vec<Option<Slot>> = wanted.collect();
            let explained = predictor.explain(trail, &candidates, &known(&wanted));
            let mut explained = explained.into_iter();
            let each = wanted
                .iter()
                .map(|slot| slot.and_then(|_| explained.next()?));
            Some(each.collect())
        });
        explained.unwrap_or_else(|| vec![None; positions.len()])
    }

    /// Returns whether all that was recorded before is learned, as far as it is to be.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Returns whether calls cannot be learned from now, since the store does not give them.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.is_delayed.load(Ordering::Relaxed)
    }

    pub(super) fn set_delayed(&self, is_delayed: bool) {
        self.is_delayed.store(is_delayed, Ordering::Relaxed);
    }

    /// Returns whether anything was learned ever.
    #[must_use]
    pub fn has_learned(&self) -> bool {
        self.learner.read().has_learned()
    }

    /// Returns how many predictions failed since the start.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }

    /// Returns how many calls were learned from since the start.
    #[must_use]
    pub fn n_learned(&self) -> u64 {
        self.learner.read().n_learned()
    }

    /// Calls `work` with the predictor, the session so far, and the slots of the tools. What fails
    /// is counted, and said once.
    fn with_trail<T>(
        &self,
        view: &SessionView<'_>,
        tools: &[ToolRef],
        work: impl FnOnce(&dyn Predictor, &Trail, &[Option<Slot>]) -> Option<T>,
    ) -> Option<T> {
        let calls = self.sessions.of(view.session, view.now);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let learner = knowing(self.learner_of(view), tools);
            let slots: Vec<Option<Slot>> = {
                let vocabulary = learner.predictor().vocabulary();
                tools.iter().map(|tool| vocabulary.slot(tool)).collect()
            };
            let trail = trail(&learner, view, &calls, (tools, &slots));
            work(learner.predictor(), &trail, &slots)
        }));
        let done = done.ok().flatten();
        if done.is_none() {
            self.failed("predict");
        }
        done
    }

    fn learner_of(&self, view: &SessionView<'_>) -> &SharedLearner {
        let number = self.predictor_of(view.participant());
        let of_arm = number.checked_sub(1).and_then(|at| self.of_arms.get(at));
        of_arm.map_or(&self.learner, |of_arm| &of_arm.learner)
    }

    /// Counts that something failed which must fail no request, and says so the first time.
    pub(super) fn failed(&self, what: &str) {
        self.n_failed.fetch_add(1, Ordering::Relaxed);
        if !self.was_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the predictor failed to {what}: tools are shown as if nothing were known; further \
                 failures are counted only"
            );
        }
    }

    /// Returns what everybody's predictor is taught by.
    pub(super) fn learner(&self) -> &SharedLearner {
        &self.learner
    }

    /// Returns the predictors of arms.
    pub(super) fn of_arms(&self) -> &[OfArms] {
        &self.of_arms
    }
}

/// Returns the learner, who has a place for each of the tools, as far as there is room.
fn knowing<'a>(learner: &'a SharedLearner, tools: &[ToolRef]) -> RwLockReadGuard<'a, Learner> {
    let known = learner.read();
    let vocabulary = known.predictor().vocabulary();
    if tools.iter().all(|tool| vocabulary.slot(tool).is_some()) {
        return known;
    }
    drop(known);
    learner.write().meet(tools);
    learner.read()
}

/// Returns the session so far: what was called a moment ago, of the tools that are asked about, or
/// what is known from before where nothing was.
fn trail(
    learner: &Learner,
    view: &SessionView<'_>,
    calls: &[CallKey],
    (tools, slots): (&[ToolRef], &[Option<Slot>]),
) -> Trail {
    let party = Party::new(view.principal, view.client);
    let mut trail = if calls.is_empty() {
        let known = learner.trail(&view.session, view.now);
        known.cloned().unwrap_or_else(|| Trail::new(party))
    } else {
        let called: BTreeSet<CallKey> = calls.iter().copied().collect();
        let keys = tools.iter().zip(slots).filter_map(|(tool, slot)| {
            let key = CallKey::of(tool);
            called.contains(&key).then_some((key, (*slot)?))
        });
        let keys: BTreeMap<CallKey, Slot> = keys.collect();
        let mut trail = Trail::new(party);
        for slot in calls.iter().filter_map(|call| keys.get(call)) {
            trail.push(*slot);
        }
        trail
    };
    trail.set_time(view.now);
    if let Some(intent) = &view.intent {
        let fits = intent.fits.iter().filter_map(|(position, fit)| {
            let slot = slots.get(*position).copied().flatten()?;
            Some((slot, *fit))
        });
        let mut text = TextEvidence::new(intent.text).with_scores(fits);
        if let Some(vector) = intent.vector {
            text = text.with_vector(vector.clone());
        }
        trail.set_text(text);
    }
    trail
}

fn known(slots: &[Option<Slot>]) -> Vec<Slot> {
    slots.iter().copied().flatten().collect()
}

/// Returns what was ranked by positions. Of a tool that was asked about twice the first one counts.
fn by_position(ranked: &[(Slot, f64)], slots: &[Option<Slot>]) -> Vec<NextTool> {
    let n = ranked.iter().map(|(slot, _)| slot.index() + 1).max();
    let mut position_of = vec![None; n.unwrap_or(0)];
    for (position, slot) in slots.iter().enumerate() {
        let place = slot.and_then(|slot| position_of.get_mut(slot.index()));
        if let Some(place @ None) = place {
            *place = Some(position);
        }
    }
    let named = ranked.iter().filter_map(|(slot, probability)| {
        Some(NextTool {
            position: (*position_of.get(slot.index())?)?,
            probability: *probability,
        })
    });
    named.collect()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) mod testing;
