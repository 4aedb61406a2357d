//! Prediction of the next tools of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLockReadGuard;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::experiment::Treatment;
use riglm_domain::prediction::{
    ClientKey, Confidence, ConfidenceBand, ConfidenceBands, ConfidenceMeasure, Explanation,
    SessionHistory, TextEvidence, ToolIx,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::selection::{SessionOutlook, SessionShape};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::predictor::{self, Predictor};

use super::arms::{ArmLearner, ArmPredictor, MAX_ARM_PREDICTORS};
use super::external_advice::{AdviceCounts, AdviceRequest, ExternalAdvice, ExternalAdviser};
use super::learner::{Learner, Origin};
use super::principals::{PrincipalLearners, PrincipalPredictors};
use super::session_calls::{CallKey, SessionCalls};
use super::shared_learner::SharedLearner;
use crate::experiments::{AssignedArm, Experiments, Participant};

/// Options for the confidence of predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextToolsOptions {
    /// The measure of confidence.
    pub measure: ConfidenceMeasure,
    /// The bounds of the confidence bands.
    pub bands: ConfidenceBands,
    /// Whether all tools are shown in the lowest band.
    pub shows_all: bool,
}

/// A text that describes the task of a session.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The text. Only keys of its words are stored.
    pub text: &'a str,
    /// The scores of tools for the text, by their positions in the request: larger is better, on
    /// any scale.
    pub fits: &'a [(usize, f64)],
    /// The vector of the text, of unit length, if an encoder is available.
    pub vector: Option<&'a Embedding>,
}

/// A session whose next tools are requested.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a> {
    /// The session.
    pub session: SessionKey,
    /// The owner of the session.
    pub principal: &'a Principal,
    /// The name that the client declares.
    pub client: &'a str,
    /// The intent, if known.
    pub intent: Option<Intent<'a>>,
    /// The time of the request.
    pub now: Timestamp,
}

impl SessionView<'_> {
    fn participant(&self) -> Participant<'_> {
        Participant::of(self.principal, self.session)
    }
}

/// The reason for a missing prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The predictor failed.
    Failed,
}

/// A tool that may be needed next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextTool {
    /// The position of the tool in the request.
    pub position: usize,
    /// The probability that it is called next.
    pub probability: f64,
}

/// A prediction of the next tools of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The tools, the most likely first. Tools that do not fit into the predictor are missing.
    pub ranked: Vec<NextTool>,
    /// The same tools with their shares in the tools that the session has yet to use, the largest
    /// share first. For choices that stay for a whole session.
    pub later: Vec<NextTool>,
    /// The reason for a missing prediction. All tools then have equal probabilities, in the order
    /// of the request.
    pub fallback: Option<Fallback>,
    similarities: Vec<f64>,
    options: NextToolsOptions,
}

impl Prediction {
    /// Returns the confidence of a list of the `max_tools` most likely tools. It is zero for a
    /// missing prediction.
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
    /// Returns whether to show all tools, because the confidence of the best `max_tools` is too
    /// low.
    #[must_use]
    pub fn shows_all(&self, max_tools: usize) -> bool {
        self.options.shows_all && self.confidence(max_tools).band == ConfidenceBand::ShowAll
    }
}

/// Predicts the next tools of sessions, from learned data and from the calls so far.
///
/// A client in an arm of an experiment gets the predictor of its arm, once the predictors of all
/// arms have learned the recorded calls. Until then, and outside of experiments, it gets the
/// default predictor.
///
/// A prediction takes well under a millisecond for hundreds of tools, and waits for no store.
#[derive(Debug)]
pub struct NextTools {
    /// The default predictor.
    learner: SharedLearner,
    of_arms: Vec<ArmLearner>,
    /// The predictors of principals, if none may affect another one.
    principals: Option<PrincipalLearners>,
    experiments: Option<Arc<Experiments>>,
    external: Option<ExternalAdvice>,
    sessions: Arc<SessionCalls>,
    options: ArcSwap<NextToolsOptions>,
    is_ready: AtomicBool,
    is_delayed: AtomicBool,
    n_failed: AtomicU64,
    was_warned: AtomicBool,
}

