//! An open session, in which riglm shows its predictions, a search and a recommendation.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::control::ControlClient;
use super::figures::{Example, PredictedTool};
use super::session::{is_expected, search};
use crate::demo::{Connection, DemoClient, DemoServer, Script};

/// The number of calls before the predictions.
const N_CALLS: usize = 2;
/// The number of shown predictions.
const N_PREDICTIONS: usize = 3;
/// The number of shown tools of a search.
const N_FOUND: usize = 2;
// No recorded session does this.
const QUERY: &str = "remove repeated rows from a list";
const TASK: &str = "count the rows of a table and add up a column";

/// Begins the first recorded session once more, and asks riglm about it. Returns the answers and
/// the number of calls.
///
/// # Errors
///
/// Returns the error of a request, and an error for an unexpected answer.
pub(super) async fn show_example(
    script: &Script,
    url: &str,
    control: &ControlClient,
) -> anyhow::Result<(Example, usize)> {
    let session = script.sessions.first().context("no session is recorded")?;
    let connection = Connection::open(DemoClient::Earlier, url).await?;
    connection.list().await?;
    let calls: Vec<_> = session.calls.iter().take(N_CALLS).collect();
    for call in &calls {
        let answer = connection.call(&call.name(), &call.arguments).await?;
        ensure!(
            is_expected(call, &answer),
            "unexpected answer: {}",
            answer.text
        );
    }
    let called: Vec<String> = calls.iter().map(|call| call.name()).collect();
    let predictions = control.predictions(called.len()).await?;
    let predictions = predicted_tools(&predictions, &called)?;
    let found = found_tools(&search(&connection, QUERY).await?.text);
    ensure!(!found.is_empty(), "a search for {QUERY:?} found nothing");
    let recommendation = control.recommend(TASK).await?;
    let (recommended, reason) = recommended_tool(&recommendation)?;
    connection.close().await?;
    let example = Example {
        intent: session.intent.clone(),
        called,
        predictions,
        query: QUERY.into(),
        found,
        task: TASK.into(),
        recommended,
        reason,
    };
    Ok((example, calls.len()))
}

/// Returns the most likely tools that were not called.
fn predicted_tools(answer: &Value, called: &[String]) -> anyhow::Result<Vec<PredictedTool>> {
    let tools = answer["tools"].as_array().context("no predictions")?;
    let new = tools.iter().filter_map(|tool| {
        let name = tool["name"].as_str()?;
        let is_new = !called.iter().any(|known| known == name);
        is_new.then(|| PredictedTool {
            name: name.into(),
            probability: tool["probability"].as_f64().unwrap_or(0.0),
            reason: tool["sentence"].as_str().unwrap_or_default().into(),
        })
    });
    let predictions: Vec<PredictedTool> = new.take(N_PREDICTIONS).collect();
    ensure!(
        predictions.len() == N_PREDICTIONS,
        "riglm predicts only {} next tools",
        predictions.len()
    );
    Ok(predictions)
}

/// Returns the first tools that the answer of a search names.
fn found_tools(answer: &str) -> Vec<String> {
    let names: BTreeSet<String> = (DemoServer::ALL.iter())
        .flat_map(|server| server.definitions())
        .map(|tool| tool.name.to_string())
        .collect();
    let mut found: Vec<(usize, String)> = (names.into_iter())
        .filter_map(|name| answer.find(&name).map(|at| (at, name)))
        .collect();
    found.sort();
    let found = found.into_iter().map(|(_, name)| name);
    found.take(N_FOUND).collect()
}

fn recommended_tool(answer: &Value) -> anyhow::Result<(String, String)> {
    let tool = &answer["tools"][0];
    let name = tool["name"].as_str().context("nothing is recommended")?;
    let reason = tool["explanation"].as_str().unwrap_or_default();
    Ok((name.into(), reason.into()))
}
