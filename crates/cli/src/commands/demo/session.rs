//! A recorded session, played by a client, and what it cost.

use std::collections::BTreeSet;

use anyhow::Context as _;
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_ports::token_counter::TokenCounter as _;
use rmcp::model::{JsonObject, Tool};

use crate::demo::{CallAnswer, Connection, ExpectedResult, Script, ScriptedCall, ScriptedSession};

pub(super) const SEARCH_TOOL: &str = "search_available_tools";

/// The list and the requests of a client in a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionPlay {
    /// The number of listed tools.
    pub(super) n_tools: usize,
    /// The tokens of their definitions.
    pub(super) tokens: u64,
    /// The number of different tools that were called.
    pub(super) n_first_uses: usize,
    /// The number of these that were listed.
    pub(super) n_listed_uses: usize,
    pub(super) n_searches: usize,
    /// The calls that had another result than expected, with the result.
    pub(super) unexpected: Vec<String>,
}

/// Plays a session: lists the tools once, then makes the calls. Before the first call of a tool that
/// is neither listed nor in an answer, the client searches for it.
///
/// # Errors
///
/// Returns the error of a request.
pub(super) async fn play_session(
    session: &ScriptedSession,
    script: &Script,
    url: &str,
) -> anyhow::Result<SessionPlay> {
    let connection = Connection::open(session.client, url).await?;
    let listed = connection.list().await?;
    let mut play = SessionPlay {
        n_tools: listed.len(),
        tokens: tokens_of(&listed)?,
        ..SessionPlay::default()
    };
    let listed: BTreeSet<String> = listed.iter().map(|tool| tool.name.to_string()).collect();
    let mut told = String::new();
    let mut used = BTreeSet::new();
    for call in &session.calls {
        let name = call.name();
        if used.insert(name.clone()) {
            play.n_first_uses += 1;
            if listed.contains(&name) {
                play.n_listed_uses += 1;
            } else if !told.contains(&name) {
                let words = script.needs.get(&name).context("a tool without words")?;
                let answer = search(&connection, words).await?;
                told.push_str(&answer.text);
                play.n_searches += 1;
            }
        }
        let answer = connection.call(&name, &call.arguments).await?;
        if !is_expected(call, &answer) {
            play.unexpected.push(format!("{name}: {}", answer.text));
        }
    }
    connection.close().await?;
    Ok(play)
}

/// Searches for a tool in words.
pub(super) async fn search(connection: &Connection, words: &str) -> anyhow::Result<CallAnswer> {
    let mut arguments = JsonObject::new();
    arguments.insert("query".into(), words.into());
    connection.call(SEARCH_TOOL, &arguments).await
}

/// Returns whether a call had the expected result.
pub(super) fn is_expected(call: &ScriptedCall, answer: &CallAnswer) -> bool {
    match &call.expected {
        ExpectedResult::Text(part) => !answer.is_failure && answer.text.contains(part),
        ExpectedResult::Failure(part) => answer.is_failure && answer.text.contains(part),
    }
}

/// Returns the number of tokens in definitions, counted as the proxy counts them.
///
/// # Errors
///
/// Returns the error of writing a definition as JSON.
pub(super) fn tokens_of(tools: &[Tool]) -> anyhow::Result<u64> {
    let mut tokens = 0;
    for tool in tools {
        let definition = serde_json::to_string(tool).context("failed to write a definition")?;
        tokens += O200kTokenCounter.count(&definition);
    }
    Ok(tokens)
}
