//! Adapter from predictors of the port to the replay.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_discovery::learning::advise;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{ClientKey, LearningScope, SessionHistory, ToolIx};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::predictor::Learner;

use super::forecaster::{AskExternal, CallContext, Forecaster, ObservedCall, SessionContext};
use super::replay_texts::ReplayTexts;
use super::session::{ReplayCatalog, ReplayTool};

/// A predictor over the tools of one catalog.
pub(super) struct PredictorForecaster {
    predictor: Box<dyn Learner>,
    external: Option<Arc<AskExternal>>,
    tools: Vec<ToolRef>,
    client: String,
    /// The predictor's indexes of the tools, by position in the catalog. `None` if the predictor
    /// has no room.
    slot_of: Vec<Option<ToolIx>>,
    /// All indexes that exist, ascending.
    candidates: Vec<ToolIx>,
    texts: Arc<ReplayTexts>,
    history: SessionHistory,
    /// Query of the session, until the first call.
    query: Option<String>,
    turn: Option<usize>,
}

impl fmt::Debug for PredictorForecaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredictorForecaster")
            .field("predictor", &self.predictor)
            .finish_non_exhaustive()
    }
}

impl PredictorForecaster {
    /// Returns the predictor over a catalog, without any learned data.
    pub(super) fn new(
        mut predictor: Box<dyn Learner>,
        catalog: &ReplayCatalog,
        texts: Arc<ReplayTexts>,
    ) -> Self {
        let tools: Vec<ToolRef> = catalog.tools.iter().map(tool_ref).collect();
        let slot_of: Vec<Option<ToolIx>> =
            tools.iter().map(|tool| predictor.intern(tool)).collect();
        let mut candidates: Vec<ToolIx> = slot_of.iter().copied().flatten().collect();
        candidates.sort_unstable();
        candidates.dedup();
        Self {
            predictor,
            external: None,
            tools,
            client: String::new(),
            slot_of,
            candidates,
            texts,
            history: history(None, None),
            query: None,
            turn: None,
        }
    }

    /// Sets the external predictor, whose scores are evidence of the predictor.
    pub(super) fn with_external(self, ask: Arc<AskExternal>) -> Self {
        Self {
            external: Some(ask),
            ..self
        }
    }

    fn set_text(&mut self, text: &str) {
        let vocabulary = self.predictor.vocabulary();
        self.history.set_text(self.texts.evidence(text, vocabulary));
    }

    fn set_time(&mut self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.history.set_time(at);
        }
    }
}

impl Forecaster for PredictorForecaster {
    fn begin_session(&mut self, session: &SessionContext<'_>) {
        self.history = history(session.principal, session.client);
        session
            .client
            .unwrap_or_default()
            .clone_into(&mut self.client);
        self.set_time(session.started_at);
        self.query = session.query.map(str::to_owned);
        self.turn = None;
    }

    fn predict(&mut self, call: &CallContext<'_>, scores: &mut [f64]) {
        self.set_time(call.at);
        let query = self.query.take();
        match call.turn {
            Some((turn, text)) if self.turn != Some(turn) => {
                self.turn = Some(turn);
                self.set_text(text);
            }
            None => {
                if let Some(query) = query.filter(|query| !query.is_empty()) {
                    self.set_text(&query);
                }
            }
            Some(_) => {}
        }
        if let Some(ask) = &self.external {
            let (predictor, history) = (&*self.predictor, &mut self.history);
            advise(predictor, history, &self.tools, &self.client, |request| {
                ask(request)
            });
        }
        let forecast = self.predictor.predict(&self.history, &self.candidates);
        for (score, slot) in scores.iter_mut().zip(&self.slot_of) {
            *score = slot.map_or(0.0, |slot| forecast.probability(slot));
        }
    }

    fn predict_later(&mut self, found: Option<usize>, scores: &mut [f64]) -> bool {
        let found = found.and_then(|found| self.slot_of.get(found).copied().flatten());
        let assumed = found.map(|found| self.history.with_assumed_call(found));
        let history = assumed.as_ref().unwrap_or(&self.history);
        let next = self.predictor.predict(history, &self.candidates);
        let later = (self.predictor).predict_later(history, &self.candidates, &next);
        for (score, slot) in scores.iter_mut().zip(&self.slot_of) {
            *score = slot.map_or(0.0, |slot| later.probability(slot));
        }
        true
    }

    fn observe(&mut self, called: &ObservedCall, learns: bool) {
        let Some(slot) = self.slot_of.get(called.tool).copied().flatten() else {
            return;
        };
        let lesson = if learns {
            LearningScope::Everything
        } else {
            LearningScope::Weights
        };
        self.predictor
            .learn(&mut self.history, &self.candidates, slot, lesson);
    }

    fn end_session(&mut self, learns: bool) {
        if learns {
            self.predictor.end_session(&self.history);
        }
    }
}

fn history(principal: Option<&Principal>, client: Option<&str>) -> SessionHistory {
    let local = Principal::local();
    let principal = principal.unwrap_or(&local);
    SessionHistory::new(ClientKey::new(principal, client.unwrap_or_default()))
}

/// Returns the tool reference of a tool. Server names in a catalog can be any text, so they are
/// converted to valid upstream names.
pub(super) fn tool_ref(tool: &ReplayTool) -> ToolRef {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let plain = |character: char| if is_plain(character) { character } else { '_' };
    let mut server: String = tool.server.chars().map(plain).take(64).collect();
    if server.is_empty() {
        server.push('_');
    }
    ToolRef {
        upstream: UpstreamName::parse(&server).expect("letters and underscores make a name"),
        tool: tool.name.as_str().into(),
    }
}
