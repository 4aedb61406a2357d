//! The seam between the replay and what predicts.
//!
//! A [`Forecaster`] is told what a proxy could know at each moment and no more: the types that it
//! is given have no place for what is still to come.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::principal::Principal;
use riglm_ports::predictor::Predictor;

use super::predicted::Predicted;
use super::session::{ReplayCatalog, ReplaySession};

/// What is known when a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionContext<'a> {
    /// Whose it is; `None` where there is no telling, and all are one's.
    pub principal: Option<&'a Principal>,
    /// The client that it is of.
    pub client: Option<&'a str>,
    /// When it begins.
    pub started_at: Option<Timestamp>,
    /// What is asked for, where it is known.
    pub query: Option<&'a str>,
}

/// What is known before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallContext<'a> {
    /// When it is made.
    pub at: Option<Timestamp>,
    /// The turn that it belongs to, from 0, and what the user said in it, where that is known.
    pub turn: Option<(usize, &'a str)>,
}

/// What is known after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The position of the tool in the catalog.
    pub tool: usize,
    /// Whether the call succeeded.
    pub ok: bool,
}

/// Predicts the next call of a session, and learns from it.
///
/// The replay calls `begin_session`, for each call `predict` and then `observe`, and
/// `end_session`. With `learns` false, what is observed may be used within the session, and mixing
/// weights may follow it, but nothing of it is counted for other sessions.
pub trait Forecaster: Send + fmt::Debug {
    /// A session begins.
    fn begin_session(&mut self, session: &SessionContext<'_>);

    /// Sets the score of every tool of the catalog for the next call. Scores are probabilities up
    /// to a factor: negative ones and what is no number count as 0. `scores` are 0 before.
    fn predict(&mut self, call: &CallContext<'_>, scores: &mut [f64]);

    /// The call was made.
    fn observe(&mut self, called: &Called, learns: bool);

    /// The session is over.
    fn end_session(&mut self, learns: bool);
}

/// Makes a forecaster for a catalog that has learned nothing yet.
type MakeForecaster = dyn Fn(&ReplayCatalog) -> Box<dyn Forecaster> + Send + Sync;

/// A predictor that is replayed: its name, and how one is made that has learned nothing. Several
/// are made of it where tasks are left out.
#[derive(Clone)]
pub struct ReplayedPredictor {
    name: &'static str,
    make: Arc<MakeForecaster>,
}

impl ReplayedPredictor {
    /// Returns the predictor with this name that `make` makes.
    #[must_use]
    pub fn new(
        name: &'static str,
        make: impl Fn(&ReplayCatalog) -> Box<dyn Forecaster> + Send + Sync + 'static,
    ) -> Self {
        let make = Arc::new(make);
        Self { name, make }
    }

    /// Returns a predictor of the port, of which `make` makes one that has learned nothing.
    #[must_use]
    pub fn of(
        name: &'static str,
        make: impl Fn() -> Box<dyn Predictor> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |catalog| {
            Box::new(Predicted::new(make(), catalog))
        })
    }

    /// Returns the name of the predictor.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn untrained(&self, catalog: &ReplayCatalog) -> Box<dyn Forecaster> {
        (self.make)(catalog)
    }
}

impl fmt::Debug for ReplayedPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayedPredictor({})", self.name)
    }
}

/// Plays a session to a forecaster. `measure` is told what was predicted of each call.
pub(super) fn play(
    forecaster: &mut dyn Forecaster,
    session: &ReplaySession,
    with_query: bool,
    learns: bool,
    scores: &mut [f64],
    mut measure: impl FnMut(usize, &[f64]),
) {
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
        measure(position, scores);
        let called = Called {
            tool: call.tool,
            ok: call.ok,
        };
        forecaster.observe(&called, learns);
    }
    forecaster.end_session(learns);
}
