//! Predictors of the port, as the replay drives them.

use jiff::Timestamp;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{Lesson, Party, Slot, TextEvidence, Trail, text_scores};
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{IndexedTool, Query, RankingRules, Synonyms, ToolIndex, ToolText};
use riglm_domain::tool::ToolRef;
use riglm_ports::predictor::Predictor;

use super::forecaster::{CallContext, Called, Forecaster, SessionContext};
use super::session::{ReplayCatalog, ReplayTool};

/// A predictor over the tools of one catalog. Texts are compared by their words.
#[derive(Debug)]
pub(super) struct Predicted {
    predictor: Box<dyn Predictor>,
    /// The slots of the tools, by their positions in the catalog; `None` for which there is no room.
    slot_of: Vec<Option<Slot>>,
    /// Those that there are.
    candidates: Vec<Slot>,
    index: ToolIndex,
    synonyms: Synonyms,
    rules: RankingRules,
    trail: Trail,
    /// What the session was begun with, until the first call says which turn it is.
    query: Option<String>,
    turn: Option<usize>,
}

impl Predicted {
    /// Returns the predictor over a catalog. It has learned nothing.
    pub(super) fn new(mut predictor: Box<dyn Predictor>, catalog: &ReplayCatalog) -> Self {
        let tools: Vec<ToolRef> = catalog.tools.iter().map(tool_ref).collect();
        let index = index_of(catalog);
        let slot_of: Vec<Option<Slot>> = tools.iter().map(|tool| predictor.intern(tool)).collect();
        let mut candidates: Vec<Slot> = slot_of.iter().copied().flatten().collect();
        candidates.sort_unstable();
        candidates.dedup();
        Self {
            predictor,
            slot_of,
            candidates,
            index,
            synonyms: Synonyms::shipped(),
            rules: RankingRules::default(),
            trail: trail(None, None),
            query: None,
            turn: None,
        }
    }

    fn set_text(&mut self, text: &str) {
        let query = Query::new(text, &self.synonyms);
        let vocabulary = self.predictor.vocabulary();
        let scores = text_scores(&self.index, &query, &self.rules, vocabulary);
        self.trail
            .set_text(TextEvidence::new(text).with_scores(scores));
    }

    fn set_time(&mut self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.trail.set_time(at);
        }
    }
}

impl Forecaster for Predicted {
    fn begin_session(&mut self, session: &SessionContext<'_>) {
        self.trail = trail(session.principal, session.client);
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
        let forecast = self.predictor.predict(&self.trail, &self.candidates);
        for (score, slot) in scores.iter_mut().zip(&self.slot_of) {
            *score = slot.map_or(0.0, |slot| forecast.probability(slot));
        }
    }

    fn observe(&mut self, called: &Called, learns: bool) {
        let Some(slot) = self.slot_of.get(called.tool).copied().flatten() else {
            return;
        };
        let lesson = if learns {
            Lesson::Everything
        } else {
            Lesson::Weights
        };
        self.predictor
            .learn(&mut self.trail, &self.candidates, slot, lesson);
    }

    fn end_session(&mut self, learns: bool) {
        if learns {
            self.predictor.end_session(&self.trail);
        }
    }
}

fn trail(principal: Option<&Principal>, client: Option<&str>) -> Trail {
    let local = Principal::local();
    let principal = principal.unwrap_or(&local);
    Trail::new(Party::new(principal, client.unwrap_or_default()))
}

/// Returns the index of the words of a catalog.
pub(super) fn index_of(catalog: &ReplayCatalog) -> ToolIndex {
    let indexed = catalog.tools.iter().map(|tool| {
        let text = ToolText {
            server: tool.server.clone(),
            name: tool.name.clone(),
            description: tool.description.clone(),
            ..ToolText::default()
        };
        IndexedTool::new(tool_ref(tool), text)
    });
    ToolIndex::new(indexed.collect())
}

/// Returns a tool of a catalog as predictors name it. Names of servers may be any text there.
fn tool_ref(tool: &ReplayTool) -> ToolRef {
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