impl NextTools {
    /// Creates predictions with a default predictor that has learned nothing yet.
    #[must_use]
    pub fn new(predictor: Box<dyn predictor::Learner>, options: NextToolsOptions) -> Self {
        Self {
            learner: SharedLearner::new(Learner::new(predictor, Origin::default())),
            of_arms: Vec::new(),
            principals: None,
            experiments: None,
            external: None,
            sessions: Arc::default(),
            options: ArcSwap::from_pointee(options),
            is_ready: AtomicBool::new(false),
            is_delayed: AtomicBool::new(false),
            n_failed: AtomicU64::new(0),
            was_warned: AtomicBool::new(false),
        }
    }

    /// Adds the predictors of the arms of experiments, at most [`MAX_ARM_PREDICTORS`]. Further arms
    /// use the default predictor.
    #[must_use]
    pub fn with_arms(
        self,
        predictors: Vec<ArmPredictor>,
        experiments: Option<Arc<Experiments>>,
    ) -> Self {
        let predictors = predictors.into_iter().take(MAX_ARM_PREDICTORS);
        Self {
            of_arms: predictors.map(ArmLearner::new).collect(),
            experiments,
            ..self
        }
    }

    /// Gives each principal a predictor of its own, which learns from nobody else. Arms of
    /// experiments then use it, too. The default predictor still counts the calls of all.
    #[must_use]
    pub fn with_principals(self, predictors: Option<PrincipalPredictors>) -> Self {
        Self {
            principals: predictors.map(PrincipalLearners::new),
            ..self
        }
    }

    /// Adds an external predictor, whose scores become evidence of the predictors.
    #[must_use]
    pub fn with_external(self, adviser: Option<ExternalAdviser>) -> Self {
        Self {
            external: adviser.map(ExternalAdvice::new),
            ..self
        }
    }

    /// Uses the calls of open sessions that `other` has recorded, so that these predictions can
    /// replace it in the middle of sessions.
    #[must_use]
    pub fn with_sessions_of(self, other: &Self) -> Self {
        Self {
            sessions: Arc::clone(&other.sessions),
            ..self
        }
    }

    /// Replaces the options for confidence; returns whether they changed.
    pub fn set_options(&self, options: NextToolsOptions) -> bool {
        *self.options.swap(Arc::new(options)) != options
    }

    /// Records the call of a tool; it affects predictions for the session at once.
    pub fn record_call(&self, session: SessionKey, tool: &ToolRef, at: Timestamp) {
        self.sessions.record_call(session, tool, at);
    }

    /// Returns the number of the predictor for a participant; 0 is the default one.
    #[must_use]
    pub fn predictor_of(&self, who: Participant<'_>) -> usize {
        let arm = self
            .ready_experiments()
            .and_then(|all| all.arm(who, Treatment::Predictors));
        let set = arm.as_ref().and_then(AssignedArm::predictors);
        let place = set.and_then(|set| self.of_arms.iter().position(|of| of.how.set == set));
        place.map_or(0, |place| place + 1)
    }

    /// Records the exposure of a client to a prediction: from here on the arm affects it.
    pub fn record_exposure(&self, view: &SessionView<'_>) {
        if let Some(experiments) = self.ready_experiments() {
            let _ = experiments.expose(view.participant(), Treatment::Predictors);
        }
    }

    /// Returns the experiments, once the predictors of all arms are ready, so that all arms start
    /// at the same time.
    fn ready_experiments(&self) -> Option<&Experiments> {
        let experiments = self.experiments.as_deref()?;
        let is_ready = self.is_ready() && self.of_arms.iter().all(ArmLearner::is_ready);
        is_ready.then_some(experiments)
    }

