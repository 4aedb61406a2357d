//! The catalog of a replay as lists are chosen from it.

use riglm_domain::evaluation::replay::{SimulatedCatalog, SimulatedSession};
use riglm_domain::listing::{
    AskedFor, ReadOnly, TopicTool, TopicWords, UnknownTool, is_write, topic, typical_order,
};
use riglm_domain::prediction::Party;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{Query, RankingRules, ToolIndex};

use super::predicted::index_of;
use super::session::{ReplayCatalog, ReplaySession};

/// A catalog, and the words by which it is told what sessions say that they do.
#[derive(Debug)]
pub(super) struct ListedCatalog<'a> {
    simulated: SimulatedCatalog,
    described: Vec<TopicTool<'a>>,
    index: ToolIndex,
    rules: RankingRules,
    words: &'a TopicWords,
}

impl<'a> ListedCatalog<'a> {
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
            read_only: ReadOnly::Unsaid,
        });
        let unknown: Vec<UnknownTool<'_>> = unknown.collect();
        let described = tools.iter().map(|tool| TopicTool {
            server: &tool.server,
            name: &tool.name,
            summary: first_sentence(&tool.description).to_owned(),
            read_only: ReadOnly::Unsaid,
        });
        let may_write = (tools.iter()).map(|tool| is_write(&tool.name, ReadOnly::Unsaid));
        Self {
            simulated: SimulatedCatalog {
                n_tools: tools.len(),
                tokens_per_tool: tokens_per_tool as u64,
                first_order: typical_order(&unknown),
                may_write: may_write.collect(),
            },
            described: described.collect(),
            index: index_of(catalog),
            rules: RankingRules::default(),
            words,
        }
    }

    pub(super) fn simulated(&self) -> &SimulatedCatalog {
        &self.simulated
    }

    /// Returns a session as it is known when it begins; `with_query` says whether that is what it
    /// was asked for.
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
            party: Party::new(principal, client),
            asked: asked
                .zip(text)
                .map(|(topic, text)| AskedFor::of(&topic, &self.fits(text))),
            has_context: text.is_some(),
        }
    }
}

impl ListedCatalog<'_> {
    /// Returns the scores of tools for a text by its words.
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
