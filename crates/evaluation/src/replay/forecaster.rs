//! Interface between the replay and the predictors.
//!
//! A [`Forecaster`] gets only data that a proxy would have at the same time. The types of its
//! arguments have no place for future data.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::external_predictor::{ScoreRequest, ScoreResponse};
use riglm_ports::predictor::Learner;

use super::predictor_forecaster::PredictorForecaster;
use super::replay_texts::ReplayTexts;
use super::session::{ReplayCatalog, ReplaySession};

/// Data that are known at the start of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionContext<'a> {
    /// The principal, or `None` if unknown. Sessions without one count as sessions of the same
    /// principal.
    pub principal: Option<&'a Principal>,
    /// Name of the client.
    pub client: Option<&'a str>,
    /// Start time.
    pub started_at: Option<Timestamp>,
    /// The query, if known.
    pub query: Option<&'a str>,
}

/// Data that are known before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallContext<'a> {
    /// Time of the call.
    pub at: Option<Timestamp>,
    /// Index of the turn, from 0, and the text of the user in this turn. `None` if unknown.
    pub turn: Option<(usize, &'a str)>,
}

/// Data that are known after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedCall {
    /// Position of the tool in the catalog.
    pub tool: usize,
    /// Whether the call succeeded.
    pub ok: bool,
}

/// Predicts the next call of a session, and learns from it.
///
/// The replay calls `begin_session`, then `predict` and `observe` for each call, and then
/// `end_session`. If `learns` is false, an observation may be used within the session and may adapt
/// mixing weights. It must not count for other sessions.
pub trait Forecaster: Send + fmt::Debug {
    /// Starts a session.
    fn begin_session(&mut self, session: &SessionContext<'_>);

    /// Writes the score of every tool of the catalog for the next call. Scores are proportional to
    /// probabilities. Negative scores and NaN count as 0. All `scores` are 0 before.
    fn predict(&mut self, call: &CallContext<'_>, scores: &mut [f64]);

    /// Writes the share of every tool in the tools that the session has yet to use, in the situation
    /// of the last prediction; with `found`, as if that tool were called next. Returns false if the
    /// forecaster only predicts next calls: then nothing is written, and their scores count. All
    /// `scores` are 0 before.
    fn predict_later(&mut self, found: Option<usize>, scores: &mut [f64]) -> bool {
        let _ = (found, scores);
        false
    }

    /// Observes the call.
    fn observe(&mut self, called: &ObservedCall, learns: bool);

    /// Ends the session.
    fn end_session(&mut self, learns: bool);
}

/// Constructor of a forecaster for a catalog and its texts, without any learned data.
type MakeForecaster =
    dyn Fn(&ReplayCatalog, &Arc<ReplayTexts>) -> Box<dyn Forecaster> + Send + Sync;

/// Asks an external predictor for scores.
pub type AskExternal = dyn Fn(&ScoreRequest) -> Option<ScoreResponse> + Send + Sync;

/// A predictor for the replay: its name and its constructor. With held-out tasks, several instances
/// are needed.
#[derive(Clone)]
pub struct ReplayedPredictor {
    name: &'static str,
    make: Arc<MakeForecaster>,
}

impl ReplayedPredictor {
    /// Returns the predictor with this name and constructor.
    #[must_use]
    pub fn new(
        name: &'static str,
        make: impl Fn(&ReplayCatalog, &Arc<ReplayTexts>) -> Box<dyn Forecaster> + Send + Sync + 'static,
    ) -> Self {
        let make = Arc::new(make);
        Self { name, make }
    }

    /// Wraps a predictor of the port. `make` returns an instance without any learned data.
    #[must_use]
    pub fn of(
        name: &'static str,
        make: impl Fn() -> Box<dyn Learner> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |catalog, texts| {
            Box::new(PredictorForecaster::new(make(), catalog, Arc::clone(texts)))
        })
    }

    /// Returns the name of the predictor.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Wraps a predictor of the port that gets the scores of an external predictor. `ask` returns its
    /// scores, and may block.
    #[must_use]
    pub fn with_external(
        name: &'static str,
        make: impl Fn() -> Box<dyn Learner> + Send + Sync + 'static,
        ask: Arc<AskExternal>,
    ) -> Self {
        Self::new(name, move |catalog, texts| {
            let forecaster = PredictorForecaster::new(make(), catalog, Arc::clone(texts));
            Box::new(forecaster.with_external(Arc::clone(&ask)))
        })
    }

    pub(super) fn new_forecaster(
        &self,
        catalog: &ReplayCatalog,
        texts: &Arc<ReplayTexts>,
    ) -> Box<dyn Forecaster> {
        (self.make)(catalog, texts)
    }
}

impl fmt::Debug for ReplayedPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayedPredictor({})", self.name)
    }
}

/// The scores that are predicted for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallScores<'a> {
    /// The scores of the tools for the call itself.
    pub(super) next: &'a [f64],
    /// The scores of the tools for the whole session, before its first call.
    pub(super) start: Option<&'a [f64]>,
    /// The scores of the tools for the rest of the session after the called tool was found, at the
    /// first call of the tool.
    pub(super) found: Option<&'a [f64]>,
}

/// Options of the replay of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlayOptions {
    /// Whether queries and turns are visible.
    pub(super) with_query: bool,
    /// Whether the session is learned.
    pub(super) learns: bool,
    /// Whether the scores for lists and answers of searches are needed.
    pub(super) for_lists: bool,
}

/// Replays a session with a forecaster. `measure` gets the index of each call and the scores
/// predicted for it.
pub(super) fn play(
    forecaster: &mut dyn Forecaster,
    session: &ReplaySession,
    options: PlayOptions,
    scores: &mut [f64],
    mut measure: impl FnMut(usize, &CallScores<'_>),
) {
    let PlayOptions {
        with_query,
        learns,
        for_lists,
    } = options;
    let mut seen = HashSet::new();
    let query = session.query.as_deref().filter(|_| with_query);
    forecaster.begin_session(&SessionContext {
        principal: session.principal.as_ref(),
        client: session.client.as_deref(),
        started_at: session.started_at,
        query,
    });
    for (position, call) in session.calls.iter().enumerate() {
        let turn = call.turn.unwrap_or(0);
        let text = session.turns.get(turn).filter(|_| with_query);
        scores.fill(0.0);
        let context = CallContext {
            at: call.at,
            turn: text.map(|text| (turn, text.as_str())),
        };
        forecaster.predict(&context, scores);
        let mut later = |found: Option<usize>| {
            let mut later = vec![0.0; scores.len()];
            (forecaster.predict_later(found, &mut later)).then_some(later)
        };
        let is_first_use = seen.insert(call.tool);
        let start = (for_lists && position == 0).then(|| later(None)).flatten();
        let found = (for_lists && is_first_use)
            .then(|| later(Some(call.tool)))
            .flatten();
        let predicted = CallScores {
            next: scores,
            start: start.as_deref(),
            found: found.as_deref(),
        };
        measure(position, &predicted);
        let called = ObservedCall {
            tool: call.tool,
            ok: call.ok,
        };
        forecaster.observe(&called, learns);
    }
    forecaster.end_session(learns);
}