    /// Asks the external predictor, if there is one, about the next call of a session. A prediction
    /// for the same situation then uses its scores. Waits no longer than the deadline of the
    /// external predictor.
    pub async fn consult(&self, view: &SessionView<'_>, tools: &[ToolRef]) {
        let Some(external) = &self.external else {
            return;
        };
        let situation = self.situation(view, tools);
        if tools.is_empty() || external.recall(situation).is_some() {
            return;
        }
        let asked = self.with_trail(view, tools, |predictor, history, _| {
            Some(AdviceRequest::new(predictor, history, tools, view.client))
        });
        let Some(mut asked) = asked else {
            return;
        };
        if external.sends_text() {
            let text = view.intent.as_ref().map(|intent| intent.text.to_owned());
            asked.request.session.text = text;
        }
        if let Some(scores) = external.ask(asked).await {
            external.store(situation, scores);
        }
    }

    /// Returns the numbers of requests to the external predictor; `None` without one.
    #[must_use]
    pub fn advice_counts(&self) -> Option<AdviceCounts> {
        self.external.as_ref().map(ExternalAdvice::counts)
    }

    /// Returns a hash of what the scores of an external predictor depend on.
    fn situation(&self, view: &SessionView<'_>, tools: &[ToolRef]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (view.session, view.principal.as_str(), view.client).hash(&mut hasher);
        self.sessions.of(view.session, view.now).hash(&mut hasher);
        tools.hash(&mut hasher);
        view.intent
            .as_ref()
            .map(|intent| intent.text)
            .hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the ranking of the tools that the session needs next. Never fails: see
    /// [`Prediction::fallback`].
    #[must_use]
    pub fn predict(&self, view: &SessionView<'_>, tools: &[ToolRef]) -> Prediction {
        self.predict_after(view, tools, None)
    }

    /// Returns the ranking of the tools that the session needs after a search that found the tool at
    /// a position: it is assumed to be called next. See [`Self::predict`].
    #[must_use]
    pub fn predict_after(
        &self,
        view: &SessionView<'_>,
        tools: &[ToolRef],
        found: Option<usize>,
    ) -> Prediction {
        let options = **self.options.load();
        let predicted = self.with_trail(view, tools, |predictor, history, slots| {
            let candidates = known_slots(slots);
            let found = found.and_then(|at| slots.get(at).copied().flatten());
            let assumed = found.map(|found| history.with_assumed_call(found));
            let history = assumed.as_ref().unwrap_or(history);
            let forecast = predictor.predict(history, &candidates);
            let later = predictor.predict_later(history, &candidates, &forecast);
            let ranked = forecast.ranking();
            let both = ranked.iter().chain(later.ranking());
            let is_sound = both.into_iter().all(|(_, p)| p.is_finite() && *p >= 0.0);
            let similarities = match options.measure {
                ConfidenceMeasure::Mass => Vec::new(),
                ConfidenceMeasure::Similarity => history
                    .text()
                    .map_or_else(Vec::new, |text| predictor.similarities(history, text)),
            };
            is_sound.then(|| {
                let later = by_position(later.ranking(), slots);
                (by_position(ranked, slots), later, similarities)
            })
        });
        if let Some((ranked, later, similarities)) = predicted {
            return Prediction {
                ranked,
                later,
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
        let ranked: Vec<NextTool> = (0..tools.len()).map(even).collect();
        Prediction {
            later: ranked.clone(),
            ranked,
            fallback: Some(Fallback::Failed),
            similarities: Vec::new(),
            options,
        }
    }

    /// Returns the expectation for a new session, learned from ended sessions of its client. If the
    /// list `is_shared`, sessions of all clients of its principal count. Without any, it follows
    /// from `shape`.
    #[must_use]
    pub fn outlook(
        &self,
        view: &SessionView<'_>,
        is_shared: bool,
        shape: &SessionShape,
    ) -> SessionOutlook {
        let party = ClientKey::new(view.principal, view.client);
        let learner = self.learner_of(view);
        learner.read().sizes().outlook(party, is_shared, shape)
    }

    /// Returns the share of each tool in the uses of earlier sessions of the client, by position.
    #[must_use]
    pub fn session_use(&self, view: &SessionView<'_>, tools: &[ToolRef]) -> Vec<f64> {
        let learner = self.learner_of(view);
        let learner = learner.read();
        let shares = (learner.session_use()).shares(ClientKey::new(view.principal, view.client));
        let vocabulary = learner.predictor().vocabulary();
        let share = |tool| shares.get(&vocabulary.slot(tool)?).copied();
        tools
            .iter()
            .map(|tool| share(tool).unwrap_or(0.0))
            .collect()
    }

    /// Returns the probability that a client searches for a hidden tool that it needs, estimated
    /// from its earlier sessions; `None` before the first session. It is for operators: with a
    /// predictor for each principal, only one that is in memory is asked.
    #[must_use]
    pub fn search_probability(&self, principal: &Principal, client: &str) -> Option<f64> {
        let party = ClientKey::new(principal, client);
        let learner = match &self.principals {
            None => self.learner.clone(),
            Some(all) => all.peek(principal)?.learner.clone(),
        };
        let learner = learner.read();
        let outlook = (learner.sizes()).outlook(party, false, &SessionShape::TYPICAL);
        outlook.is_learned().then_some(outlook.seeks)
    }

    /// Returns the share of needed hidden tools that were searched for, over all clients; `None` if
    /// none was needed yet.
    #[must_use]
    pub fn share_sought(&self) -> Option<f64> {
        self.learner.read().sizes().seek_rate()
    }

    /// Returns whether the predictor has learned from texts: most of the recent sessions declared a
    /// context.
    #[must_use]
    pub fn knows_texts(&self, view: &SessionView<'_>) -> bool {
        self.learner_of(view).read().sizes().knows_texts()
    }

    /// Returns the explanations for the tools at these positions; `None` for tools without one.
    #[must_use]
    pub fn explain(
        &self,
        view: &SessionView<'_>,
        tools: &[ToolRef],
        positions: &[usize],
    ) -> Vec<Option<Explanation>> {
        let explained = self.with_trail(view, tools, |predictor, history, slots| {
            let candidates = known_slots(slots);
            let wanted = positions.iter().map(|at| slots.get(*at).copied().flatten());
            let wanted: Vec<Option<ToolIx>> = wanted.collect();
            let explained = predictor.explain(history, &candidates, &known_slots(&wanted));
            let mut explained = explained.into_iter();
            let each = wanted
                .iter()
                .map(|slot| slot.and_then(|_| explained.next()?));
            Some(each.collect())
        });
        explained.unwrap_or_else(|| vec![None; positions.len()])
    }

    /// Returns whether the calls recorded before the start are learned.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Returns whether learning is delayed, because the store fails.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.is_delayed.load(Ordering::Relaxed)
    }

    pub(super) fn set_delayed(&self, is_delayed: bool) {
        self.is_delayed.store(is_delayed, Ordering::Relaxed);
    }

    /// Returns whether anything was ever learned that applies to a principal.
    #[must_use]
    pub fn has_learned(&self, principal: &Principal) -> bool {
        self.learner_of_principal(principal).read().has_learned()
    }

    /// Returns the number of failed predictions since the start.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }

    /// Returns the number of calls learned from since the start.
    #[must_use]
    pub fn n_learned(&self) -> u64 {
        self.learner.read().n_learned()
    }

    /// Calls `work` with the predictor, the session history and the ids of the tools. Counts
    /// failures, and logs the first one.
    fn with_trail<T>(
        &self,
        view: &SessionView<'_>,
        tools: &[ToolRef],
        work: impl FnOnce(&dyn Predictor, &SessionHistory, &[Option<ToolIx>]) -> Option<T>,
    ) -> Option<T> {
        let calls = self.sessions.of(view.session, view.now);
        let external = self.external.as_ref();
        let scores = external.and_then(|external| external.recall(self.situation(view, tools)));
        // A panic in a predictor must not fail the request.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let learner = self.learner_of(view);
            let learner = learner_with(&learner, tools);
            let slots: Vec<Option<ToolIx>> = {
                let vocabulary = learner.predictor().vocabulary();
                tools.iter().map(|tool| vocabulary.slot(tool)).collect()
            };
            let mut history = history(&learner, view, &calls, tools, &slots);
            if let Some(scores) = &scores {
                history.set_advice(scores.advice(learner.predictor().vocabulary()));
            }
            work(learner.predictor(), &history, &slots)
        }));
        let done = done.ok().flatten();
        if done.is_none() {
            self.record_failure("predict");
        }
        done
    }

    fn learner_of(&self, view: &SessionView<'_>) -> SharedLearner {
        if self.principals.is_some() {
            return self.learner_of_principal(view.principal);
        }
        let number = self.predictor_of(view.participant());
        let of_arm = number.checked_sub(1).and_then(|at| self.of_arms.get(at));
        of_arm
            .map_or(&self.learner, |of_arm| &of_arm.learner)
            .clone()
    }

    /// Returns the learned data that apply to a principal outside of experiments.
    fn learner_of_principal(&self, principal: &Principal) -> SharedLearner {
        let own = self.principals.as_ref();
        own.map_or_else(
            || self.learner.clone(),
            |all| all.of(principal).learner.clone(),
        )
    }

    /// Counts a failure that must not fail a request, and logs the first one.
    pub(super) fn record_failure(&self, what: &str) {
        self.n_failed.fetch_add(1, Ordering::Relaxed);
        if !self.was_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "predictor failed to {what}: lists are selected without predictions; further \
                 failures are only counted"
            );
        }
    }

    pub(super) fn external(&self) -> Option<&ExternalAdvice> {
        self.external.as_ref()
    }

    pub(super) fn learner(&self) -> &SharedLearner {
        &self.learner
    }

    pub(super) fn principals(&self) -> Option<&PrincipalLearners> {
        self.principals.as_ref()
    }

    pub(super) fn arm_learners(&self) -> &[ArmLearner] {
        &self.of_arms
    }
}

