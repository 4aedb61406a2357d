//! The catalog of a replay, as input of list simulations.

use crate::simulation::{SimulatedCatalog, SimulatedSession};
use riglm_domain::prediction::ClientKey;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::{Query, RankingRules, ToolIndex};
use riglm_domain::selection::{
    ReadOnlyHint, RequestedTools, TopicTool, TopicWords, UnknownTool, initial_order, is_write,
    topic,
};

use super::replay_texts::index_of;
use super::session::{ReplayCatalog, ReplaySession};

/// A catalog, and the vocabulary for recognizing topics.
#[derive(Debug)]
pub(super) struct ListCatalog<'a> {
    simulated: SimulatedCatalog,
    described: Vec<TopicTool<'a>>,
    index: ToolIndex,
    rules: RankingRules,
    words: &'a TopicWords,
}

impl<'a> ListCatalog<'a> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "tokens of a tool are few, and not negative in a checked model"
    )]
    pub(super) fn new(
        catalog: &'a ReplayCatalog,
        tokens_per_tool: f64,
        words: &'a TopicWords,
    ) -> Self {
        let tools = &catalog.tools;
        let unknown = tools.iter().map(|tool| UnknownTool {
            server: &tool.server,
            name: &tool.name,
            read_only: ReadOnlyHint::Unsaid,
            // All definitions count as equally large here.
            n_bytes: 0,
        });
        let unknown: Vec<UnknownTool<'_>> = unknown.collect();
        let described = tools.iter().map(|tool| TopicTool {
            server: &tool.server,
            name: &tool.name,
            summary: first_sentence(&tool.description).to_owned(),
            read_only: ReadOnlyHint::Unsaid,
        });
        let may_write = (tools.iter()).map(|tool| is_write(&tool.name, ReadOnlyHint::Unsaid));
        Self {
            simulated: SimulatedCatalog {
                n_tools: tools.len(),
                tokens_per_tool: tokens_per_tool as u64,
                first_order: initial_order(&unknown),
                may_write: may_write.collect(),
            },
            described: described.collect(),
            index: index_of(catalog),
            rules: RankingRules::default(),
            words,
        }
    }

    pub(super) fn simulation_catalog(&self) -> &SimulatedCatalog {
        &self.simulated
    }

    /// Returns a session as it is known at its start. `with_query` says whether its texts are
    /// visible.
    pub(super) fn session(&self, session: &ReplaySession, with_query: bool) -> SimulatedSession {
        let local = Principal::local();
        let principal = session.principal.as_ref().unwrap_or(&local);
        let client = session.client.as_deref().unwrap_or_default();
        let first = session
            .calls
            .first()
            .and_then(|call| call.turn)
            .unwrap_or(0);
        let turn = session.turns.get(first).or(session.query.as_ref());
        let text = turn.filter(|text| with_query && !text.is_empty());
        let asked = text.and_then(|text| topic(text, &self.described, self.words));
        SimulatedSession {
            party: ClientKey::new(principal, client),
            asked: asked
                .zip(text)
                .map(|(topic, text)| RequestedTools::of(&topic, &self.fits(text))),
            has_context: text.is_some(),
        }
    }
}

impl ListCatalog<'_> {
    /// Returns the scores of the tools for a text, by words alone.
    fn fits(&self, text: &str) -> Vec<(usize, f64)> {
        let query = Query::new(text, &self.words.synonyms);
        let hits = (self.index).rank(&query, &self.rules, None, self.index.tools().len());
        hits.into_iter()
            .map(|hit| (hit.position, hit.score))
            .collect()
    }
}

/// Returns the first sentence of a description.
fn first_sentence(description: &str) -> &str {
    let line = description.lines().next().unwrap_or_default();
    let mut sentences = line.split_inclusive(['.', '!', '?']);
    sentences.next().unwrap_or_default()
}
