//! `riglm demo`: one proxy in front of the built-in servers, and the calls that it recorded.

use std::path::Path;

use anyhow::{Context, ensure};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository as _, SessionRepository as _};

use super::{calls, sessions};
use crate::compose::Extensions;
use crate::config::{Config, Environment, Overrides, ProcessEnv, load};
use crate::demo::{DemoClient, DemoServer, ExpectedResult, drive, script};
use crate::output::{print, printable};
use crate::{compose, telemetry};

// More than the demonstration records.
const LIMIT: u32 = 1_000;

/// Runs the demonstration in a temporary directory.
///
/// # Errors
///
/// Returns an error if a step fails or has an unexpected result.
pub(super) async fn run() -> anyhow::Result<()> {
    let directory = tempfile::tempdir().context("failed to create a temporary directory")?;
    let config = config_in(directory.path())?;
    telemetry::start(&config.logging);
    let running = compose::start(config.clone(), None, Extensions::default())
        .await
        .context("failed to start the proxy")?;
    let shown = show_all(&running.mcp_url()).await;
    running.shutdown().await;
    let n_unexpected = shown? + show_records(&config).await?;
    ensure!(
        n_unexpected == 0,
        "{n_unexpected} steps had an unexpected result"
    );
    Ok(())
}

/// Returns the configuration of a proxy in front of all servers. All other keys have their
/// defaults; files and environment variables of the user are ignored.
fn config_in(data_dir: &Path) -> anyhow::Result<Config> {
    let program =
        std::env::current_exe().context("failed to find the path of the riglm program")?;
    let upstreams = DemoServer::ALL.iter().map(|server| {
        let command = serde_json::json!([program, "__demo-server", server.name()]);
        let key = format!("RIGLM__UPSTREAMS__{}__COMMAND", server.name());
        (key, command.to_string())
    });
    let level = ("RIGLM__LOGGING__LEVEL".to_owned(), "warn".to_owned());
    let environment: Environment = upstreams.chain([level]).collect();
    let overrides = Overrides {
        data_dir: Some(data_dir.into()),
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        control: Some(ControlAddress::Off),
        ..Overrides::default()
    };
    let surroundings = ProcessEnv {
        environment,
        working_directory: data_dir.into(),
        ..ProcessEnv::default()
    };
    Ok(load(&overrides, &surroundings)?)
}

/// Runs the clients one after the other, and returns the number of unexpected steps.
async fn show_all(url: &str) -> anyhow::Result<usize> {
    let servers: Vec<&str> = DemoServer::ALL.iter().map(|it| it.name()).collect();
    let servers = servers.join(", ");
    print(&format!("one proxy for the servers {servers}, at {url}"))?;
    let mut n_unexpected = 0;
    for &client in DemoClient::ALL {
        n_unexpected += show(client, url).await?;
    }
    Ok(n_unexpected)
}

async fn show(client: DemoClient, url: &str) -> anyhow::Result<usize> {
    let name = format!("a client of revision {}", client.revision());
    print(&format!("\n{name}"))?;
    let steps = drive(client, url, &script(client))
        .await
        .with_context(|| format!("failed to serve {name}"))?;
    for step in &steps {
        let mark = if step.is_expected { "ok" } else { "UNEXPECTED" };
        print(&format!("  {mark}  {}", printable(&step.action)))?;
        for line in step.answer.lines() {
            print(&format!("        {}", printable(line)))?;
        }
    }
    Ok(steps.iter().filter(|step| !step.is_expected).count())
}

/// Prints the records, and returns the number of unexpected ones.
async fn show_records(config: &Config) -> anyhow::Result<usize> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let recorded_sessions = store.sessions(LIMIT).await?;
    let filter = InvocationFilter::default();
    let recorded_calls = store.invocations(&filter, LIMIT).await?;
    print("\nrecorded sessions")?;
    print(&sessions::as_table(&recorded_sessions))?;
    print("\nrecorded calls")?;
    print(&calls::as_table(&recorded_calls))?;

    let made: Vec<(&str, &str, Outcome)> = DemoClient::ALL
        .iter()
        .flat_map(|client| script(*client))
        .map(|call| {
            let outcome = match call.expected {
                ExpectedResult::Text(_) => Outcome::Ok,
                ExpectedResult::Failure(_) => Outcome::Error,
            };
            (call.server.name(), call.tool, outcome)
        })
        .collect();
    let is_recorded = recorded_calls.len() == made.len()
        && recorded_calls.iter().zip(&made).all(|(recorded, made)| {
            let call = &recorded.invocation;
            let outcome = recorded.end.as_ref().map(|end| end.outcome);
            (call.upstream.as_str(), call.tool.as_str(), outcome) == (made.0, made.1, Some(made.2))
        });
    let is_complete = recorded_sessions.len() == DemoClient::ALL.len()
        && recorded_sessions
            .iter()
            .all(|session| session.ended_at.is_some());
    Ok(usize::from(!is_recorded) + usize::from(!is_complete))
}