/// Returns the learner after adding the tools to its vocabulary, as far as there is room.
fn learner_with<'a>(learner: &'a SharedLearner, tools: &[ToolRef]) -> RwLockReadGuard<'a, Learner> {
    let known = learner.read();
    let vocabulary = known.predictor().vocabulary();
    // The write lock blocks all predictions, so it is taken only for new tools.
    if tools.iter().all(|tool| vocabulary.slot(tool).is_some()) {
        return known;
    }
    drop(known);
    learner.write().add_tools(tools);
    learner.read()
}

/// Returns the session history: the recent calls of the requested tools, or the learned history if
/// there are none.
fn history(
    learner: &Learner,
    view: &SessionView<'_>,
    calls: &[CallKey],
    tools: &[ToolRef],
    slots: &[Option<ToolIx>],
) -> SessionHistory {
    let party = ClientKey::new(view.principal, view.client);
    let mut history = if calls.is_empty() {
        let known = learner.history(&view.session, view.now);
        known.cloned().unwrap_or_else(|| SessionHistory::new(party))
    } else {
        let called: BTreeSet<CallKey> = calls.iter().copied().collect();
        let keys = tools.iter().zip(slots).filter_map(|(tool, slot)| {
            let key = CallKey::of(tool);
            called.contains(&key).then_some((key, (*slot)?))
        });
        let keys: BTreeMap<CallKey, ToolIx> = keys.collect();
        let mut history = SessionHistory::new(party);
        for slot in calls.iter().filter_map(|call| keys.get(call)) {
            history.push(*slot);
        }
        history
    };
    history.set_time(view.now);
    if let Some(intent) = &view.intent {
        let fits = intent.fits.iter().filter_map(|(position, fit)| {
            let slot = slots.get(*position).copied().flatten()?;
            Some((slot, *fit))
        });
        let mut text = TextEvidence::new(intent.text).with_scores(fits);
        if let Some(vector) = intent.vector {
            text = text.with_vector(vector.clone());
        }
        history.set_text(text);
    }
    history
}

fn known_slots(slots: &[Option<ToolIx>]) -> Vec<ToolIx> {
    slots.iter().copied().flatten().collect()
}

/// Maps a ranking to positions. If a tool was requested twice, its first position counts.
fn by_position(ranked: &[(ToolIx, f64)], slots: &[Option<ToolIx>]) -> Vec<NextTool> {
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

#[cfg(any(test, feature = "testing"))]
pub mod testing;
